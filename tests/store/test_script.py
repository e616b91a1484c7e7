"""The owner's SQL on a local database."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kura.errors import KuraError
from kura.store.catalog import Catalog
from kura.store.script import run_script, statements


@pytest.fixture
def path(catalog: Catalog) -> Path:
    catalog.add("notes")
    path = catalog.path(catalog.find("notes"))
    run_script(path, "create table users (id integer primary key, name text); insert into users values (1, 'x')")
    return path


def dump(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as raw:
        return [
            raw.execute("select name, sql from sqlite_schema order by name").fetchall(),
            raw.execute("select * from users").fetchall(),
            raw.execute("pragma journal_mode").fetchall(),
        ]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("delete from chunks", "Kura's own"),
        ("drop table state", "Kura's own"),
        ("alter table sources add column x", "Kura's own"),
        ("create index i on chunks (content)", "Kura's own"),
        ("create trigger t after insert on chunks begin select 1; end", "Kura's own"),
        ("insert into chunks_fts (chunks_fts) values ('delete-all')", "Kura's own"),
        ("create table next_chunks (a)", "Kura's own"),
        ("insert into policies values ('a', 'users', 'all', '1', null)", "kura policy"),
        ("begin", "one transaction already"),
        ("pragma journal_mode = delete", "journal_mode cannot be changed"),
        ("pragma writable_schema = on", "writable_schema cannot be changed"),
        ("select nope from users", "no such column: nope"),
        ("selec 1", 'near "selec": syntax error'),
        ("insert into users (id) values (1)", "UNIQUE constraint failed: users.id"),
        (" ; -- nothing", "no statement"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(path: Path, sql: str, said: str):
    before = dump(path)
    with pytest.raises(KuraError) as refused:
        run_script(path, sql)
    assert said in str(refused.value)
    assert dump(path) == before


def test_a_script_is_cut_where_its_statements_end():
    script = "select 1; select ';' ;; /* ; */ create trigger t after insert on u begin select 1; select 2; end; -- ;"
    assert [one.strip() for one in statements(script)] == [
        "select 1;",
        "select ';' ;",
        "/* ; */ create trigger t after insert on u begin select 1; select 2; end;",
    ]
    assert statements(" ; -- nothing;\n /* ; */") == []
    assert statements("select 1") == ["select 1"]


def test_a_trigger_of_the_owner_may_do_what_it_likes_to_tables_of_theirs(path: Path):
    run_script(
        path, "create table seen (a); create trigger t after insert on users begin insert into seen values (1); end"
    )
    assert run_script(path, "insert into users values (2, 'y')")[0].changed == 1
    assert run_script(path, "select count(*) from seen")[0].rows == [(1,)]


def test_what_fails_in_the_middle_takes_the_rest_back(path: Path):
    before = dump(path)
    with pytest.raises(KuraError, match="statement 3 of 3: UNIQUE constraint failed"):
        run_script(path, "create table more (a); delete from users; insert into users values (1, 1), (1, 1)")
    assert dump(path) == before
