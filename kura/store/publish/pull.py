"""Taking a published knowledge base into a local database, which then descends from that push."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from kura.errors import Conflict, Damaged, StoreError, WrongSchema
from kura.store.engine import ANSWER_BYTES, Connection, Row, rows_per_answer
from kura.store.migrations import MIGRATIONS, applied_version
from kura.store.policies import policies, replacing
from kura.store.publish.descent import remember
from kura.store.publish.difference import MOST_ROWS
from kura.store.publish.published import KEYS, Publication, publication
from kura.store.publish.staging import Progress
from kura.store.segments import SEGMENT_ROWS, centre, packed
from kura.store.sources import state
from kura.vectors.codec import to_bytes
from kura.vectors.matrix import Matrix

_TRIES = 3
_COLUMNS = {
    "roots": "id, label, path, device",
    "sources": "id, root_id, path, content_hash, size, mtime_ns, indexed_at",
    "segments": "id, codec, first_id, last_id, count, ids, scales, along, codes",
    "chunk_vectors": "id, text_hash, embedding",
    "chunks": "id, source_id, ordinal, heading, first_line, last_line, content, tokens, text_hash, vector_id",
    "removed_vectors": "vector_id, version",
}


def pull(remote: Connection, local: Connection, url: str, told: Progress) -> Publication:
    """Put what is published in the place of all that a local database holds, in one transaction.

    Args:
        remote: Where from; nothing is written.
        local: A database with this Kura's schema.
        url: What to note as its origin.
        told: Called with how many rows of how many have come.

    Returns:
        What was pulled.

    Raises:
        StoreError: if nothing is published there.
        WrongSchema: if this Kura cannot take it over.
        Conflict: if pushes kept coming in between.
    """
    for _ in range(_TRIES):
        found = publication(remote)
        if found is None:
            raise StoreError("nothing is published there")
        schema = applied_version(remote)
        if schema != MIGRATIONS[-1].version:
            raise WrongSchema(
                f"published with schema {schema}, this Kura has schema {MIGRATIONS[-1].version}; publish it once with"
                " this Kura from where it is indexed"
            )
        with suppress(_Moved), local.transaction():
            _replace(_Still(remote, found.token), local, found, told)
            # What it descended from before has other rows under the same ids.
            local.run("delete from publications")
            remember(local, found.token, url)
            return found
    raise Conflict("pushes kept coming while it was pulled; try again")


class _Moved(Exception):
    """Another push came while this one was read."""


class _Still:
    """Reads a server as long as it is of the version that it was of at first."""

    def __init__(self, remote: Connection, token: str) -> None:
        self._remote = remote
        # The token alone does not tell: a rollback brings it back.
        self._version = token, state(remote).version

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return all its rows.

        Raises:
            _Moved: if they are of another version.
        """
        version = "select (select token from publication), (select version from state)"
        [of], rows = self._remote.together([(version, ()), (sql, params)])
        if of != self._version:
            raise _Moved
        return rows


def _replace(remote: _Still, local: Connection, found: Publication, told: Progress) -> None:
    [about] = remote.rows("select tokenizer, embedder, dimension, centre, created_at from state where id = 1")
    dimension = about[2]
    [counts] = remote.rows("select " + ", ".join(f"(select count(*) from {table})" for table in _COLUMNS))
    total, done = sum(counts), 0
    local.run("insert into chunks_fts (chunks_fts) values ('delete-all')")
    for table in ("chunks", "chunk_vectors", "segments", "removed_vectors", "sources", "roots"):
        local.run(f"delete from {table}")
    local.run(
        """
        update state set generation = generation + 1, version = version + 1, tokenizer = ?, embedder = ?, dimension = ?,
          centre = ?, created_at = ?
        where id = 1
        """,
        about,
    )
    vectors: Matrix | None = None
    for table, columns in _COLUMNS.items():
        width = columns.count(",") + 1
        insert = f"insert into {table} ({columns}) values ({', '.join('?' * width)})"
        for page in _pages(remote, table, columns, dimension or 1):
            rows = page
            if table == "chunk_vectors":
                if vectors is None and dimension is not None:
                    vectors = packed(local, state(local), centre(local, dimension))
                rows = [_with_numbers(row, vectors) for row in page]
            local.many(insert, rows)
            done += len(page)
            told(done, total)
    local.run("insert into chunks_fts (chunks_fts) values ('rebuild')")
    for sql, params in replacing(policies(remote)):
        local.run(sql, params)
    for table, last in found.last_ids.items():
        if table in _COLUMNS:
            # What was given once, there or here, is never given again: somebody may still hold it.
            (given,) = local.one("select coalesce(max(seq), 0) from sqlite_sequence where name = ?", (table,))
            local.run("delete from sqlite_sequence where name = ?", (table,))
            local.run("insert into sqlite_sequence (name, seq) values (?, ?)", (table, max(given, last)))


def _pages(remote: _Still, table: str, columns: str, dimension: int) -> Iterator[list[Row]]:
    width = {"segments": SEGMENT_ROWS * (dimension + 16), "chunk_vectors": 4 * dimension}.get(table, 0)
    key, last, limit = KEYS.get(table, "id"), -1, min(MOST_ROWS, rows_per_answer(width))
    page = f"select {columns} from {table} where {key} > ? order by {key} limit ?"
    given: tuple[int, ...] = ()
    if table == "chunks":
        # How long passages are is up to whoever wrote the files.
        size = "length(cast(content as blob)) + length(cast(tokens as blob))"
        page = f"""
          select {columns} from (
            select *, {size} as size, sum({size}) over (order by id) as so_far
            from (select * from chunks where id > ? order by id limit ?)
          )
          where so_far <= ? or so_far = size order by id
        """
        given = (ANSWER_BYTES,)
    while rows := remote.rows(page, (last, limit, *given)):
        yield rows
        last = rows[-1][0]


def _with_numbers(row: Row, vectors: Matrix | None) -> Row:
    """A vector's row with its numbers, which the server may have in a segment alone."""
    vector_id, text_hash, embedding = row
    if embedding:
        return row
    numbers = None if vectors is None else vectors.row(vector_id)
    if numbers is None:
        raise Damaged("the server lacks the numbers of a vector; publish again from where it is indexed")
    return vector_id, text_hash, to_bytes(numbers)
