"""Vectors for a reading process: packed segments to start from, and the difference to catch up by."""

from dataclasses import dataclass

import numpy as np

from kura.errors import Damaged
from kura.store.sources import State, state
from kura.store.sqlite import Connection
from kura.vectors.codec import CODEC, from_bytes, pack, repacked, unpack
from kura.vectors.matrix import Matrix

SEGMENT_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Vectors:
    """A database's vectors as of one version. `matrix` is None where no vector was ever stored."""

    state: State
    matrix: Matrix | None


def seal(connection: Connection) -> None:
    """Pack what is not in a segment yet, and pack anew where too much of the segments is gone.

    Called at the end of a run of indexing. Readers that follow by difference need not notice; when ids are taken out
    of `removed_vectors` for good, `generation` goes up, and they load everything once.
    """
    with connection.transaction():
        (packed,) = connection.one("select coalesce(sum(count), 0) from segments")
        (gone,) = connection.one("select count(*) from removed_vectors")
        if gone * 4 > max(packed, SEGMENT_ROWS):
            connection.run("delete from segments")
            connection.run("delete from removed_vectors")
            connection.run("update state set generation = generation + 1, version = version + 1 where id = 1")
        # A last segment that is not full is packed again together with the new rows, so that few are small.
        last = connection.row("select id, first_id, last_id, count from segments order by last_id desc limit 1")
        above = last[2] if last else 0
        if connection.row("select 1 from chunk_vectors where id > ?", (above,)) is None:
            return
        if last and last[3] < SEGMENT_ROWS:
            connection.run("delete from segments where id = ?", (last[0],))
            above = last[1] - 1
        dimension = state(connection).dimension
        if dimension is None:
            raise Damaged("the database holds vectors but does not say of which embedder")
        while rows := connection.rows(
            "select id, embedding from chunk_vectors where id > ? order by id limit ?", (above, SEGMENT_ROWS)
        ):
            _write_segment(connection, rows, dimension)
            above = rows[-1][0]


def load(connection: Connection, known: Vectors | None = None) -> Vectors:
    """All vectors of the database, or, where some are `known`, those plus the difference.

    To be called inside one read transaction. Rows outside of segments are read through the same packing, so no score
    depends on how far packing has come.

    Raises:
        Damaged: if a segment or row does not have the form that the database says.
    """
    current = state(connection)
    if current.dimension is None:
        return Vectors(current, None)
    if known is None or known.matrix is None or known.state.generation != current.generation:
        matrix, seen = _from_segments(connection, current.dimension), -1
    elif known.state.version == current.version:
        return known
    else:
        matrix, seen = known.matrix, known.state.version
    while rows := connection.rows(
        "select id, embedding from chunk_vectors where id > ? order by id limit 4096", (matrix.last_id,)
    ):
        try:
            vectors = repacked(from_bytes([row[1] for row in rows], current.dimension))
        except ValueError as error:
            raise Damaged(f"{error}; run `kura index NAME --rebuild`") from error
        matrix = matrix.extended(np.array([row[0] for row in rows], np.int64), vectors)
    removed = connection.rows("select vector_id from removed_vectors where version > ?", (seen,))
    return Vectors(current, matrix.without(row[0] for row in removed))


def _from_segments(connection: Connection, dimension: int) -> Matrix:
    (count,) = connection.one("select coalesce(sum(count), 0) from segments")
    ids, rows, filled = np.empty(count, np.int64), np.empty((count, dimension), np.float32), 0
    for codec, size, raw_ids, raw_scales, raw_codes in connection.iterate(
        "select codec, count, ids, scales, codes from segments order by first_id"
    ):
        end = filled + size
        if codec != CODEC or len(raw_ids) != 8 * size or len(raw_scales) != 4 * size:
            raise Damaged("a segment of vectors cannot be read; run `kura index NAME --rebuild`")
        if len(raw_codes) != size * dimension:
            raise Damaged(f"a segment does not hold {dimension} dimensions; run `kura index NAME --rebuild`")
        ids[filled:end] = np.frombuffer(raw_ids, "<i8")
        codes = np.frombuffer(raw_codes, np.int8).reshape(size, dimension)
        unpack(np.frombuffer(raw_scales, "<f4"), codes, rows[filled:end])
        filled = end
    return Matrix(dimension, ids, rows)


def _write_segment(connection: Connection, rows: list[tuple[int, bytes]], dimension: int) -> None:
    ids = np.array([row[0] for row in rows], "<i8")
    scales, codes = pack(from_bytes([row[1] for row in rows], dimension))
    connection.run(
        "insert into segments (codec, first_id, last_id, count, ids, scales, codes) values (?, ?, ?, ?, ?, ?, ?)",
        (CODEC, rows[0][0], rows[-1][0], len(rows), ids.tobytes(), scales.astype("<f4").tobytes(), codes.tobytes()),
    )
