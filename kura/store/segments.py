"""Vectors for a reading process: packed segments to start from, and the difference to catch up by."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kura.errors import Busy, Damaged, StoreError
from kura.store.engine import Connection, Row, rows_per_answer
from kura.store.sources import STATE, STATISTICS, State, Statistics, state
from kura.vectors.codec import CODEC, Floats, centre_of, from_bytes, pack, repacked, to_bytes, unpack
from kura.vectors.matrix import Matrix
from kura.vectors.room import Allocate, in_files, in_memory

Place = Literal["memory", "file", "server", "nowhere"]

SEGMENT_ROWS = 1024

_TRIES = 3
_SAMPLE = 1024
_CENTRED = 0.97  # cosine of centre and mean down to which packing is as good as it gets

_CENTRE = "select centre from state where id = 1"
_GENERATION = "(select generation from state where id = 1)"
_SEGMENTS = f"""
  select codec, count, ids, scales, along, codes, {_GENERATION}
  from segments where id in (select value from json_each(?)) order by first_id
"""


@dataclass(frozen=True, slots=True)
class Vectors:
    """A database's vectors as of one version, with the counts of that version.

    Attributes:
        state: Of that version.
        counts: The same.
        matrix: None where no embedder has come yet, or the vectors are not here.
        place: Where they are: in `memory`, in a `file` that is mapped into it, or on the `server`, which compares them
            itself; `nowhere` where there are too many for memory and the server does not have them one by one.
    """

    state: State
    counts: Statistics
    matrix: Matrix | None
    place: Place = "memory"


@dataclass(frozen=True, slots=True)
class Room:
    """What a process has for the vectors of one database.

    Attributes:
        memory: Bytes of memory; beyond that they are elsewhere.
        directory: Where files are made that are mapped into memory; None where the database is on a server, which
            then compares them.
    """

    memory: int
    directory: Path | None


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
        axis = centre(connection, dimension)
        mean = centre_of(_sample(connection, dimension))
        moved = float(mean @ axis) < _CENTRED and (mean.any() or axis.any())
        if much_gone or moved:
            connection.run("delete from segments")
            connection.run("delete from removed_vectors")
            connection.run(
                "update state set centre = ?, generation = generation + 1, version = version + 1 where id = 1",
                (to_bytes(mean),),
            )
            axis = mean
        _pack_rest(connection, dimension, axis)


def load(connection: Connection, known: Vectors | None = None, room: Room | None = None) -> Vectors:
    """All vectors of the database, or, where some are `known`, those plus the difference.

    Needs no transaction around it: what is read in several requests belongs together as long as the generation is the
    same, and is read anew where it is not. Rows outside of segments are read through the same packing, so no score
    depends on how far packing has come.

    Args:
        connection: For reading.
        known: What was loaded before.
        room: What there is for them; None is memory without end.

    Raises:
        Damaged: if a segment or row does not have the form that the database says.
        Busy: if new generations kept coming.
        StoreError: if there is no space for a file that is needed.
    """
    for _ in range(_TRIES):
        try:
            return _loaded(connection, known, room)
        except _Moved:
            known = None
        except OSError as error:
            raise StoreError(f"there is no room for a file of vectors: {error.strerror}") from error
    raise Busy("new generations of the database kept coming while its vectors were read; try again")


class _Moved(Exception):
    """A generation ended while its vectors were read."""


def _loaded(connection: Connection, known: Vectors | None, room: Room | None) -> Vectors:
    current = state(connection)
    if known is not None and known.state == current:
        return known
    seen, matrix = -1, None
    if known is not None and known.matrix is not None and _follows(current, known.state):
        matrix, seen = known.matrix, known.state.version
    described, counted, (centre,), removed = connection.together(
        [
            (STATE, ()),
            (STATISTICS, ()),
            (_CENTRE, ()),
            ("select vector_id from removed_vectors where version > ?", (seen,)),
        ]
    )
    if State(*described[0]).generation != current.generation:
        raise _Moved
    current, counts = State(*described[0]), Statistics(*counted[0])
    if current.dimension is None:
        return Vectors(current, counts, None)
    allocate, place = in_memory, place_of(counts.vectors, current.dimension, room)
    if place == "server":
        (whole,) = connection.one("select all_vectors from publication where id = 1")
        return Vectors(current, counts, None, "server" if whole else "nowhere")
    if place == "file" and room is not None and room.directory is not None:
        allocate = in_files(room.directory)
    if known is not None and known.place != place and matrix is not None:
        raise _Moved  # it has outgrown its place, or fits again: from the start
    axis = _axis(centre[0], current.dimension)
    if matrix is None:
        matrix = packed(connection, current, axis, allocate=allocate)
    limit = min(4096, rows_per_answer(4 * current.dimension))
    while rows := connection.rows(
        f"select id, embedding, {_GENERATION} from chunk_vectors where id > ? order by id limit ?",
        (matrix.last_id, limit),
    ):
        _require(current, rows)
        ids = np.array([row[0] for row in rows], np.int64)
        matrix = matrix.extended(ids, _loose(connection, current, axis, rows))
    return Vectors(current, counts, matrix.without(row[0] for row in removed), place)


def place_of(count: int, dimension: int, room: Room | None) -> Place:
    """Where so many vectors are held, if there is that much room."""
    if room is None or 4 * count * dimension <= room.memory:
        return "memory"
    return "server" if room.directory is None else "file"


def _follows(current: State, known: State) -> bool:
    # Another time of creation, or a version that goes back: another file was put in this one's place.
    return (
        (current.generation, current.created_at) == (known.generation, known.created_at)
        and (current.embedder, current.dimension) == (known.embedder, known.dimension)
        and current.version > known.version
    )


def _require(current: State, rows: Sequence[Row]) -> None:
    """Check that what was read, each row with the generation at its end, is of the generation that is being loaded."""
    if any(row[-1] != current.generation for row in rows):
        raise _Moved


def _loose(connection: Connection, current: State, axis: Floats, rows: Sequence[Row]) -> Floats:
    """The numbers of rows that are not in the matrix yet, through the same packing as those in segments.

    On a server a row's numbers may be gone into a segment since the matrix was loaded.
    """
    dimension = axis.shape[0]
    zero = bytes(4 * dimension)
    numbers = repacked(_matrix([row[1] or zero for row in rows], dimension), axis)
    bare = [place for place, row in enumerate(rows) if not row[1]]
    if bare:
        inside = packed(connection, current, axis, above=rows[bare[0]][0] - 1)
        for place in bare:
            found = inside.row(rows[place][0])
            if found is None:
                raise _damaged("a vector has its numbers nowhere")
            numbers[place] = found
    return numbers


def packed(
    connection: Connection, current: State, axis: Floats, *, above: int = -1, allocate: Allocate = in_memory
) -> Matrix:
    """The vectors that are in segments, of those segments that hold an id above the given one.

    Raises:
        Damaged: if a segment does not have the form that the database says.
    """
    dimension = axis.shape[0]
    sizes = connection.rows(
        f"select id, count, {_GENERATION} from segments where last_id > ? order by first_id", (above,)
    )
    _require(current, sizes)
    count = sum(row[1] for row in sizes)
    ids, rows, filled = np.empty(count, np.int64), allocate(count, dimension), 0
    step = rows_per_answer(SEGMENT_ROWS * (dimension + 16))
    pages = [json.dumps([row[0] for row in sizes[start : start + step]]) for start in range(0, len(sizes), step)]
    for page in connection.apart([(_SEGMENTS, (page,)) for page in pages]):
        _require(current, page)
        for codec, size, raw_ids, raw_scales, raw_along, raw_codes, _ in page:
            end = filled + size
            if codec != CODEC or len(raw_ids) != 8 * size or not len(raw_scales) == len(raw_along) == 4 * size:
                raise _damaged("a segment of vectors cannot be read")
            if len(raw_codes) != size * dimension:
                raise _damaged(f"a segment of vectors does not hold {dimension} dimensions")
            if end > count:
                raise _Moved
            ids[filled:end] = np.frombuffer(raw_ids, "<i8")
            scales, along = np.frombuffer(raw_scales, "<f4"), np.frombuffer(raw_along, "<f4")
            if not np.isfinite([scales, along]).all():
                raise _damaged("a segment of vectors holds what is no number")
            codes = np.frombuffer(raw_codes, np.int8).reshape(size, dimension)
            unpack(scales, along, codes, axis, rows[filled:end])
            filled = end
    if filled != count:
        raise _Moved  # the last segment was packed anew
    if not (ids[1:] > ids[:-1]).all():
        raise _damaged("the segments of vectors overlap")
    return Matrix(dimension, ids, rows, allocate=allocate)


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


def centre(connection: Connection, dimension: int) -> Floats:
    """What the segments are packed around, shape (dimension,)."""
    return _axis(connection.one(_CENTRE)[0], dimension)


def _axis(stored: bytes | None, dimension: int) -> Floats:
    return np.zeros(dimension, np.float32) if stored is None else _matrix([stored], dimension)[0]


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
