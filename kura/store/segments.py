"""Vectors for a reading process: packed segments to start from, and the difference to catch up by."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kura.errors import Damaged
from kura.store.engine import Connection, Row, rows_per_answer
from kura.store.sources import State, Statistics, state, statistics
from kura.vectors.codec import CODEC, Floats, centre_of, from_bytes, pack, repacked, to_bytes, unpack
from kura.vectors.matrix import Matrix

SEGMENT_ROWS = 1024

_SAMPLE = 1024
_CENTRED = 0.97  # cosine of centre and mean down to which packing is as good as it gets


@dataclass(frozen=True, slots=True)
class Vectors:
    """A database's vectors as of one version, with the counts of that version.

    `matrix` is None where no embedder has come yet.
    """

    state: State
    counts: Statistics
    matrix: Matrix | None


def seal(connection: Connection) -> None:
    """Pack what is not in a segment yet, and pack all anew where too much is gone or the vectors' centre has moved.

    Called at the end of a run of indexing. Readers that follow by difference need not notice; where all is packed anew,
    `generation` goes up, and they load everything once.

    Raises:
        Damaged: if a vector does not have the form that the database says.
    """
    with connection.transaction():
        packed, above = connection.one("select coalesce(sum(count), 0), coalesce(max(last_id), 0) from segments")
        (gone,) = connection.one("select count(*) from removed_vectors")
        much_gone = gone * 4 > max(packed, SEGMENT_ROWS)
        if not much_gone and connection.row("select 1 from chunk_vectors where id > ?", (above,)) is None:
            return
        dimension = state(connection).dimension
        if dimension is None:
            raise Damaged("the database holds vectors but does not say of which embedder")
        centre = _centre(connection, dimension)
        mean = centre_of(_sample(connection, dimension))
        moved = float(mean @ centre) < _CENTRED and (mean.any() or centre.any())
        if much_gone or moved:
            connection.run("delete from segments")
            connection.run("delete from removed_vectors")
            connection.run(
                "update state set centre = ?, generation = generation + 1, version = version + 1 where id = 1",
                (to_bytes(mean),),
            )
            centre = mean
        _pack_rest(connection, dimension, centre)


def load(connection: Connection, known: Vectors | None = None) -> Vectors:
    """All vectors of the database, or, where some are `known`, those plus the difference.

    To be called inside one read transaction. Rows outside of segments are read through the same packing, so no score
    depends on how far packing has come.

    Raises:
        Damaged: if a segment or row does not have the form that the database says.
    """
    current = state(connection)
    if known is not None and known.state == current:
        return known
    counts = statistics(connection)
    if current.dimension is None:
        return Vectors(current, counts, None)
    if known is not None and known.matrix is not None and _follows(current, known.state):
        matrix, seen = known.matrix, known.state.version
    else:
        matrix, seen = packed(connection, current.dimension), -1
    limit = min(4096, rows_per_answer(4 * current.dimension))
    while rows := connection.rows(
        "select id, embedding from chunk_vectors where id > ? order by id limit ?", (matrix.last_id, limit)
    ):
        matrix = matrix.extended(np.array([row[0] for row in rows], np.int64), _loose(connection, current, rows))
    removed = connection.rows("select vector_id from removed_vectors where version > ?", (seen,))
    return Vectors(current, counts, matrix.without(row[0] for row in removed))


def _follows(current: State, known: State) -> bool:
    # Another time of creation, or a version that goes back: another file was put in this one's place.
    return (
        (current.generation, current.created_at) == (known.generation, known.created_at)
        and (current.embedder, current.dimension) == (known.embedder, known.dimension)
        and current.version > known.version
    )


def _loose(connection: Connection, current: State, rows: Sequence[Row]) -> Floats:
    """The numbers of rows that are not in the matrix yet, through the same packing as those in segments.

    On a server a row's numbers may be gone into a segment since the matrix was loaded.
    """
    dimension = current.dimension or 0
    bare = [row[0] for row in rows if not row[1]]
    if not bare:
        return repacked(_matrix([row[1] for row in rows], dimension), _centre(connection, dimension))
    inside = packed(connection, dimension, above=bare[0] - 1)
    zero = bytes(4 * dimension)
    numbers = repacked(_matrix([row[1] or zero for row in rows], dimension), _centre(connection, dimension))
    for place, (vector_id, embedding) in enumerate(rows):
        if not embedding:
            found = inside.row(vector_id)
            if found is None:
                raise _damaged("a vector has its numbers nowhere")
            numbers[place] = found
    return numbers


def packed(connection: Connection, dimension: int, *, above: int = -1) -> Matrix:
    """The vectors that are in segments, of those segments that hold an id above the given one.

    Raises:
        Damaged: if a segment does not have the form that the database says.
    """
    (count,) = connection.one("select coalesce(sum(count), 0) from segments where last_id > ?", (above,))
    ids, rows, filled = np.empty(count, np.int64), np.empty((count, dimension), np.float32), 0
    centre = _centre(connection, dimension)
    for codec, size, raw_ids, raw_scales, raw_along, raw_codes in _pages(connection, dimension, above):
        end = filled + size
        if codec != CODEC or len(raw_ids) != 8 * size or not len(raw_scales) == len(raw_along) == 4 * size:
            raise _damaged("a segment of vectors cannot be read")
        if len(raw_codes) != size * dimension:
            raise _damaged(f"a segment of vectors does not hold {dimension} dimensions")
        ids[filled:end] = np.frombuffer(raw_ids, "<i8")
        scales, along = np.frombuffer(raw_scales, "<f4"), np.frombuffer(raw_along, "<f4")
        if not np.isfinite([scales, along]).all():
            raise _damaged("a segment of vectors holds what is no number")
        codes = np.frombuffer(raw_codes, np.int8).reshape(size, dimension)
        unpack(scales, along, codes, centre, rows[filled:end])
        filled = end
    if not (ids[1:] > ids[:-1]).all():
        raise _damaged("the segments of vectors overlap")
    return Matrix(dimension, ids, rows)


def _pages(connection: Connection, dimension: int, above: int) -> Iterator[Row]:
    limit = rows_per_answer(SEGMENT_ROWS * (dimension + 16))
    while page := connection.rows(
        """
        select codec, count, ids, scales, along, codes, last_id from segments where last_id > ? order by last_id limit ?
        """,
        (above, limit),
    ):
        above = page[-1][-1]
        for row in page:
            yield row[:-1]


def _pack_rest(connection: Connection, dimension: int, centre: Floats) -> None:
    """Write segments of all rows above those that have one."""
    # A last segment that is not full is packed again together with the new rows, so that few are small.
    last = connection.row("select id, first_id, last_id, count from segments order by last_id desc limit 1")
    above = last[2] if last else 0
    if last and last[3] < SEGMENT_ROWS:
        connection.run("delete from segments where id = ?", (last[0],))
        above = last[1] - 1
    while rows := connection.rows(
        "select id, embedding from chunk_vectors where id > ? order by id limit ?", (above, SEGMENT_ROWS)
    ):
        ids = np.array([row[0] for row in rows], "<i8")
        scales, along, codes = pack(_matrix([row[1] for row in rows], dimension), centre)
        connection.run(
            """
            insert into segments (codec, first_id, last_id, count, ids, scales, along, codes)
            values (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (
                CODEC,
                rows[0][0],
                rows[-1][0],
                len(rows),
                ids.tobytes(),
                to_bytes(scales),
                to_bytes(along),
                codes.tobytes(),
            ),
        )
        above = rows[-1][0]


def _centre(connection: Connection, dimension: int) -> Floats:
    (centre,) = connection.one("select centre from state where id = 1")
    return np.zeros(dimension, np.float32) if centre is None else _matrix([centre], dimension)[0]


def _sample(connection: Connection, dimension: int) -> Floats:
    """Rows from all over the table, which is not read as a whole for it."""
    first, last = connection.one("select coalesce(min(id), 0), coalesce(max(id), -1) from chunk_vectors")
    ids = range(first, last + 1, max(1, (last + 1 - first) // _SAMPLE))
    rows = connection.rows(
        """
        select embedding from chunk_vectors
        where id in (select (select min(id) from chunk_vectors where id >= value) from json_each(?))
        """,
        (json.dumps(list(ids)),),
    )
    return _matrix([row[0] for row in rows], dimension)


def _matrix(blobs: list[bytes], dimension: int) -> Floats:
    try:
        return from_bytes(blobs, dimension)
    except ValueError as error:
        raise _damaged(str(error)) from error


def _damaged(what: str) -> Damaged:
    return Damaged(f"{what}; the operator can run `kura index NAME --rebuild`")
