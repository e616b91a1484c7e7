from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kura.errors import ArgumentError, Conflict
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection, Row
from kura.store.publish.descent import intend, owner
from kura.store.publish.plan import plan
from kura.store.publish.published import remove
from kura.store.publish.push import push
from kura.store.publish.tables import push_tables
from kura.store.remote import open_remote
from local.sqld import libsql_server
from tests.store.writing import put, reading, writing

SCHEMA = "create table users (id integer primary key, name text not null unique, age real, picture blob)"
ROWS: list[Row] = [(1, "Ada", 36.5, b"\x00\xff"), (2, "Wú", None, b""), (9, 'O\'Hara "x"', 1e300, None)]


def nothing(_done: int, _total: int) -> None:
    """Nobody watches."""


@pytest.fixture
def entry(catalog: Catalog) -> Entry:
    entry = catalog.add("notes")
    with writing(catalog, entry) as connection:
        put(connection, "a.md", "the tide")
        connection.run(SCHEMA)
        connection.run("create index by_age on users (age)")
        connection.many("insert into users values (?, ?, ?, ?)", ROWS)
    return entry


@pytest.fixture
def remote(catalog: Catalog, entry: Entry, tmp_path: Path) -> Generator[Connection]:
    with (
        libsql_server(tmp_path / "server") as server,
        closing(open_remote(server.url)) as remote,
        writing(catalog, entry) as connection,
    ):
        with reading(catalog, entry) as local, local.transaction(write=False):
            intend(connection, "first", server.url, local)
            push(local, remote, plan(local, remote), "first", owner(connection), nothing)
        yield remote


def publish(catalog: Catalog, entry: Entry, remote: Connection, *names: str, force: bool = False) -> None:
    with reading(catalog, entry) as local, local.transaction(write=False):
        push_tables(local, remote, names, nothing, force=force)


def test_a_table_arrives_whole_with_its_indexes(catalog: Catalog, entry: Entry, remote: Connection):
    assert remote.rows("select 1 from sqlite_schema where name = 'users'") == []
    publish(catalog, entry, remote, "users")
    assert remote.rows("select * from users order by id") == ROWS
    assert remote.rows("select name from sqlite_schema where name = 'by_age'") == [("by_age",)]
    assert remote.one("select sql from sqlite_schema where name = 'users'")[0].lower() == SCHEMA
    with writing(catalog, entry) as connection:
        connection.run("delete from users where id = 1")
    publish(catalog, entry, remote, "users")
    assert remote.rows("select * from users order by id") == ROWS[1:]


def test_many_rows_travel_in_several_requests(catalog: Catalog, entry: Entry, remote: Connection):
    with writing(catalog, entry) as connection:
        connection.run('create table "odd ""name" (x, y)')
        connection.many('insert into "odd ""name" values (?, ?)', [(n, "y" * 1000) for n in range(4000)])
    seen: list[tuple[int, int]] = []
    with reading(catalog, entry) as local, local.transaction(write=False):
        push_tables(local, remote, ['odd "name'], lambda done, total: seen.append((done, total)), force=False)
    assert remote.one('select count(*), sum(x), sum(length(y)) from "odd ""name"') == (4000, 7_998_000, 4_000_000)
    assert len(seen) > 3
    assert seen[-1] == (4000, 4000)


@pytest.mark.parametrize(
    "write",
    [
        "insert into users (name) values ('Eve')",
        "update users set age = 1 where id = 1",
        "delete from users where id = 2",
    ],
    ids=["insert", "update", "delete"],
)
def test_what_was_written_on_the_server_is_not_replaced_silently(
    catalog: Catalog, entry: Entry, remote: Connection, write: str
):
    publish(catalog, entry, remote, "users")
    remote.run(write)
    there = remote.rows("select * from users order by id")
    with pytest.raises(Conflict, match=r'"users" was changed on the server'):
        publish(catalog, entry, remote, "users")
    assert remote.rows("select * from users order by id") == there
    publish(catalog, entry, remote, "users", force=True)
    assert remote.rows("select * from users order by id") == ROWS
    publish(catalog, entry, remote, "users")


class Interrupted:
    """A connection on which somebody else writes just before the table would be replaced."""

    def __init__(self, inner: Connection, write: str) -> None:
        self._inner, self._write = inner, write

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def atomically(self, statements: list[tuple[str, tuple[object, ...]]]) -> None:
        if any(sql.startswith("drop table if exists") and "next_table" not in sql for sql, _ in statements):
            self._inner.run(self._write)
        self._inner.atomically(statements)


@pytest.mark.parametrize("force", [False, True])
def test_a_write_at_the_last_moment_is_not_lost_either(
    catalog: Catalog, entry: Entry, remote: Connection, *, force: bool
):
    publish(catalog, entry, remote, "users")
    late: Connection = Interrupted(remote, "insert into users (name) values ('late')")  # type: ignore[assignment]
    if force:
        publish(catalog, entry, late, "users", force=True)
        assert remote.rows("select * from users order by id") == ROWS
        return
    with pytest.raises(Conflict, match="changed on the server"):
        publish(catalog, entry, late, "users")
    assert remote.rows("select name from users where name = 'late'") == [("late",)]


def test_a_table_that_others_made_there_is_not_replaced_silently(catalog: Catalog, entry: Entry, remote: Connection):
    remote.run("create table users (x)")
    with pytest.raises(Conflict, match="was not published by Kura"):
        publish(catalog, entry, remote, "users")
    assert remote.rows("select name from pragma_table_info('users')") == [("x",)]


@pytest.mark.parametrize("name", ["chunks", "state", "sqlite_sequence", "Publications", "chunks_fts_data"])
def test_tables_of_kura_are_not_the_users(catalog: Catalog, entry: Entry, remote: Connection, name: str):
    with pytest.raises(ArgumentError, match=r"one of Kura's"):
        publish(catalog, entry, remote, name)


def test_an_unknown_table_is_named_with_those_that_there_are(catalog: Catalog, entry: Entry, remote: Connection):
    with pytest.raises(ArgumentError, match='no table "people"; tables of yours: "users"'):
        publish(catalog, entry, remote, "people")


def test_tables_of_the_users_stay_when_what_is_published_goes(catalog: Catalog, entry: Entry, remote: Connection):
    publish(catalog, entry, remote, "users")
    remove(remote)
    assert remote.rows("select * from users order by id") == ROWS
    remote.run("insert into users (name) values ('Eve')")
