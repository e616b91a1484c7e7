"""Servers that are down, that others speak through, and that refuse: with a real one wherever one can do it."""

import contextlib
import socket
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kura.errors import StoreError, TokenRefused, Unreachable
from kura.store.address import Patience
from kura.store.engine import Connection
from kura.store.remote import open_remote
from local.sqld import Key, libsql_server

Ask = Callable[[Connection], object]


def read(connection: Connection) -> object:
    return connection.rows("select x from t")


def read_together(connection: Connection) -> object:
    return connection.together([("select 1", ()), ("select x from t", ())])


def read_in_transaction(connection: Connection) -> object:
    with connection.transaction(write=False):
        return connection.rows("select x from t")


def run(connection: Connection) -> object:
    return connection.run("insert into t values (2)")


def run_many(connection: Connection) -> object:
    return connection.many("insert into t values (?)", [(2,), (3,)])


def create(connection: Connection) -> object:
    return connection.run("create table more (x)")


def run_atomically(connection: Connection) -> object:
    return connection.atomically([("insert into t values (2)", ()), ("delete from t", ())])


def run_in_transaction(connection: Connection) -> object:
    with connection.transaction():
        return connection.run("insert into t values (2)")


READS = [read, read_together, read_in_transaction]
WRITES = [run, run_many, create, run_atomically, run_in_transaction]


@pytest.fixture
def filled(url: str, key: Key) -> str:
    """The URL of a database with one row in it."""
    token = key.token()
    with closing(open_remote(url, lambda: token)) as connection:
        connection.atomically([("create table t (x)", ()), ("insert into t values (1)", ())])
    return url


def rows_there(url: str, key: Key) -> object:
    token = key.token()
    with closing(open_remote(url, lambda: token)) as connection:
        return connection.rows("select x from t")


@pytest.mark.parametrize("ask", READS)
def test_a_token_that_reads_reads(filled: str, key: Key, ask: Ask):
    token = key.token(read_only=True)
    with closing(open_remote(filled, lambda: token)) as connection:
        assert ask(connection) in ([(1,)], [[(1,)], [(1,)]])


@pytest.mark.parametrize("ask", WRITES)
def test_a_token_that_reads_does_not_write(filled: str, key: Key, ask: Ask):
    token = key.token(read_only=True)
    with closing(open_remote(filled, lambda: token)) as connection:
        with pytest.raises(
            TokenRefused, match=r"127\.0\.0\.1:\d+ refused access: the token is not, or no longer, good"
        ):
            ask(connection)
        # The connection itself is none the worse.
        assert read(connection) == [(1,)]
    assert rows_there(filled, key) == [(1,)]


@pytest.mark.parametrize("ask", [*READS, *WRITES])
@pytest.mark.parametrize("which", ["expired", "of-another-key", "cut-short", "none"])
def test_a_token_that_is_not_good_is_refused(filled: str, key: Key, which: str, ask: Ask):
    tokens = {
        "expired": key.token(seconds=-3600),
        "of-another-key": Key().token(),
        "cut-short": key.token()[:-5],
        "none": None,
    }
    with (
        closing(open_remote(filled, lambda: tokens[which])) as connection,
        pytest.raises(TokenRefused, match=r"127\.0\.0\.1:\d+ refused access") as caught,
    ):
        ask(connection)
    assert (tokens[which] or "nothing") not in "".join(traceback.format_exception(caught.value))
    assert rows_there(filled, key) == [(1,)]


def test_a_token_that_was_replaced_is_used_with_the_next_request(filled: str, key: Key):
    tokens = [key.token(seconds=-3600)]
    with closing(open_remote(filled, lambda: tokens[-1])) as connection:
        with pytest.raises(TokenRefused):
            read(connection)
        tokens.append(key.token())
        assert read(connection) == [(1,)]


@pytest.mark.parametrize("ask", READS)
def test_a_server_that_was_killed_and_is_up_again_answers(tmp_path: Path, ask: Ask):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(libsql_server(tmp_path))
        connection = stack.enter_context(closing(open_remote(first.url)))
        connection.atomically([("create table t (x)", ()), ("insert into t values (1)", ())])
        before = ask(connection)
        first.process.kill()
        first.process.wait()
        stack.enter_context(libsql_server(tmp_path, port=int(first.url.rpartition(":")[2])))
        assert ask(connection) == before
        connection.run("insert into t values (2)")
        assert connection.rows("select x from t") == [(1,), (2,)]


def test_a_server_that_is_up_again_while_reading_is_tried_again_answers(tmp_path: Path):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(libsql_server(tmp_path))
        connection = stack.enter_context(closing(open_remote(first.url, patience=Patience(attempts=20, pause=0.01))))
        connection.run("create table t (x)")
        first.process.kill()
        first.process.wait()
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(read(connection)))
        asking.start()
        stack.enter_context(libsql_server(tmp_path, port=int(first.url.rpartition(":")[2])))
        asking.join()
    assert answers == [[]]


@pytest.mark.parametrize("ask", [*READS, *WRITES])
def test_a_server_that_was_killed_for_good_is_unreachable(tmp_path: Path, ask: Ask):
    with libsql_server(tmp_path) as server:
        host = server.url.removeprefix("http://")
        with closing(open_remote(server.url, patience=Patience(pause=0.0))) as connection:
            connection.run("create table t (x)")
            server.process.kill()
            server.process.wait()
            # The first one may meet the connection that was open, the second one none at all.
            with pytest.raises(Unreachable, match=host):
                ask(connection)
            with pytest.raises(Unreachable, match=f"{host} cannot be reached: connection refused"):
                ask(connection)


def test_a_transaction_whose_server_is_killed_in_it_leaves_nothing(tmp_path: Path):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(libsql_server(tmp_path))
        connection = stack.enter_context(closing(open_remote(first.url, patience=Patience(pause=0.0))))
        connection.run("create table t (x)")

        def work() -> None:
            with connection.transaction():
                connection.run("insert into t values (1)")
                first.process.kill()
                first.process.wait()

        with pytest.raises(Unreachable):
            work()
        stack.enter_context(libsql_server(tmp_path, port=int(first.url.rpartition(":")[2])))
        assert read(connection) == []


def test_a_transaction_does_not_go_on_at_a_server_that_was_started_anew(tmp_path: Path):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(libsql_server(tmp_path))
        connection = stack.enter_context(closing(open_remote(first.url)))
        connection.run("create table t (x)")

        def work() -> None:
            with connection.transaction():
                connection.run("insert into t values (1)")
                first.process.kill()
                first.process.wait()
                stack.enter_context(libsql_server(tmp_path, port=int(first.url.rpartition(":")[2])))
                connection.run("insert into t values (2)")

        with pytest.raises(StoreError, match=first.url.removeprefix("http://")):
            work()
        assert read(connection) == []


@contextmanager
def saying(reply: bytes) -> Generator[str]:
    """A server that says this, whatever it is asked; yields its host."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client:
                        client.recv(65536)
                        client.sendall(reply)

        answering = threading.Thread(target=answer)
        answering.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            answering.join()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["nothing", "ssh", "half-a-header", "wrong-length"],
)
def test_what_does_not_speak_http_is_unreachable(reply: bytes):
    with (
        saying(reply) as host,
        closing(open_remote(f"http://{host}", lambda: "c2VjcmV0", patience=Patience(pause=0.0))) as connection,
    ):
        with pytest.raises(Unreachable, match=f"{host} broke") as caught:
            read(connection)
        assert "c2VjcmV0" not in "".join(traceback.format_exception(caught.value))
        assert "c2VjcmV0" not in repr(caught.value.__cause__)


def test_a_server_without_encryption_is_not_taken_for_one_with_it():
    with (
        saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as host,
        closing(open_remote(f"libsql://{host}", patience=Patience(pause=0.0))) as connection,
        pytest.raises(Unreachable, match=host),
    ):
        read(connection)


def test_a_server_that_takes_no_connection_is_left_after_a_while():
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        # They wait to be accepted, and leave no place for another one.
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        patience = Patience(connect=0.1, total=30.0, pause=0.0)
        connection = stack.enter_context(closing(open_remote(f"http://{host}", patience=patience)))
        with pytest.raises(Unreachable, match=f"^{host} cannot be reached: no connection in 0.1 seconds$"):
            run(connection)


def test_a_name_that_nobody_has_is_unreachable(monkeypatch: pytest.MonkeyPatch):
    def nobody(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # Not every machine that tests run on has somebody to ask for names.
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with (
        closing(open_remote("libsql://notes.example", patience=Patience(pause=0.0))) as connection,
        pytest.raises(Unreachable, match=r"^notes\.example cannot be reached: no such host is known"),
    ):
        read(connection)
