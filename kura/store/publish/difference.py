"""What a local database has and a server has not, and the other way round, by the ids of rows.

Rows of knowledge never change under their id, so ids that both have need not be looked at. A server tells its ids as
runs of consecutive ones, which are few however many rows there are.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kura.store.engine import Connection, Row, Statement
from kura.store.publish.published import KEYS
from kura.store.segments import SEGMENT_ROWS

Ids = NDArray[np.int64]

MOST_BYTES = 1_000_000
"""Bytes of values that one request carries, give or take a row."""

MOST_ROWS = 500
"""Rows that one statement inserts; each of their values is a parameter of it."""

_MOST_SEGMENT = 4_500_000  # bytes; a server takes no row above five million

_COLUMNS = {
    # Absolute paths stay on the machine that indexes.
    "roots": "id, label, label, null",
    "sources": "id, root_id, path, content_hash, size, mtime_ns, indexed_at",
    "chunk_vectors": "id, text_hash, case when id > :above then embedding else x'' end",
    "chunks": "id, source_id, ordinal, heading, first_line, last_line, content, tokens, text_hash, vector_id",
    "segments": "id, codec, first_id, last_id, count, ids, scales, along, codes",
}


ROWS = ("roots", "sources", "chunk_vectors", "segments", "chunks")
"""The tables whose rows travel, in the order in which they do: passages look for their vectors."""


ALL = (*ROWS, "removed_vectors")
"""The same, and the one whose rows are made there."""


@dataclass(frozen=True, slots=True)
class Content:
    """The ids of what a local database has to publish, each sorted.

    Attributes:
        ids: By table.
        above: Vectors up to this id are in the segments that are published, so that they need no row with numbers;
            -1 where each is to have one.
    """

    ids: dict[str, Ids]
    above: int


@dataclass(frozen=True, slots=True)
class Change:
    """Ids of one table that are to come and to go."""

    added: Ids
    removed: Ids

    def __bool__(self) -> bool:
        return bool(len(self.added) or len(self.removed))


def content(local: Connection, dimension: int | None, *, all_vectors: bool) -> Content:
    """What there is to publish. To be called, like all that reads what it names, inside one read transaction.

    Segments are published once they are full, for they never change then; the vectors above them travel one by one.
    """
    fits = dimension is not None and SEGMENT_ROWS * (dimension + 16) <= _MOST_SEGMENT
    full = local.rows("select id, last_id from segments where count = ? order by id", (SEGMENT_ROWS,)) if fits else []
    ids = {
        table: _array(local.rows(f"select {KEYS.get(table, 'id')} from {table} order by 1"))
        for table in ("roots", "sources", "chunk_vectors", "chunks", "removed_vectors")
    }
    ids["segments"] = _array(full)
    last = max((row[1] for row in full), default=-1)
    return Content(ids, -1 if all_vectors else last)


def remote_ids(remote: Connection, tables: Sequence[str], prefix: str = "") -> dict[str, Ids]:
    """The ids that a server has in these tables, sorted."""
    queries = [(_runs(prefix + table, KEYS.get(table, "id")), ()) for table in tables]
    found: dict[str, Ids] = {}
    for table, runs in zip(tables, remote.together(queries), strict=True):
        found[table] = np.concatenate(
            [np.arange(first, last + 1, dtype=np.int64) for first, last in runs] or [np.empty(0, np.int64)]
        )
    return found


def difference(ours: Ids, theirs: Ids) -> Change:
    """What brings `theirs` to `ours`."""
    return Change(np.setdiff1d(ours, theirs, assume_unique=True), np.setdiff1d(theirs, ours, assume_unique=True))


def rows_of(local: Connection, table: str, ids: Ids, above: int) -> Iterator[Row]:
    """The rows of a table with these ids, in order, with the columns that the published table has."""
    step = 1 if table == "segments" else MOST_ROWS  # segments have up to megabytes each
    for start in range(0, len(ids), step):
        some = as_json(ids[start : start + step])
        columns, given = _COLUMNS[table], (some,)
        if ":above" in columns:
            columns, given = columns.replace(":above", "?"), (above, some)
        yield from local.rows(
            f"select {columns} from {table} where id in (select value from json_each(?)) order by id", given
        )


def batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows as they fit into one request."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += weight(row)
        if size >= MOST_BYTES or len(batch) == MOST_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def weight(row: Row) -> int:
    """Bytes that a row takes in a request, roughly."""
    return sum(_weight(value) for value in row)


def insert(table: str, rows: Sequence[Row]) -> Statement:
    """One statement that puts these rows into a table."""
    row = f"({', '.join('?' * len(rows[0]))})"
    return f"insert or replace into {table} values {', '.join([row] * len(rows))}", [v for r in rows for v in r]


def as_json(ids: Ids | Sequence[int]) -> str:
    """Ids as one value, which `json_each` takes apart."""
    return json.dumps(ids.tolist() if isinstance(ids, np.ndarray) else list(ids))


def _weight(value: object) -> int:
    if isinstance(value, str):
        return 40 + (len(value) if value.isascii() else len(value.encode("utf-8", "replace")))
    return 40 + len(value) * 4 // 3 if isinstance(value, bytes) else 40


def _runs(table: str, key: str) -> str:
    # In a run of consecutive ids, the distance to their rank is the same.
    return f"""
      select min(id), max(id) from (select {key} as id, {key} - row_number() over (order by {key}) as run from {table})
      group by run order by 1
    """


def _array(rows: Sequence[Row]) -> Ids:
    return np.array([row[0] for row in rows], np.int64)
