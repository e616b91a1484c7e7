"""What a connection gives and keeps, on either engine, and what only the one to a server has to take care of."""

import asyncio
import math
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import closing, suppress

import pytest

from kura.errors import Damaged, StoreError
from kura.store.engine import ANSWER_BYTES, Connection, Statement
from tests.store.places import Place, on_a_server


@pytest.fixture
def connection(empty: Place) -> Generator[Connection]:
    connection = empty.write()
    connection.run("create table t (x)")
    yield connection
    connection.close()


def in_transaction(connection: Connection, *statements: Statement) -> None:
    with connection.transaction():
        for sql, params in statements:
            connection.run(sql, params)


VALUES: dict[str, object] = {
    "null": None,
    "zero": 0,
    "largest": 2**63 - 1,
    "smallest": -(2**63),
    "beyond-a-double": 2**53 + 1,
    "float": 0.1,
    "whole-float": 3.0,
    "tiny-float": 5e-324,
    "huge-float": 1.7976931348623157e308,
    "empty-blob": b"",
    "blob": bytes(range(256)),
    "large-blob": bytes(range(256)) * 4096,
    "empty-text": "",
    "text": "plain",
    "emoji": "知识库 👩‍👩‍👧 é",
    "quotes": "'a' \"b\" `c` \\ ; -- ? \r\n\t",
    "control": "\x01\x1f\x7f\u2028",
    "number-like": "9007199254740993",
    "large-text": "知 " * 300_000,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_comes_back_as_it_was(connection: Connection, value: object):
    connection.insert("insert into t values (?)", (value,))
    (found,) = connection.one("select x from t")
    assert found == value
    assert type(found) is type(value)


def test_a_text_with_a_nul_in_it_is_stored_whole(connection: Connection):
    connection.insert("insert into t values (?)", ("before\0after",))
    assert connection.one("select hex(x) from t") == (b"before\0after".hex().upper(),)
    assert connection.one("select x from t") == ("before\0after",)


def test_what_is_no_number_is_kept_as_null(connection: Connection):
    connection.insert("insert into t values (?)", (math.nan,))
    assert connection.one("select x from t") == (None,)


@on_a_server
@pytest.mark.parametrize("value", [math.inf, -math.inf], ids=str)
def test_an_infinity_is_kept_as_null_on_a_server(connection: Connection, value: float):
    connection.insert("insert into t values (?)", (value,))
    assert connection.one("select x from t") == (None,)


def test_half_a_character_is_refused_and_nothing_is_written(connection: Connection):
    with pytest.raises(StoreError, match="lone surrogate"):
        connection.insert("insert into t values (?)", ("half a \ud800 character",))
    with pytest.raises(StoreError, match="lone surrogate"):
        connection.many("insert into t values (?)", [("good",), ("half a \udfff character",)])
    with pytest.raises(StoreError, match="lone surrogate"):
        connection.atomically([("insert into t values (1)", ()), ("insert into t values (?)", ("\udc00",))])
    with pytest.raises(StoreError, match="lone surrogate"):
        in_transaction(connection, ("insert into t values (1)", ()), ("insert into t values (?)", ("\udc00",)))
    assert [row for row in connection.rows("select x from t") if row != ("good",)] == []


def test_several_values_bind_to_their_question_marks(connection: Connection):
    assert connection.one("select ?, ?, ?2, ?1", ("one", 2)) == ("one", 2, 2, "one")


def test_rows_come_in_order_and_may_be_none(connection: Connection):
    connection.many("insert into t values (?)", [(3,), (1,), (2,)])
    assert connection.rows("select x, -x from t order by x") == [(1, -1), (2, -2), (3, -3)]
    assert connection.row("select x from t order by x desc") == (3,)
    assert connection.rows("select x from t where x > ?", (3,)) == []
    assert connection.row("select x from t where x > ?", (3,)) is None


def test_a_row_that_must_be_there_and_is_not_is_damage(connection: Connection):
    with pytest.raises(Damaged, match="lacks a row"):
        connection.one("select x from t")


def test_a_change_tells_how_many_rows_it_was(connection: Connection):
    connection.many("insert into t values (?)", [(n,) for n in range(5)])
    assert connection.run("update t set x = x + 1 where x < ?", (3,)) == 3
    assert connection.run("delete from t where x > 100") == 0


def test_an_insert_tells_the_id(connection: Connection):
    connection.run("create table ids (id integer primary key autoincrement, x)")
    assert connection.insert("insert into ids (x) values ('a')") == 1
    assert connection.insert("insert into ids values (?, 'b')", (2**40,)) == 2**40
    assert connection.insert("insert into ids (x) values ('c')") == 2**40 + 1


def test_many_rows_are_all_written_in_order(connection: Connection):
    connection.many("insert into t values (?)", ((f"row {n}",) for n in range(3000)))
    rows = connection.rows("select x from t order by rowid")
    assert rows == [(f"row {n}",) for n in range(3000)]
    connection.many("insert into t values (?)", [])
    assert connection.one("select count(*) from t") == (3000,)


def test_many_rows_in_a_transaction_go_with_it(connection: Connection):
    with suppress(LookupError), connection.transaction():
        connection.many("insert into t values (?)", [(n,) for n in range(1200)])
        assert connection.one("select count(*) from t") == (1200,)
        raise LookupError
    assert connection.one("select count(*) from t") == (0,)


@pytest.mark.parametrize("size", [100, 3_000_000], ids=["small", "large"])
def test_an_answer_of_megabytes_comes_whole(connection: Connection, size: int):
    rows = ANSWER_BYTES // size
    blob = bytes(range(100)) * (size // 100)
    connection.insert("insert into t values (?)", (blob,))
    connection.run("create table wide as select t.x as x from t")
    while (count := connection.one("select count(*) from wide")[0]) < rows:
        connection.run("insert into wide select x from wide limit ?", (rows - count,))
    answer = connection.rows("select x from wide")
    assert len(answer) == rows
    assert set(answer) == {(blob,)}


@on_a_server
def test_a_value_that_is_too_large_is_an_error_that_names_the_server(connection: Connection):
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+: .*too big"):
        connection.insert("insert into t values (?)", (bytes(6_000_000),))
    assert connection.one("select count(*) from t") == (0,)


@on_a_server
def test_an_answer_that_is_too_large_is_an_error_that_names_the_server(connection: Connection):
    connection.many("insert into t values (zeroblob(?))", [(4_000_000,)] * 3)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+: .*[Tt]oo large"):
        connection.rows("select x from t")
    assert connection.one("select count(*) from t") == (3,)


def test_statements_together_give_the_rows_of_each(connection: Connection):
    connection.many("insert into t values (?)", [(1,), (2,)])
    statements = [("select x from t order by x", ()), ("select ?", ("a",)), ("select x from t where x > 5", ())]
    assert connection.together(statements) == [[(1,), (2,)], [("a",)], []]
    assert connection.together(statements[:1]) == [[(1,), (2,)]]
    assert connection.together([]) == []
    with connection.transaction():
        connection.run("delete from t where x = 1")
        assert connection.together(statements)[0] == [(2,)]


def test_a_reader_gives_the_rows_of_each_too(empty: Place, connection: Connection, executor: Executor):
    connection.run("insert into t values (1)")
    statements = [("select x from t", ()), ("select ?", ("a",))]
    with closing(empty.reader(executor)) as reader:
        for whole in (True, False):
            assert reader.read_here(lambda inner: inner.together(statements), whole=whole) == [[(1,)], [("a",)]]
            assert reader.read_here(lambda inner: inner.together([]), whole=whole) == []
            assert list(reader.read_here(lambda inner: inner.apart(statements), whole=whole)) == [[(1,)], [("a",)]]
        assert asyncio.run(reader.read(lambda inner: inner.one("select x from t"))) == (1,)


def test_statements_together_see_one_version_while_another_writes(
    empty: Place, connection: Connection, executor: Executor
):
    connection.run("insert into t values (0)")
    over = threading.Event()

    def write() -> None:
        with closing(empty.write()) as writer:
            while not over.is_set():
                writer.run("update t set x = x + 1")

    writing = executor.submit(write)
    try:
        with closing(empty.reader(executor)) as reader:
            twenty = [("select x from t", ())] * 20
            seen = [reader.read_here(lambda inner: inner.together(twenty), whole=False) for _ in range(30)]
    finally:
        over.set()
        writing.result()
    assert all(len({rows[0] for rows in answer}) == 1 for answer in seen)


def test_a_read_transaction_sees_one_version_while_another_writes(empty: Place, connection: Connection):
    connection.run("insert into t values (0)")
    with closing(empty.read()) as reader:
        with reader.transaction(write=False):
            assert reader.one("select x from t") == (0,)
            connection.run("update t set x = 1")
            assert reader.one("select x from t") == (0,)
            assert reader.together([("select x from t", ()), ("select 1", ())])[0] == [(0,)]
        assert reader.one("select x from t") == (1,)


@pytest.mark.parametrize(
    "wrong",
    ["insert into nowhere values (1)", "insert into only values (1)", "nonsense"],
    ids=["table", "twice", "sql"],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_where_one_statement_fails_nothing_of_all_is_left(connection: Connection, wrong: str, position: int):
    connection.run("create table only (x unique)")
    connection.run("insert into only values (1)")
    statements = [("insert into t values (1)", ()), ("create table more (x)", ())]
    statements.insert(position, (wrong, ()))
    with pytest.raises((StoreError, sqlite3.Error)):
        connection.atomically(statements)
    assert connection.rows("select x from t") == []
    assert connection.rows("select name from sqlite_schema where name = 'more'") == []
    connection.atomically([("insert into t values (2)", ()), ("insert into t values (3)", ())])
    assert connection.rows("select x from t") == [(2,), (3,)]


def test_a_transaction_that_raises_leaves_nothing(connection: Connection):
    with suppress(LookupError), connection.transaction():
        connection.run("insert into t values (1)")
        assert connection.one("select count(*) from t") == (1,)
        raise LookupError
    assert connection.rows("select x from t") == []
    with connection.transaction():
        connection.run("insert into t values (2)")
    assert connection.rows("select x from t") == [(2,)]


def test_a_statement_that_fails_ends_the_transaction_and_nothing_is_left(connection: Connection):
    with pytest.raises((StoreError, sqlite3.Error)):
        in_transaction(connection, ("insert into t values (1)", ()), ("insert into nowhere values (1)", ()))
    assert connection.rows("select x from t") == []


@on_a_server
def test_a_transaction_whose_failure_was_caught_cannot_go_on(connection: Connection):
    with suppress(LookupError), connection.transaction():
        connection.run("insert into t values (1)")
        with pytest.raises(StoreError, match="nowhere"):
            connection.run("insert into nowhere values (1)")
        with pytest.raises(StoreError, match="ended the transaction"):
            connection.run("insert into t values (2)")
        raise LookupError
    assert connection.rows("select x from t") == []


def test_an_empty_transaction_does_nothing(connection: Connection):
    with connection.transaction():
        pass
    with connection.transaction(write=False):
        pass
    with pytest.raises(LookupError), connection.transaction():
        raise LookupError


def test_what_a_transaction_wrote_is_seen_by_others_once_it_is_over(empty: Place, connection: Connection):
    with closing(empty.read()) as reader:
        with connection.transaction():
            connection.run("insert into t values (1)")
            assert reader.rows("select x from t") == []
        assert reader.rows("select x from t") == [(1,)]


def test_a_reader_answers_two_threads_at_once(empty: Place, connection: Connection, executor: Executor):
    connection.many("insert into t values (?)", [(n,) for n in range(100)])
    both = threading.Barrier(2, timeout=30)
    with closing(empty.reader(executor)) as reader:

        def sums(inner: Connection) -> list[object]:
            found: list[object] = [inner.one("select sum(x) from t")[0]]
            both.wait()
            return [*found, inner.one("select count(*) from t")[0]]

        asked = [executor.submit(reader.read_here, sums) for _ in range(2)]
        assert [each.result() for each in asked] == [[4950, 100]] * 2


def test_a_reader_whose_work_raises_goes_on_with_the_next(empty: Place, connection: Connection, executor: Executor):
    def fail(inner: Connection) -> None:
        inner.one("select 1")
        raise LookupError

    with closing(empty.reader(executor)) as reader:
        for _ in range(6):
            with pytest.raises(LookupError):
                reader.read_here(fail)
        assert reader.read_here(lambda inner: inner.one("select count(*) from t")) == (0,)
    # None of them is in the way of a writer.
    connection.run("insert into t values (1)")


def test_closing_twice_is_fine(empty: Place, executor: Executor):
    connection = empty.write()
    connection.rows("select 1")
    connection.close()
    connection.close()
    empty.write().close()
    reader = empty.reader(executor)
    reader.read_here(lambda inner: inner.one("select 1"))
    reader.close()
    reader.close()
