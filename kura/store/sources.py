"""Writing knowledge: roots, sources, their chunks, and the vectors of those. For the one process that indexes.

Each function that changes something commits one transaction and raises the database's `version` by one, so a reader
sees a source whole or not at all.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kura.errors import ArgumentError, EmbedderError, EmbedderMismatch
from kura.store.engine import Connection
from kura.store.migrations import now
from kura.text.passage import passage, passage_tokens
from kura.text.tokens import TOKENIZER_VERSION
from kura.types import Chunk
from kura.vectors.codec import to_bytes

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Root:
    """A folder, or a single file, that was registered for indexing. `path` is absolute and never leaves the machine."""

    id: int
    label: str
    path: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file that is in the index, with what tells whether it changed. `path` is relative to its root, POSIX."""

    id: int
    path: str
    content_hash: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class State:
    """What the database says of itself. `embedder` and `dimension` are None until the first vector is stored."""

    generation: int
    version: int
    tokenizer: int
    embedder: str | None
    dimension: int | None
    tenant: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much there is. `pending` chunks have no vector yet; `pending_since` is when the oldest of them came."""

    sources: int
    chunks: int
    vectors: int
    pending: int
    pending_since: str | None


STATE = "select generation, version, tokenizer, embedder, dimension, tenant, created_at from state where id = 1"
"""The columns of `State`."""

STATISTICS = """
  select (select count(*) from sources), (select count(*) from chunks), (select count(*) from chunk_vectors),
         count(*), min(s.indexed_at)
  from chunks c join sources s on s.id = c.source_id where c.vector_id is null
"""
"""The columns of `Statistics`."""


def state(connection: Connection) -> State:
    """Read the database's own row."""
    return State(*connection.one(STATE))


def statistics(connection: Connection) -> Statistics:
    """Count what there is."""
    return Statistics(*connection.one(STATISTICS))


def roots(connection: Connection) -> list[Root]:
    """The registered roots, oldest first."""
    return [Root(*row) for row in connection.rows("select id, label, path from roots order by id")]


def add_root(connection: Connection, path: str, label: str) -> Root:
    """Register `path`, unless it is already; where the label is taken, a number is added to it."""
    with connection.transaction():
        known = connection.row("select id, label, path from roots where path = ?", (path,))
        if known:
            return Root(*known)
        taken = {row[0] for row in connection.rows("select label from roots")}
        unique, number = label, 1
        while unique in taken:
            number += 1
            unique = f"{label}-{number}"
        root_id = connection.insert("insert into roots (label, path) values (?, ?)", (unique, path))
        _bump(connection)
    return Root(root_id, unique, path)


def move_root(connection: Connection, root_id: int, path: str) -> Root:
    """Say where a root is on this machine, which a database that was fetched from a server does not know."""
    connection.run("update roots set path = ?, device = null where id = ?", (path, root_id))
    return Root(*connection.one("select id, label, path from roots where id = ?", (root_id,)))


def remove_root(connection: Connection, root_id: int) -> int:
    """Forget a root and all that was indexed below it; returns how many sources that were."""
    with connection.transaction():
        ids = [row[0] for row in connection.rows("select id from sources where root_id = ?", (root_id,))]
        version = _bump(connection)
        _drop_sources(connection, ids, version)
        connection.run("delete from roots where id = ?", (root_id,))
    return len(ids)


def device(connection: Connection, root_id: int) -> str | None:
    """The device that the files of a root were last found on; None where nobody has looked yet."""
    (known,) = connection.one("select device from roots where id = ?", (root_id,))
    return known


def set_device(connection: Connection, root_id: int, found: str) -> None:
    """Note the device that the files of a root are on; readers need not know, so no new version."""
    connection.run("update roots set device = ? where id = ? and device is not ?", (found, root_id, found))


def sources(connection: Connection, root_id: int) -> dict[str, Source]:
    """The sources below a root, by path."""
    rows = connection.rows("select id, path, content_hash, size, mtime_ns from sources where root_id = ?", (root_id,))
    return {row[1]: Source(*row) for row in rows}


def text_hash(text: str) -> str:
    """What equal texts share, and with it their vector: SHA-256 in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stored_hashes(connection: Connection, hashes: Collection[str]) -> set[str]:
    """Those of `hashes` whose vector is stored already."""
    sql = "select text_hash from chunk_vectors where text_hash in (select value from json_each(?))"
    return {row[0] for row in connection.rows(sql, (json.dumps(list(hashes)),))}


def replace_source(
    connection: Connection,
    root_id: int,
    path: str,
    *,
    content_hash: str,
    size: int,
    mtime_ns: int,
    chunks: Sequence[Chunk],
    vectors: Mapping[str, Vector],
) -> None:
    """Put a source with its chunks in place of what was indexed under its path.

    Args:
        connection: A connection for writing.
        root_id: The root that it lies below.
        path: Its path, relative to the root.
        content_hash: Hash of the file's bytes.
        size: Bytes of the file.
        mtime_ns: Its modification time in nanoseconds.
        chunks: Its passages; their ordinals count from 1.
        vectors: By text hash, those that are not stored yet. A chunk whose text has no vector, here or stored, waits.

    Raises:
        EmbedderError: if a vector is not of the database's dimension, not finite, or zero.
    """
    with connection.transaction():
        dimension = state(connection).dimension
        version = _bump(connection)
        old = connection.row("select id from sources where root_id = ? and path = ?", (root_id, path))
        stale = _clear_chunks(connection, old[0]) if old else set[int]()
        (source_id,) = connection.one(
            """
            insert into sources (root_id, path, content_hash, size, mtime_ns, indexed_at) values (?, ?, ?, ?, ?, ?)
            on conflict (root_id, path) do update set content_hash = excluded.content_hash, size = excluded.size,
              mtime_ns = excluded.mtime_ns, indexed_at = excluded.indexed_at
            returning id
            """,
            (root_id, path, content_hash, size, mtime_ns, now()),
        )
        for chunk in chunks:
            text = passage(chunk.heading, chunk.content)
            digest = text_hash(text)
            words = " ".join(passage_tokens(chunk.heading, chunk.content))
            chunk_id = connection.insert(
                """
                insert into chunks
                  (source_id, ordinal, heading, first_line, last_line, content, tokens, text_hash, vector_id)
                values (?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                (
                    source_id,
                    chunk.ordinal,
                    json.dumps(chunk.heading, ensure_ascii=False),
                    chunk.first_line,
                    chunk.last_line,
                    chunk.content,
                    words,
                    digest,
                    _vector_id(connection, digest, vectors.get(digest), dimension),
                ),
            )
            connection.run("insert into chunks_fts (rowid, tokens) values (?, ?)", (chunk_id, words))
        _drop_orphans(connection, stale, version)


def touch_source(connection: Connection, source_id: int, size: int, mtime_ns: int) -> None:
    """Note a new size and time for a file whose content is the same; readers need not know, so no new version."""
    connection.run("update sources set size = ?, mtime_ns = ? where id = ?", (size, mtime_ns, source_id))


def forget_files(connection: Connection, source_ids: Iterable[int]) -> None:
    """Forget what tells whether the files of sources changed, so that they are indexed again, by whichever run."""
    with connection.transaction():
        for source_id in source_ids:
            connection.run("update sources set content_hash = '', mtime_ns = -1 where id = ?", (source_id,))


def remove_sources(connection: Connection, source_ids: Iterable[int]) -> None:
    """Take sources out of the index, in one transaction; those that are not there are passed over."""
    with connection.transaction():
        known = [
            source_id
            for source_id in source_ids
            if connection.row("select 1 from sources where id = ?", (source_id,)) is not None
        ]
        if known:
            _drop_sources(connection, known, _bump(connection))


def pending(connection: Connection, limit: int) -> list[tuple[str, str]]:
    """Up to `limit` texts that wait for a vector, each once, as (text hash, text)."""
    rows = connection.rows(
        "select text_hash, heading, content from chunks where vector_id is null group by text_hash limit ?", (limit,)
    )
    return [(digest, passage(json.loads(heading), content)) for digest, heading, content in rows]


def attach(connection: Connection, vectors: Mapping[str, Vector]) -> None:
    """Store vectors, by text hash, for the chunks that wait for them.

    Raises:
        EmbedderError: if a vector is not of the database's dimension, not finite, or zero.
    """
    with connection.transaction():
        dimension = state(connection).dimension
        waiting = {
            digest: vector
            for digest, vector in vectors.items()
            # A text that has gone meanwhile must not leave a vector behind.
            if connection.row("select 1 from chunks where text_hash = ? and vector_id is null", (digest,))
        }
        for digest, vector in waiting.items():
            _vector_id(connection, digest, vector, dimension)
        if waiting:
            _bump(connection)


def set_embedder(connection: Connection, name: str, dimension: int | None) -> None:
    """Claim the database for an embedder; the first one to come is recorded.

    Where the dimension is not known yet, nothing is recorded; a database of another embedder is refused all the same.

    Raises:
        EmbedderMismatch: if it holds vectors of another one.
    """
    with connection.transaction():
        known = state(connection)
        if (known.embedder, known.dimension if dimension is not None else None) == (name, dimension):
            return
        if connection.row("select 1 from chunk_vectors limit 1"):
            ours = name if dimension is None else f"{name} ({dimension})"
            raise EmbedderMismatch(
                f"the database holds vectors of {known.embedder} ({known.dimension} dimensions), the embedder here is"
                f" {ours}; set KURA_EMBEDDER to the former, or re-embed everything with"
                " `kura index NAME --rebuild`"
            )
        if dimension is None:
            return
        # What an earlier embedder left packed, though nothing of it is alive, must not be read as of this one.
        _forget_vectors(connection)
        connection.run("update state set embedder = ?, dimension = ? where id = 1", (name, dimension))
        _bump(connection)


def clear_vectors(connection: Connection) -> None:
    """Drop all vectors and the claim of their embedder; every chunk waits for a new one. Keyword search goes on."""
    with connection.transaction():
        connection.run("update chunks set vector_id = null where vector_id is not null")
        _forget_vectors(connection)
        connection.run("update state set embedder = null, dimension = null where id = 1")
        _bump(connection)


def set_tokenizer(connection: Connection) -> None:
    """Record, once every source was indexed with it, that the tokens are of this Kura's tokeniser."""
    with connection.transaction():
        if connection.run("update state set tokenizer = ? where id = 1 and tokenizer <> ?", (TOKENIZER_VERSION,) * 2):
            _bump(connection)


def find_root(connection: Connection, name: str) -> Root:
    """The root of that label or path.

    Raises:
        ArgumentError: if there is none.
    """
    known = roots(connection)
    for root in known:
        if name in (root.label, root.path):
            return root
    labels = ", ".join(f'"{root.label}"' for root in known) or "none"
    raise ArgumentError(f'invalid argument: no folder "{name}" is registered; registered: {labels}')


def _bump(connection: Connection) -> int:
    return int(connection.one("update state set version = version + 1 where id = 1 returning version")[0])


def _forget_vectors(connection: Connection) -> None:
    for table in ("segments", "removed_vectors", "chunk_vectors"):
        connection.run(f"delete from {table}")
    connection.run("update state set centre = null, generation = generation + 1 where id = 1")


def _vector_id(connection: Connection, digest: str, vector: Vector | None, dimension: int | None) -> int | None:
    known = connection.row("select id from chunk_vectors where text_hash = ?", (digest,))
    if known:
        return int(known[0])
    if vector is None:
        return None
    if dimension is None or vector.shape != (dimension,):
        raise EmbedderError(f"the embedder gave a vector of shape {vector.shape}; the database needs ({dimension},)")
    if not np.isfinite(vector).all() or not vector.any():
        raise EmbedderError("the embedder gave a vector that is zero or not finite")
    vector_id = connection.insert(
        "insert into chunk_vectors (text_hash, embedding) values (?, ?)", (digest, to_bytes(vector))
    )
    # The same text in other sources may have waited for it.
    connection.run("update chunks set vector_id = ? where text_hash = ? and vector_id is null", (vector_id, digest))
    return vector_id


def _drop_sources(connection: Connection, source_ids: Sequence[int], version: int) -> None:
    for source_id in source_ids:
        stale = _clear_chunks(connection, source_id)
        connection.run("delete from sources where id = ?", (source_id,))
        _drop_orphans(connection, stale, version)


def _clear_chunks(connection: Connection, source_id: int) -> set[int]:
    """Delete a source's chunks; returns the vectors that they had."""
    rows = connection.rows("select id, tokens, vector_id from chunks where source_id = ?", (source_id,))
    for chunk_id, words, _ in rows:
        # An index over external content has to be told what it forgets.
        connection.run("insert into chunks_fts (chunks_fts, rowid, tokens) values ('delete', ?, ?)", (chunk_id, words))
    connection.run("delete from chunks where source_id = ?", (source_id,))
    return {row[2] for row in rows if row[2] is not None}


def _drop_orphans(connection: Connection, vector_ids: Iterable[int], version: int) -> None:
    for vector_id in vector_ids:
        if connection.row("select 1 from chunks where vector_id = ? limit 1", (vector_id,)) is None:
            connection.run("delete from chunk_vectors where id = ?", (vector_id,))
            connection.run("insert into removed_vectors (vector_id, version) values (?, ?)", (vector_id, version))
