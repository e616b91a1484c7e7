from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.errors import Damaged
from kura.store import sqlite
from kura.store.catalog import Catalog
from kura.store.engine import Connection, Row
from kura.store.segments import SEGMENT_ROWS, Vectors, load, seal
from kura.store.sources import (
    add_root,
    clear_vectors,
    remove_sources,
    replace_source,
    set_embedder,
    sources,
    state,
    text_hash,
)
from kura.vectors.codec import repacked
from tests.store.places import Place, in_a_file, on_a_server
from tests.store.writing import chunks_of, reading, writing

D = 4


def vector_of(text: str) -> NDArray[np.float32]:
    """In a cone around the first axis, or for texts that say so, around another one."""
    row = np.random.default_rng(int(text_hash(text)[:8], 16)).standard_normal(D).astype(np.float32)
    row[1 if text.startswith("elsewhere") else 0] += 4
    return row / np.float32(np.linalg.norm(row))


def put(connection: Connection, path: str, texts: Sequence[str]) -> None:
    set_embedder(connection, "random", D)
    root = add_root(connection, "/files", "files")
    vectors = {text_hash(text): vector_of(text) for text in texts}
    chunks = chunks_of(texts)
    replace_source(connection, root.id, path, content_hash="x", size=1, mtime_ns=1, chunks=chunks, vectors=vectors)


def remove(connection: Connection, path: str) -> None:
    root = add_root(connection, "/files", "files")
    remove_sources(connection, [sources(connection, root.id)[path].id])


def texts_of(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {n}" for n in range(count)]


def read(place: Place, known: Vectors | None = None) -> Vectors:
    with closing(place.read()) as connection, connection.transaction(write=False):
        return load(connection, known)


def held(vectors: Vectors) -> dict[int, float]:
    assert vectors.matrix is not None
    ids, scores = vectors.matrix.nearest(np.arange(1, D + 1, dtype=np.float32), 1_000_000)
    return dict(zip(ids.tolist(), scores.tolist(), strict=True))


def numbers(vectors: Vectors) -> dict[int, bytes | None]:
    """Bit by bit. A score also depends, in its last bit, on where in the matrix BLAS meets the row."""
    assert vectors.matrix is not None
    matrix = vectors.matrix
    return {key: None if (row := matrix.row(key)) is None else row.tobytes() for key in held(vectors)}


def stored(connection: Connection) -> dict[int, float]:
    rows = connection.rows("select id, embedding from chunk_vectors")
    matrix = np.array([np.frombuffer(blob, "<f4") for _, blob in rows], np.float32).reshape(len(rows), D)
    (centre,) = connection.one("select centre from state")
    centre = np.zeros(D, np.float32) if centre is None else np.frombuffer(centre, "<f4")
    scores = repacked(matrix, centre) @ np.arange(1, D + 1, dtype=np.float32)
    return dict(zip([row[0] for row in rows], scores.tolist(), strict=True))


def require_same(place: Place, connection: Connection, known: Vectors | None = None) -> Vectors:
    vectors = read(place, known)
    in_memory, in_file = held(vectors), stored(connection)
    assert sorted(in_memory) == sorted(in_file)
    np.testing.assert_allclose([in_memory[key] for key in in_file], list(in_file.values()), atol=1e-5)
    return vectors


@pytest.mark.parametrize(
    ("empty", "count"), [("sqld", 100), *(("file", count) for count in (1, 1023, 1024, 1025, 3000))], indirect=["empty"]
)
def test_packed_vectors_read_as_those_that_were_stored(place: Place, connection: Connection, count: int):
    put(connection, "a.md", texts_of("text", count))
    before = require_same(place, connection)
    seal(connection)
    counts = [row[0] for row in connection.rows("select count from segments order by first_id")]
    assert counts == [SEGMENT_ROWS] * (count // SEGMENT_ROWS) + [count % SEGMENT_ROWS] * (count % SEGMENT_ROWS > 0)
    after = require_same(place, connection)
    assert held(after) == pytest.approx(held(before), abs=0.06)
    put(connection, "b.md", texts_of("more", 10))
    before = require_same(place, connection, after)
    seal(connection)
    # Bit by bit: whether its row is packed yet says nothing in a score.
    assert numbers(read(place, before)) == numbers(read(place))
    if state(connection).generation == before.state.generation:
        assert numbers(read(place)) == numbers(before)


@on_a_server
def test_vectors_of_several_segments_are_read_from_a_server_as_from_a_file(
    place: Place, connection: Connection, catalog: Catalog
):
    entry = catalog.add("notes")
    with writing(catalog, entry) as writer:
        put(writer, "a.md", texts_of("text", 2500))
        put(writer, "b.md", texts_of("gone", 100))
        seal(writer)
        put(writer, "c.md", texts_of("more", 600))
        remove(writer, "b.md")
        for table in ("state", "segments", "chunk_vectors", "removed_vectors"):
            connection.run(f"delete from {table}")
            rows = writer.rows(f"select * from {table}")
            connection.many(f"insert into {table} values ({', '.join('?' for _ in rows[0])})", rows)
    with reading(catalog, entry) as reader:
        in_the_file = load(reader)
    on_the_server = read(place)
    assert numbers(on_the_server) == numbers(in_the_file)
    assert on_the_server.state == in_the_file.state
    connection.run("update state set version = version + 1")
    assert numbers(read(place, on_the_server)) == numbers(in_the_file)


@in_a_file
def test_few_segments_are_small_however_often_they_are_sealed(place: Place, connection: Connection):
    for run in range(8):
        put(connection, f"{run}.md", texts_of(f"run {run}", 300))
        seal(connection)
    counts = [row[0] for row in connection.rows("select count from segments order by first_id")]
    assert counts == [1024, 1024, 352]
    require_same(place, connection)


def test_sealing_again_writes_nothing(connection: Connection):
    put(connection, "a.md", texts_of("text", 100))
    seal(connection)
    before = connection.rows("select * from segments"), state(connection)
    seal(connection)
    assert (connection.rows("select * from segments"), state(connection)) == before


@in_a_file
def test_segments_are_packed_anew_when_a_good_part_is_gone(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("stays", 1500))
    put(connection, "b.md", texts_of("goes", 600))
    seal(connection)
    known = require_same(place, connection)
    remove(connection, "b.md")
    known = require_same(place, connection, known)
    generation, version = state(connection).generation, state(connection).version
    seal(connection)
    assert (state(connection).generation, state(connection).version) == (generation + 1, version + 1)
    assert connection.one("select count(*) from removed_vectors") == (0,)
    require_same(place, connection, known)
    require_same(place, connection)


@in_a_file
def test_segments_are_packed_anew_when_the_vectors_lie_elsewhere(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("text", 100))
    seal(connection)
    known = require_same(place, connection)
    assert state(connection).generation == known.state.generation
    put(connection, "b.md", texts_of("text again", 100))
    seal(connection)
    assert state(connection).generation == known.state.generation
    put(connection, "c.md", texts_of("elsewhere", 2000))
    seal(connection)
    assert state(connection).generation == known.state.generation + 1
    require_same(place, connection, known)


@in_a_file
def test_when_all_are_gone_none_are_read(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("text", 1500))
    seal(connection)
    known = read(place)
    remove(connection, "a.md")
    assert held(read(place, known)) == {}
    seal(connection)
    assert held(read(place, known)) == held(read(place)) == {}


@in_a_file
def test_random_changes_read_alike_from_the_start_and_by_difference(place: Place, connection: Connection):
    generator = np.random.default_rng(3)
    known: Vectors | None = None
    paths: set[str] = set()
    set_embedder(connection, "random", D)
    for step in range(40):
        path = f"{generator.integers(6)}.md"
        match int(generator.integers(5)):
            case 0 if path in paths:
                remove(connection, path)
                paths.discard(path)
            case 1:
                seal(connection)
            case 2 if step % 10 == 5:
                clear_vectors(connection)
                set_embedder(connection, "random", D)
            case _:
                put(connection, path, texts_of(f"{generator.integers(4)}", int(generator.integers(0, 500))))
                paths.add(path)
        if generator.random() < 0.6:
            known = require_same(place, connection, known)
            require_same(place, connection)


class Watched(sqlite.Connection):
    """Counts the rows that come out of the tables of vectors."""

    def __init__(self, inner: Connection) -> None:
        assert isinstance(inner, sqlite.Connection)
        super().__init__(inner._raw)  # noqa: SLF001 - it stands for that connection
        self.read: dict[str, int] = {"chunk_vectors": 0, "segments": 0}

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        found = super().rows(sql, params)
        if "embedding" in sql and "from chunk_vectors" in sql:
            self.read["chunk_vectors"] += len(found)
        if "codes" in sql and "from segments" in sql:
            self.read["segments"] += len(found)
        return found


@in_a_file
def test_catching_up_reads_only_what_is_new(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("old", 2000))
    seal(connection)
    with closing(place.read()) as reader:
        cold = Watched(reader)
        known = load(cold)
        assert cold.read == {"chunk_vectors": 0, "segments": 2}
        again = Watched(reader)
        assert load(again, known) is known
        assert again.read == {"chunk_vectors": 0, "segments": 0}
        put(connection, "b.md", texts_of("new", 7))
        seal(connection)
        assert state(connection).generation == known.state.generation
        difference = Watched(reader)
        assert held(load(difference, known)) == pytest.approx(stored(connection), abs=1e-6)
        assert difference.read == {"chunk_vectors": 7, "segments": 0}


def test_a_new_generation_is_loaded_from_the_start(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("text", 20))
    known = read(place)
    clear_vectors(connection)
    assert read(place, known).matrix is None
    put(connection, "a.md", texts_of("other", 30))
    require_same(place, connection, known)


def test_another_embedder_after_one_that_left_nothing_is_read_with_its_own_dimension(
    place: Place, connection: Connection
):
    set_embedder(connection, "earlier", D + 3)
    known = read(place)
    put(connection, "a.md", texts_of("text", 3))
    require_same(place, connection, known)


def test_a_database_put_in_the_place_of_another_is_loaded_from_the_start(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("text", 20))
    known = read(place)
    connection.run("update state set version = 2")
    remove_texts = "delete from chunk_vectors where id > 10"
    connection.run("update chunks set vector_id = null")
    connection.run(remove_texts)
    require_same(place, connection, known)


def test_without_an_embedder_there_is_no_matrix(place: Place):
    assert read(place).matrix is None


@pytest.mark.parametrize(
    "sql",
    [
        "update segments set codec = 'float3'",
        "update segments set ids = substr(ids, 1, 8)",
        "update segments set scales = substr(scales, 1, 5)",
        "update segments set codes = substr(codes, 1, 5)",
        "update segments set along = substr(along, 1, 5)",
        "update state set centre = substr(centre, 1, 5)",
        "update segments set count = count + 1",
        "update segments set scales = cast(zeroblob(0) as blob)",
        "update segments set scales = unhexed(scales)",
        "insert into segments (codec, first_id, last_id, count, ids, scales, along, codes)"
        " select codec, first_id, last_id, count, ids, scales, along, codes from segments",
        "update state set dimension = 5",
    ],
)
def test_a_damaged_segment_is_an_error_that_says_what_to_do(place: Place, connection: Connection, sql: str):
    put(connection, "a.md", texts_of("text", 20))
    seal(connection)
    if "unhexed" in sql:
        connection.run("update segments set scales = ?", (np.full(20, np.nan, "<f4").tobytes(),))
    else:
        connection.run(sql)
    with pytest.raises(Damaged, match="kura index NAME --rebuild"):
        read(place)


def test_a_damaged_vector_is_an_error_that_says_what_to_do(place: Place, connection: Connection):
    put(connection, "a.md", texts_of("text", 2))
    connection.run("update chunk_vectors set embedding = substr(embedding, 1, 5)")
    with pytest.raises(Damaged, match="kura index NAME --rebuild"):
        read(place)
    with pytest.raises(Damaged, match="kura index NAME --rebuild"):
        seal(connection)
