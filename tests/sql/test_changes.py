"""Writing, where the operator allows it: within the policies, and nothing of anybody else's."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kura.library.library import Library
from kura.types import Rules
from tests.sql.planted import TENANTS, Outcome, ask, library_of_file, library_of_server, outcome

A, B = TENANTS
RULES = Rules(writable=frozenset({"notes"}))


@pytest.fixture(params=["file", "sqld"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Library]:
    if request.param == "file":
        with closing(library_of_file(tmp_path)) as library:
            yield library
    else:
        with library_of_server(tmp_path) as (library, _):
            yield library


def write(library: Library, sql: str, *params: object, tenant: str | None = A) -> Outcome:
    return outcome(library, tenant, sql, params, rules=RULES)


def seen(library: Library, sql: str, tenant: str = A) -> list[tuple[object, ...]]:
    return list(ask(library, tenant, sql).rows)


def test_a_session_inserts_changes_and_deletes_its_rows(library: Library):
    kind, found = write(library, "insert into users values (50, ?, 'new', 1, null) returning id, name", A)
    assert (kind, found.rows, found.affected, found.message) == ("answer", ((50, "new"),), 1, "1 row changed")
    assert write(library, "update users set age = age + 1, name = name || '!' where id in (1, 50)")[1].affected == 2
    assert seen(library, "select age, name from users where id in (1, 50) order by id") == [
        (11, f"user 1 of {A}!"),
        (2, "new!"),
    ]
    kind, found = write(library, "delete from users as u where u.id = 50 and u.age = 2 returning name")
    assert (kind, found.rows, found.affected) == ("answer", (("new!",),), 1)
    kind, found = write(library, "insert into open (label, n) select name, age from users where age > 20")
    assert (kind, found.rows, found.columns, found.affected) == ("answer", (), (), 4)
    assert write(library, "update pairs set v = v * 2 where k > 'k3'")[1].affected == 3
    assert (
        write(library, "delete from pairs where (k, tenant) in (select k, tenant from pairs where v > 8)")[1].affected
        == 2
    )
    with_names = "with old as (select id from users where age > 40) update users set secret = 'x' where id in old"
    assert write(library, with_names)[0] == "StatementRefused"
    assert write(library, with_names.replace("in old", "in (select id from old)"))[1].affected == 2


@pytest.mark.parametrize(
    "sql",
    [
        "update users set age = 0",
        "update users set age = 0 where id > 100",
        "update users set age = 0 where tenant <> 'x' and abs(age) >= 0",
        "update users as u set age = 0 where u.id in (select id from users) or 1",
        "delete from users",
        "delete from users where id > 100 or abs(age) < 0",
        "delete from pairs",
        "update pairs set v = 0",
        "insert into users (id, tenant, name) values (101, 'company-a', 'x') on conflict (id) do nothing",
        "insert into users (id, tenant, name) values (101, 'company-a', 'x') on conflict (id) do update set name = 'x'",
        "insert into users (id, tenant, name) values (101, 'company-a', 'x') on conflict (id) do update set age = 1"
        " where abs(users.age) >= 0",
        "insert or ignore into users (id, tenant, name) values (101, 'company-a', 'x')",
        "insert into open (n) select age from users",
    ],
)
def test_rows_of_others_stay_as_they_are(library: Library, sql: str):
    tables = ("users", "pairs", "docs", "orders")
    before = [seen(library, f"select * from {table} order by 1", B) for table in tables]
    kind, found = write(library, sql)
    assert kind == "answer", found
    assert [seen(library, f"select * from {table} order by 1", B) for table in tables] == before
    assert found.affected <= 6
    assert seen(library, "select count(*) from open where n < 0") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("insert into users (tenant, name) values ('company-b', 'x')", "not one that the policies allow"),
        ("insert into users (tenant, name) values ('company-a', 'x'), (null, 'y')", "breaks a rule"),
        ("insert into docs (tenant) values (null)", "not one that the policies allow"),
        ("update users set tenant = 'company-b' where id = 1", "not one that the policies allow"),
        ("insert into users (id, tenant, name) values (101, 'company-a', 'x')", "stands in its way"),
        ("update users set id = 101 where id = 1", "stands in its way"),
        ("insert into users (tenant, name) values ('company-a', 'user 1 of company-b')", "stands in its way"),
        ("update users set age = abs(-9223372036854775807 - 1)", "breaks a rule"),
        ("insert or replace into users (id, tenant) values (101, 'company-a')", "INSERT OR REPLACE is not allowed"),
        ("replace into users (id) values (1)", "REPLACE"),
        ("insert into users select * from users returning (select max(secret) from users)", "query in RETURNING"),
        ("insert into users (id) values (1) on conflict do update set name = (select 1)", "query in ON CONFLICT"),
        ("update users set age = 1 from docs where docs.id = users.id", "UPDATE … FROM"),
        ("update main.users set age = 1", "without what it is in"),
        ("update chunks set content = 'x'", "knowledge"),
        ("delete from sources", "knowledge"),
        ("insert into chunks_fts (chunks_fts) values ('delete-all')", "no such table"),
        ("delete from policies", "no such table"),
        ("update state set version = 1", "no such table"),
        ("insert into adults values (1, 'x', 1)", "is a view"),
        ("insert into notes_fts values ('x')", "is a virtual"),
        ("insert into open (n) values (load_extension('x'))", "function load_extension"),
        ("insert into open (nope) values (1)", "nope"),
        ("create table mine (a)", "CREATE"),
        ("drop table users", "DROP"),
        ("explain query plan delete from open", "statements that read"),
        ("insert into open (n) values (1); select 1", "one statement"),
    ],
)
def test_what_is_not_allowed_is_refused_and_changes_nothing(library: Library, sql: str, said: str):
    everything = [f"select * from {table} order by 1" for table in ("users", "docs", "pairs", "open", "orders")]
    before = [seen(library, each, tenant) for each in everything for tenant in TENANTS]
    kind, text = write(library, sql)
    assert kind in {"StatementRefused", "QueryFailed"}, text
    assert said in text
    assert "UNIQUE" not in text
    assert "secret" not in text
    assert [seen(library, each, tenant) for each in everything for tenant in TENANTS] == before
    assert write(library, "update open set n = 5 where id = 1")[0] == "answer"


def test_without_a_tenant_nothing_of_a_table_with_policies_is_written(library: Library):
    assert write(library, "delete from users", tenant=None)[1].affected == 0
    assert write(library, "insert into users (tenant) values ('company-a')", tenant=None)[0] == "QueryFailed"
    assert write(library, "delete from open where id = 1", tenant=None)[1].affected == 1
    assert len(seen(library, "select * from users")) == 6


def test_where_the_operator_has_not_switched_it_on_nothing_is_written(library: Library):
    for rules in (Rules(), Rules(writable=frozenset({"other"}))):
        kind, text = outcome(library, A, "insert into open (n) values (1)", rules=rules)
        assert (kind, text) == (
            "StatementRefused",
            "only reading is allowed here: the operator has not switched on writing",
        )


def test_returned_rows_are_cut_and_all_are_changed(library: Library):
    rules = Rules(rows=2, writable=frozenset({"notes"}))
    kind, found = outcome(library, A, "update users set secret = 'x' returning id", rules=rules)
    assert kind == "answer"
    assert (len(found.rows), found.affected, found.truncated) == (2, 6, True)
    assert seen(library, "select count(*) from users where secret = 'x'") == [(6,)]
