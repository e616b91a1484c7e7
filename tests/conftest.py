from pathlib import Path

from kura.vectors.blas import one_blas_thread

one_blas_thread()

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "data")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(64)
