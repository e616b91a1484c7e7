import os
from pathlib import Path

# Before numpy is imported: several BLAS threads on busy cores spend their time waiting for each other, tenfold.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "data")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(64)
