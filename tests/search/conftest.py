from collections.abc import Callable, Generator

import pytest

from kura.embed import Embedder
from kura.embed.hashing import HashingEmbedder
from kura.search.library import Library
from kura.store.catalog import Catalog
from tests.search.asking import FILES
from tests.store.writing import add

MakeLibrary = Callable[..., Library]


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
    add(catalog, "notes", FILES, embedder)
    return make_library(lambda: embedder)
