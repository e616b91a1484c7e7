"""Answers of `query`: their form, their limits, and what is said where something is wrong."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kura.errors import ArgumentError, OutOfTime, QueryFailed, StatementRefused, UnknownDatabase
from kura.library.library import Library
from kura.sql.query import query
from kura.store.catalog import Catalog
from kura.store.policies import add_policy
from kura.store.script import run_script
from kura.store.sqlite import open_for_writing
from kura.types import Policy, Rules, Session
from tests.search.asking import run
from tests.sql.planted import TENANTS, ask, library_of_file, outcome

A = TENANTS[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    with closing(library_of_file(tmp_path_factory.mktemp("asked"))) as library:
        yield library


def test_rows_beyond_a_limit_are_cut_and_it_is_said_which_limit(library: Library):
    found = ask(library, A, "select id from users order by id", rules=Rules(rows=2))
    assert (found.rows, found.truncated) == (((1,), (2,)), True)
    assert found.message == "2 rows; there are more, but an answer has at most 2"
    found = ask(library, A, "select id from users order by id", rules=Rules(rows=6))
    assert (len(found.rows), found.truncated, found.message) == (6, False, "6 rows")
    found = ask(library, A, "select printf('%400d', id) as x from users", rules=Rules(bytes=1000))
    assert (len(found.rows), found.truncated) == (2, True)
    assert found.message == "2 rows; there are more, but an answer has at most about 1,000 bytes"


def test_what_was_found_before_time_is_up_is_given(library: Library):
    slow = (
        "with recursive c (n) as (select 1 union all select n + 1 from c) select n from c"
        " where n <= 3 or n > 1000000000000"
    )
    found = ask(library, A, slow, rules=Rules(seconds=0.3))
    # The row before the one that is waited for may be lost with it.
    assert found.rows[:2] == ((1,), (2,))
    assert found.truncated
    assert "ended after 0.3 seconds" in found.message
    with pytest.raises(OutOfTime, match=r"0\.3 seconds, before it gave a row"):
        ask(library, A, slow.replace("n <= 3 or", ""), rules=Rules(seconds=0.3))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select name form users where", "syntax error at line 1, column 18"),
        ("select *\nfrom users\nwhere id = = 2", "syntax error at line 3"),
        ("select (1 + 2 from users", "syntax error at line 1"),
        ("select 'open", "a text, name or comment does not end"),
        ("select nope from users", "no such column: nope"),
        ("select * from nowhere", 'no such table: "nowhere"; there are adults, chunks, counted, docs'),
        ("select nofunction(1)", "the function nofunction is not available"),
        ("select count() over (order by id) filter from users where count(*) > 1", "misuse of aggregate"),
        ("select * from users where id = ?", "1 placeholders `?`, but 0 params"),
        ("update users set age = 1", "only reading is allowed"),
        ("drop table users", "one statement that reads is allowed here; DROP is none"),
        ("explain select 1", "EXPLAIN QUERY PLAN is"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said(library: Library, sql: str, said: str):
    with pytest.raises(StatementRefused) as refused:
        ask(library, A, sql)
    assert said in str(refused.value)


def test_an_engines_reason_is_told_only_where_no_policy_is_involved(library: Library):
    with pytest.raises(QueryFailed, match="integer overflow"):
        ask(library, A, "select abs(-9223372036854775807 - n) from open")
    with pytest.raises(QueryFailed, match="the reason is not told"):
        ask(library, A, "select abs(-9223372036854775807 - id) from users")


def test_a_plan_shows_nothing_of_how_filtered_rows_are_found(library: Library):
    for sql in ("select name from users where age = 5", "select name from users where abs(age) = 5 order by age"):
        details = [row[3] for row in ask(library, A, f"explain query plan {sql}").rows]
        assert not [detail for detail in details if "INDEX" in detail or "tenant" in detail]
    assert "SEARCH open USING INTEGER PRIMARY KEY (rowid=?)" in [
        row[3] for row in ask(library, A, "explain query plan select * from open where id = 1").rows
    ]


def test_a_plan_is_not_told_where_statistics_of_all_rows_are_in_it(tmp_path: Path):
    with closing(library_of_file(tmp_path)) as library:
        catalog = Catalog(tmp_path)
        run_script(catalog.path(catalog.find("notes")), "analyze")
        assert outcome(library, A, "explain query plan select * from users")[0] == "QueryFailed"
        assert outcome(library, A, "explain query plan select * from open")[0] == "answer"


def test_a_database_need_not_be_named_where_there_is_one(library: Library, tmp_path: Path):
    assert run(query(library, Session(), None, "select 1")).rows == ((1,),)
    with pytest.raises(UnknownDatabase, match='"other" not exist; available: "notes"'):
        run(query(library, Session(), "other", "select 1"))
    catalog = Catalog(tmp_path)
    with closing(Library(catalog, lambda: None)) as several:
        with pytest.raises(ArgumentError, match='"db" is missing; name one of: no database'):
            run(query(several, Session(), None, "select 1"))
        catalog.add("one")
        catalog.add("two")
        catalog.add("secret", "acme")
        with pytest.raises(ArgumentError, match=r'"db" is missing; name one of: "one", "two"$'):
            run(query(several, Session(), None, "select 1"))


def test_a_policy_is_in_force_from_the_next_statement_on(tmp_path: Path):
    with closing(library_of_file(tmp_path)) as library:
        catalog = Catalog(tmp_path)
        assert len(ask(library, A, "select * from open").rows) == 3
        with closing(open_for_writing(catalog.path(catalog.find("notes")))) as connection:
            add_policy(connection, Policy("few", "OPEN", "select", using="n > 1"))
            assert len(ask(library, A, "select * from open").rows) == 2
            add_policy(connection, Policy("more", "open", "select", using="label = 'one'"))
            assert len(ask(library, A, "select * from open").rows) == 3
            assert len(ask(library, None, "select * from open").rows) == 0
            # A column that a policy needs is gone: nothing is shown rather than everything.
            connection.run("alter table open drop column label")
        assert "does not fit it" in outcome(library, A, "select n from open")[1]


def test_policies_for_writing_alone_show_nothing(tmp_path: Path):
    with closing(library_of_file(tmp_path)) as library:
        catalog = Catalog(tmp_path)
        with closing(open_for_writing(catalog.path(catalog.find("notes")))) as connection:
            add_policy(connection, Policy("add", "open", "insert", check="n < 10"))
        rules = Rules(writable=frozenset({"notes"}))
        assert ask(library, A, "select count(*) from open").rows == ((0,),)
        assert outcome(library, A, "insert into open (n) values (9)", rules=rules)[0] == "answer"
        assert outcome(library, A, "insert into open (n) values (10)", rules=rules)[0] == "QueryFailed"
        assert ask(library, A, "update open set n = 1", rules=rules).affected == 0


def test_a_database_of_the_schema_before_policies_is_asked_too(tmp_path: Path):
    with closing(library_of_file(tmp_path)) as library:
        catalog = Catalog(tmp_path)
        with closing(open_for_writing(catalog.path(catalog.find("notes")))) as connection:
            connection.run("drop table policies")
            connection.run("delete from kura_migrations where version = 4")
        assert len(ask(library, A, "select * from users").rows) == 12


def test_who_asks_is_known_to_the_statement(library: Library):
    sql = "select current_user, current_setting('app.tenant_id'), current_setting('app.user_id')"
    assert ask(library, A, sql).rows == (("someone", A, "someone"),)
    assert ask(library, None, sql).rows == (("someone", None, "someone"),)
