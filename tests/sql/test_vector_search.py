"""The nearest rows of a table: among those that the session sees, and whatever else is in the column."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import ArgumentError
from kura.library.library import Library
from kura.sql.vector_search import Found, vector_search
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.sqlite import open_for_writing
from kura.types import Session
from kura.vectors.metrics import Metric
from tests.search.asking import run
from tests.sql.planted import TENANTS, library_of_file, library_of_server

A, B = TENANTS
METRICS: tuple[Metric, ...] = get_args(Metric)
Opened = tuple[Library, Callable[[], Connection]]
QUERY = [1.0, 1.0, 0.0, 0.0]


@pytest.fixture(params=["file", "sqld"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Opened]:
    if request.param == "file":
        catalog = Catalog(tmp_path)
        with closing(library_of_file(tmp_path)) as library:
            yield library, lambda: open_for_writing(catalog.path(catalog.find("notes")))
    else:
        with library_of_server(tmp_path) as found:
            yield found


def search(library: Library, tenant: str | None, table: str, column: str, query: Sequence[float], **more: Any) -> Found:
    return run(vector_search(library, Session(tenant), None, table, column, query, **more))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("column", ["embedding", "plain"])
def test_each_tenant_finds_its_own_rows(opened: Opened, metric: Metric, column: str):
    library, _ = opened
    for tenant, first in ((A, 1), (B, 101)):
        found = search(library, tenant, "VECTORS", column.upper(), QUERY, k=100, metric=metric)
        assert (found.table, found.column, found.index_size) == ("vectors", column, 6)
        assert {near.id for near in found.results} == {(first + k,) for k in range(6)}
        assert {near.metadata["tenant"] for near in found.results} == {tenant}
        assert all(
            near.distance <= after.distance for near, after in zip(found.results, found.results[1:], strict=False)
        )
    nobody = search(library, None, "vectors", column, QUERY)
    assert (nobody.index_size, nobody.results) == (0, ())


def test_a_filter_and_policies_apply_before_anything_is_ranked(opened: Opened):
    library, _ = opened
    found = search(library, A, "vectors", "embedding", QUERY, k=1, filtered=("id", 6))
    assert [near.id for near in found.results] == [(6,)]
    assert found.index_size == 6
    # Of another tenant: there is no such row.
    assert search(library, A, "vectors", "embedding", QUERY, filtered=("id", 101)).results == ()
    assert search(library, A, "vectors", "embedding", QUERY, filtered=("tenant", B)).results == ()
    assert len(search(library, A, "vectors", "embedding", QUERY, filtered=("TENANT", A)).results) == 6


def test_a_change_is_seen_by_the_next_search(opened: Opened):
    library, write = opened
    assert search(library, A, "vectors", "embedding", QUERY, k=1, metric="euclidean").results[0].id == (1,)
    with closing(write()) as connection:
        blob = np.array(QUERY, "<f4").tobytes()
        connection.run("update vectors set embedding = ? where id = 6", (np.zeros(4, "<f4").tobytes(),))
        connection.run("update vectors set embedding = ? where id = 4", (blob,))
        connection.run("delete from vectors where id = 1")
        found = search(library, A, "vectors", "embedding", QUERY, k=1, metric="euclidean")
        assert [(near.id, near.distance) for near in found.results] == [((4,), 0.0)]
        assert (found.index_size, found.left_out["zero"]) == (4, 1)
        connection.run("update vectors set tenant = ? where id = 4", (B,))
    assert search(library, A, "vectors", "embedding", QUERY, k=1, metric="euclidean").results[0].id == (2,)


def test_what_is_no_vector_is_left_out_and_counted_for_those_who_see_it(opened: Opened):
    library, write = opened
    with closing(write()) as connection:
        for number, value in enumerate(
            [b"1234", "text", np.array([np.nan, 1, 1, 1], "<f4").tobytes(), bytes(16), None, 5], 201
        ):
            connection.run("insert into vectors values (?, ?, null, ?)", (number, A if number != 202 else B, value))
    found = search(library, A, "vectors", "plain", QUERY)
    assert found.index_size == 6
    assert found.left_out == {"wrong_length": 2, "not_finite": 1, "zero": 1}
    assert search(library, B, "vectors", "plain", QUERY).left_out == {"wrong_length": 1, "not_finite": 0, "zero": 0}


def test_keys_of_every_kind_name_the_rows(opened: Opened):
    library, write = opened
    blob = [np.array([k, 1, 0, 0], "<f4").tobytes() for k in range(1, 4)]
    with closing(write()) as connection:
        connection.run("create table texts (name text primary key, v blob)")
        connection.run("create table none (v blob)")
        connection.run('create table "two 表" (a text, b integer, "v v" blob, primary key (b, a)) without rowid')
        for number, each in enumerate(blob, 1):
            connection.run("insert into texts values (?, ?)", (f"n{number}", each))
            connection.run("insert into none values (?)", (each,))
            connection.run('insert into "two 表" values (?, ?, ?)', ("a", number, each))
    query = [3.0, 1.0, 0.0, 0.0]
    assert [near.id for near in search(library, A, "texts", "v", query, k=2).results] == [("n3",), ("n2",)]
    assert [near.id for near in search(library, None, "none", "v", query, k=2).results] == [(3,), (2,)]
    found = search(library, A, "two 表", "V V", query, k=2, filtered=("a", "a"))
    assert [(near.id, near.metadata) for near in found.results] == [
        ((3, "a"), {"a": "a", "b": 3}),
        ((2, "a"), {"a": "a", "b": 2}),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "v", QUERY), 'no table "nowhere"; columns that may hold vectors: "vectors"."embedding"'),
        (("state", "centre", QUERY), 'no table "state"'),
        (("adults", "name", QUERY), 'no table "adults"'),
        (("vectors", "nope", QUERY), '"vectors" has no column "nope"'),
        (("users", "secret", QUERY), "holds no vectors"),
        (("vectors", "embedding", [1.0]), '"query_vector" has 1 numbers; the vectors in "vectors"."embedding" have 4'),
        (("vectors", "plain", [1.0, 2.0]), "have 4"),
        (("vectors", "embedding", list[float]()), "at least one"),
        (("vectors", "embedding", [1.0, float("nan"), 0.0, 0.0]), "finite"),
        (("vectors", "embedding", [1e39, 1.0, 1.0, 1.0]), "finite"),
        (("vectors", "embedding", [0.0] * 4), "all zeros"),
        (("chunks", "content", QUERY), '"column" of chunks must be "embedding"'),
    ],
)
def test_what_cannot_be_searched_is_refused_with_what_could(opened: Opened, arguments: tuple[Any, ...], said: str):
    with pytest.raises(ArgumentError) as refused:
        search(opened[0], A, *arguments)
    assert said in str(refused.value)


def test_a_filter_must_name_a_column(opened: Opened):
    with pytest.raises(ArgumentError, match='must be a column of "vectors": "id", "tenant", "embedding", "plain"'):
        search(opened[0], A, "vectors", "embedding", QUERY, filtered=("nope", 1))


def test_a_length_that_only_others_have_is_not_told(opened: Opened):
    library, write = opened
    with closing(write()) as connection:
        connection.run("update vectors set plain = ? where tenant = ?", (bytes(range(12)), B))
    with pytest.raises(ArgumentError, match="have 3"):
        search(library, B, "vectors", "plain", QUERY)
    with pytest.raises(ArgumentError, match="have 4"):
        search(library, A, "vectors", "plain", [1.0, 2.0, 3.0])
    assert search(library, None, "vectors", "plain", [1.0, 2.0, 3.0]).results == ()


@pytest.mark.parametrize("metric", METRICS)
def test_beyond_the_memory_the_same_rows_are_found(tmp_path: Path, metric: Metric):
    with closing(library_of_file(tmp_path)) as library:
        catalog = Catalog(tmp_path)
        rows = np.random.default_rng(1).standard_normal((12_000, 4)).astype("<f4")
        with closing(open_for_writing(catalog.path(catalog.find("notes")))) as connection:
            connection.run("create table many (id integer primary key, v blob)")
            connection.many("insert into many values (?, ?)", ((k, row.tobytes()) for k, row in enumerate(rows)))
        wanted = search(library, A, "many", "v", QUERY, k=20, metric=metric)
        with closing(Library(catalog, lambda: None, vector_memory=1000)) as small:
            assert search(small, A, "many", "v", QUERY, k=20, metric=metric) == wanted
            some = search(small, A, "many", "v", QUERY, k=5, metric=metric, filtered=("id", 11_999))
        assert [near.id for near in some.results] == [(11_999,)]


def test_passages_are_searched_by_their_vectors(tmp_path: Path):
    embedder = HashingEmbedder(8)
    with closing(library_of_file(tmp_path)) as library:
        query = embedder.embed(["A passage that is knowledge."], "passage")[0].tolist()
        found = search(library, None, "chunks", "embedding", query)
        assert found.index_size == 1
        [near] = found.results
        assert (near.id, near.metadata["path"], near.metadata["content"]) == (
            (1,),
            "a.md",
            "A passage that is knowledge.",
        )
        assert near.distance < 0.3
        assert search(library, None, "chunks", "embedding", query, filtered=("path", "b.md")).results == ()
        with pytest.raises(ArgumentError, match="the vectors of chunks have 8"):
            search(library, None, "chunks", "embedding", QUERY)
