import os
from collections.abc import Callable, Generator
from pathlib import Path

from kura.vectors.blas import one_blas_thread

one_blas_thread()

import pytest
from filelock import FileLock
from hypothesis import settings

from kura.embed import Embedder
from kura.embed.hashing import HashingEmbedder
from kura.embed.prune import build
from kura.embed.weights import prepared_file
from kura.library.library import Library
from kura.store.catalog import Catalog
from tests.search.asking import FILES
from tests.store.writing import add

MakeLibrary = Callable[..., Library]

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


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a process of ours is started with: a data directory of its own, and nothing that the machine has set."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_")}
    return mine | {
        "KURA_DATA_DIR": str(tmp_path / "data"),
        "KURA_CACHE_DIR": str(tmp_path / "cache"),
        "KURA_EMBEDDER": "hashing",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture
def make_library(catalog: Catalog) -> Generator[MakeLibrary]:
    """Libraries over the catalog that look for changes at every search; closed when the test is over."""
    made: list[Library] = []

    def make(load: Callable[[], Embedder | None] = lambda: None, patience: float = 30.0) -> Library:
        library = Library(catalog, load, refresh_seconds=0, patience=patience)
        made.append(library)
        return library

    yield make
    for library in made:
        library.close()


@pytest.fixture
def library(catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary) -> Library:
    """One of a database `notes`, with a few files in it."""
    add(catalog, "notes", FILES, embedder)
    return make_library(lambda: embedder)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the prepared file in it: made in five seconds, once for all of pytest's processes."""
    directory = tmp_path_factory.getbasetemp().parent / "kura-embed-cache"
    directory.mkdir(exist_ok=True)
    with FileLock(directory / "lock"):
        prepared_file(directory)
    return directory


@pytest.fixture(scope="session")
def small_file(cache_dir: Path) -> Path:
    """The model file for English and Chinese: made in three seconds, once for all of pytest's processes."""
    file = cache_dir / "en-zh.bin"
    with FileLock(cache_dir / "lock"):
        if not file.exists():
            build(prepared_file(cache_dir), file, ("en", "zh"))
    return file
