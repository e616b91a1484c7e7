"""What is kept open for a server, and until when; the driver and how it is loaded."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import closing

import pytest
from libsql_client.http import HttpClient

from kura.store.engine import Connection
from kura.store.libsql import PipelineClient
from kura.store.remote import open_remote
from local.sqld import Key
from tests.store.places import Place, on_a_server


@pytest.fixture
def connection(empty: Place) -> Generator[Connection]:
    connection = empty.write()
    connection.run("create table t (x)")
    yield connection
    connection.close()


def test_a_closed_reader_still_answers_what_is_under_way(empty: Place, connection: Connection, executor: Executor):
    connection.run("insert into t values (1)")
    reader = empty.reader(executor)
    begun, closed = threading.Event(), threading.Event()

    def work(inner: Connection) -> list[object]:
        found: list[object] = [inner.one("select x from t")[0]]
        begun.set()
        assert closed.wait(timeout=30)
        return [*found, inner.one("select x from t")[0]]

    asked = executor.submit(reader.read_here, work)
    assert begun.wait(timeout=30)
    reader.close()
    closed.set()
    assert asked.result() == [1, 1]
    assert reader.read_here(lambda inner: inner.rows("select x from t"), whole=False) == [(1,)]


@on_a_server
def test_readers_that_are_closed_while_others_ask_break_no_answer(
    empty: Place, connection: Connection, executor: Executor
):
    connection.run("insert into t values (1)")
    for _ in range(20):
        reader = empty.reader(executor)
        asked = [executor.submit(reader.read_here, lambda inner: inner.rows("select x from t")) for _ in range(2)]
        reader.close()
        assert [each.result() for each in asked] == [[(1,)]] * 2


def test_a_closed_connection_to_a_server_keeps_nothing_open(url: str, key: Key):
    token = key.token()
    connection = open_remote(url, lambda: token)
    assert connection.one("select 1") == (1,)
    for _ in range(2):
        connection.close()
        # It warns, and so fails, if a session of the driver is found that nobody has closed.
        gc.collect()
        assert connection.one("select 2") == (2,)
    with connection.transaction(write=False):
        assert connection.one("select 3") == (3,)
    connection.close()
    del connection
    gc.collect()


FORKING = """
import os, signal, sys
from kura.store.remote import open_remote
url, token = sys.argv[1:]
connection = open_remote(url, lambda: token)
connection.run("insert into t values ('parent')")
for _ in range(2):
    child = os.fork()
    if child == 0:
        connection.run("insert into t values ('child')")
        connection.close()
        connection.run("insert into t values ('child')")
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    signal.alarm(20)  # an answer that is never heard of would take half a minute
    connection.run("insert into t values ('parent')")
connection.close()
"""


def test_a_forked_process_and_its_parent_both_go_on(url: str, key: Key):
    token = key.token()
    with closing(open_remote(url, lambda: token)) as connection:
        connection.run("create table t (x)")
        subprocess.run([sys.executable, "-c", FORKING, url, token], check=True, capture_output=True, timeout=60)
        rows = connection.rows("select x, count(*) from t group by x order by x")
    assert rows == [("child", 4), ("parent", 3)]


def test_a_process_that_serves_files_alone_does_not_load_the_driver():
    code = (
        "import sys, kura.store.remote as remote; remote.open_remote('libsql://example.com').close();"
        "sys.exit(' '.join({'aiohttp', 'libsql_client'} & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_driver_still_sends_with_the_method_that_is_replaced():
    sent: list[tuple[str, str, dict[str, object]]] = []

    class Watched(HttpClient):
        def __init__(self) -> None:
            pass

        async def _send(self, method: str, path: str, request_body: dict[str, object]) -> object:
            sent.append((method, path, request_body))
            raise LookupError

    async def ask() -> None:
        with pytest.raises(LookupError):
            await Watched().execute("select ?", [1])
        with pytest.raises(LookupError):
            await Watched().batch([("select ?", [1]), "select 2"])

    asyncio.run(ask())
    assert [(method, path) for method, path, _ in sent] == [("POST", "v1/execute"), ("POST", "v1/batch")]
    assert [list(body) for _, _, body in sent] == [["stmt"], ["batch"]]
    assert "_send" in vars(PipelineClient)
