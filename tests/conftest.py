from pathlib import Path

from kura.vectors.blas import one_blas_thread

one_blas_thread()

import pytest
from hypothesis import settings

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog

# The same examples on every run and every machine; `--hypothesis-profile other` looks for others.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("other", deadline=None)
settings.load_profile("same")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "data")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder(64)
