from pathlib import Path

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "data")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(64)
