"""The schema as a session may use it, on either engine."""

from collections.abc import Callable, Generator
from contextlib import closing

import pytest

from kura.errors import ArgumentError
from kura.library.library import Library
from kura.sql.inspect import Described, ForeignKey, Index, schema_inspect
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.sqlite import open_for_writing
from kura.types import Rules, Session
from tests.search.asking import run
from tests.sql.planted import OWN, TENANTS, library_of_file, library_of_server

A, B = TENANTS
MORE = (
    "create table parents (a integer, b text, c real default 1.5, primary key (b, a)) without rowid",
    'create table "a ""quoted"" 表" ("order" text not null default \'it\'\'s\', "x y" integer unique, 中文 blob,'
    ' sum integer generated always as ("x y" + 1) stored, twice integer as ("x y" * 2),'
    " pa integer, pb text, other integer references users, foreign key (pb, pa) references parents on delete set null"
    " on update cascade)",
    "create unique index partly on parents (c) where c > 1",
    "create unique index wholly on parents (c)",
    "create index by_expression on parents (lower(b), a)",
    "create table strict_one (id integer primary key, n int not null) strict",
    'create table "table" ("select" integer primary key)',
    "create view broken as select * from gone",
    "create view inner_view as select path from roots",
)


@pytest.fixture(scope="module", params=["file", "sqld"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    root = tmp_path_factory.mktemp("inspected")
    opened: Callable[[], Connection]
    if request.param == "file":
        catalog = Catalog(root)
        with closing(library_of_file(root)) as library:
            more(lambda: open_for_writing(catalog.path(catalog.find("notes"))))
            yield library
    else:
        with library_of_server(root) as (library, opened):
            more(opened)
            yield library


def more(opened: Callable[[], Connection]) -> None:
    with closing(opened()) as connection:
        connection.run("create table gone (a)")
        connection.atomically([(sql, ()) for sql in MORE])
        connection.run("drop table gone")


def inspect(library: Library, tenant: str | None = A, table: str | None = None) -> dict[str, Described]:
    found = run(schema_inspect(library, Session(tenant), None, table))
    return {each.table.name: each for each in found}


def test_only_what_can_be_queried_is_shown(library: Library):
    assert list(inspect(library)) == sorted(inspect(library), key=str.lower)
    assert set(inspect(library)) == {
        "users", "docs", "orders", "pairs", 'odd "table" 表', "open", "vectors", "adults", "counted", "notes_fts",
        "docs_fts", "sources", "chunks", "parents", 'a "quoted" 表', "strict_one", "table", "broken", "inner_view",
    }  # fmt: skip


def test_counts_are_of_what_the_session_sees(library: Library):
    for tenant, users, adults in ((A, 6, 5), (B, 6, 2), (None, 0, 0)):
        found = inspect(library, tenant)
        assert (found["users"].rows, found["adults"].rows, found["open"].rows) == (users, adults, 3)
        vectors = {index.name: index for index in found["vectors"].indexes}
        assert vectors["embedding"] == Index("embedding", "vector", ("embedding",), dimensions=4, count=users)
        # A plain blob is a column of vectors for those alone who see one in it.
        assert ("plain" in vectors) == bool(users)
        assert found["notes_fts"].indexes == (Index("notes_fts", "fulltext", ("body",), count=2),)


def test_columns_keys_and_defaults_are_those_that_were_declared(library: Library):
    found = inspect(library)['a "quoted" 表']
    assert [
        (each.name, each.type, each.key, each.not_null, each.default, each.generated) for each in found.table.columns
    ] == [
        ("order", "TEXT", 0, True, "'it''s'", None),
        ("x y", "INTEGER", 0, False, None, None),
        ("中文", "BLOB", 0, False, None, None),
        ("sum", "INTEGER", 0, False, None, "stored"),
        ("twice", "INTEGER", 0, False, None, "virtual"),
        ("pa", "INTEGER", 0, False, None, None),
        ("pb", "TEXT", 0, False, None, None),
        ("other", "INTEGER", 0, False, None, None),
    ]
    assert found.unique == {"x y"}
    assert sorted(found.foreign, key=lambda each: each.table) == [
        ForeignKey(("pb", "pa"), "parents", ("b", "a"), "cascade", "set null"),
        ForeignKey(("other",), "users", ("id",), "no action", "no action"),
    ]
    parents = inspect(library)["parents"]
    assert [(each.name, each.key, each.not_null, each.default) for each in parents.table.columns] == [
        ("a", 2, True, None),
        ("b", 1, True, None),
        ("c", 0, False, "1.5"),
    ]
    assert not parents.table.rowid
    assert parents.unique == {"c"}
    assert {index.name: (index.columns, index.unique, index.partial) for index in parents.indexes} == {
        "partly": (("c",), True, True),
        "wholly": (("c",), True, False),
        "by_expression": ((None, "a"), False, False),
    }


def test_views_have_their_columns_and_say_if_they_cannot_be_queried(library: Library):
    found = inspect(library)
    assert [column.name for column in found["counted"].table.columns] == ["how_many", "least"]
    assert [column.name for column in found["adults"].table.columns] == ["id", "name", "age"]
    assert 'no such table: "gone"' in (found["broken"].notice or "")
    assert 'no such table: "roots"' in (found["inner_view"].notice or "")
    assert "has policies" in (found["docs_fts"].notice or "")
    assert found["adults"].notice is None


def test_policies_are_shown(library: Library):
    [policy] = inspect(library)["users"].policies
    assert (policy.name, policy.command, policy.using, policy.check) == ("own", "all", OWN, None)
    assert inspect(library)["open"].policies == ()


def test_one_table_is_found_in_any_case_and_internals_are_unknown(library: Library):
    assert list(inspect(library, table="USERS")) == ["users"]
    assert list(inspect(library, table="Chunks")) == ["chunks"]
    for name in ("state", "policies", "sqlite_schema", "notes_fts_data", "nowhere"):
        with pytest.raises(ArgumentError, match=f'there is no table "{name}"; there are a "quoted" 表, adults, broken'):
            inspect(library, table=name)


def test_counting_ends_when_time_is_up(library: Library):
    found = run(schema_inspect(library, Session(A), None, rules=Rules(seconds=1e-9)))
    assert {each.rows for each in found} == {None}
    assert len(found) == 19
