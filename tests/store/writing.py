"""How tests put knowledge into a database: as the indexer does, without files."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from kura.embed import Embedder
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection
from kura.store.sources import Vector, add_root, replace_source, roots, set_embedder, sources, stored_hashes, text_hash
from kura.store.sqlite import open_for_reading, open_for_writing
from kura.text.passage import passage
from kura.types import Chunk


@contextmanager
def writing(catalog: Catalog, entry: Entry) -> Generator[Connection]:
    connection = open_for_writing(catalog.path(entry), create=True)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def reading(catalog: Catalog, entry: Entry) -> Generator[Connection]:
    connection = open_for_reading(catalog.path(entry))
    try:
        yield connection
    finally:
        connection.close()


def chunks_of(texts: Sequence[str], heading: tuple[str, ...] = ()) -> list[Chunk]:
    return [Chunk(n, text, heading, n, n) for n, text in enumerate(texts, 1)]


def embedded(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector]:
    return dict(zip(map(text_hash, texts), embedder.embed(texts, "passage"), strict=True)) if texts else {}


def put(
    connection: Connection,
    path: str,
    *texts: str,
    embedder: Embedder | None = None,
    heading: tuple[str, ...] = (),
    root: str = "/files",
) -> int:
    """Index a source of these passages below `root`, as it is registered or shall be; returns the source's id."""
    root_id = next((known.id for known in roots(connection) if known.path == root), None)
    if root_id is None:
        root_id = add_root(connection, root, root.rsplit("/", 1)[-1]).id
    chunks = chunks_of(texts, heading)
    vectors: dict[str, Vector] = {}
    if embedder is not None:
        set_embedder(connection, embedder.name, embedder.dimension)
        whole = list(dict.fromkeys(passage(chunk.heading, chunk.content) for chunk in chunks))
        known = stored_hashes(connection, [text_hash(text) for text in whole])
        vectors = embedded(embedder, [text for text in whole if text_hash(text) not in known])
    content_hash = text_hash("\0".join(texts))
    replace_source(
        connection, root_id, path, content_hash=content_hash, size=1, mtime_ns=1, chunks=chunks, vectors=vectors
    )
    return sources(connection, root_id)[path].id


def add(catalog: Catalog, name: str, files: Mapping[str, Sequence[str]], embedder: Embedder | None = None) -> Entry:
    """A new database with these sources."""
    entry = catalog.add(name)
    with writing(catalog, entry) as connection:
        for path, texts in files.items():
            put(connection, path, *texts, embedder=embedder)
    return entry
