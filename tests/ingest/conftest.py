"""A database of its own for each test, a folder to index, and an embedder that counts what it is asked."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Kind
from kura.embed.hashing import HashingEmbedder
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.report import Report
from kura.ingest.roots import register, writing
from kura.store.catalog import Catalog
from kura.store.engine import Connection


class CountingEmbedder(HashingEmbedder):
    """The hashing embedder, and the texts that it has embedded."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts, kind)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    catalog = Catalog(tmp_path / "data")
    return catalog.path(catalog.add("notes"))


@pytest.fixture
def connection(database: Path) -> Iterator[Connection]:
    with writing(database) as connection:
        yield connection


Index = Callable[..., Report]


@pytest.fixture
def index(connection: Connection, docs: Path, embedder: CountingEmbedder) -> Index:
    """Index `docs`, or the paths given, with the counting embedder."""

    def run(*paths: Path, **options: object) -> Report:
        targets = [register(connection, path) for path in paths or [docs]]
        given = {"model": Model.of(embedder), "max_file_bytes": 1_000_000} | options
        return reconcile(connection, targets, **given)  # pyright: ignore[reportArgumentType]

    return run
