"""The remote engine: a database on a libSQL server, as the store uses it.

Requests run on one event loop, in a thread of its own, so that they do not depend on a loop that stands still between
two invocations of a function, and so that connections are kept for the next one. The driver is imported with the first
request: a process that serves files alone never pays for it.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from kura.errors import Damaged, KuraError, OutOfTime, QueryFailed, RemoteError, StatementRefused
from kura.store.address import Patience, address
from kura.store.engine import Answered, Asked, Caps, Connection, Reach, Row, Statement, size_of
from kura.store.tokens import Token

if TYPE_CHECKING:
    from kura.store.libsql import PipelineClient, Result

T = TypeVar("T")

_MOST_BYTES = 1_000_000  # of values, in one request of many rows
_MOST_ROWS = 500
_AT_ONCE = 4  # requests, of which each may bring ten megabytes


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="kura-remote", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there, and wait for it here."""
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run `work` there, without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


_loop: _Loop | None = None
_making = threading.Lock()


def _running() -> _Loop:
    global _loop  # noqa: PLW0603 - one loop for the process is what it is for
    with _making:
        if _loop is None:
            _loop = _Loop()
        return _loop


def _forked() -> None:
    """A process that was forked off has neither the thread nor the connections, and makes its own of both."""
    global _loop, _making
    _loop, _making = None, threading.Lock()
    for server in list(_servers):
        server.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Server:
    """One database on a server. Its client is made with the first request, and again in a process that was forked.

    After `close` what is still asked is answered too, over connections that are not kept.
    """

    def __init__(self, url: str, token: Token | None, patience: Patience | None) -> None:
        self.url = address(url)
        self._token: Token = token or (lambda: None)
        self._patience = patience or Patience()
        self._closed = False
        # These change on the loop alone.
        self._client: PipelineClient | None = None
        self._asking = 0
        self._leaving: set[asyncio.Task[object]] = set()
        _servers.add(self)

    async def read(self, statements: Sequence[Statement]) -> "list[Result]":
        async with self._asked() as client:
            return await client.read(statements)

    async def write(self, statements: Sequence[Statement]) -> "list[Result]":
        async with self._asked() as client:
            return await client.write(statements)

    async def stream(
        self, baton: str | None, statements: Sequence[Statement], *, last: bool = False
    ) -> "tuple[str | None, list[Result]]":
        async with self._asked() as client:
            step = await client.stream(baton, statements, last=last)
            return step.baton, step.results

    async def ask(
        self, baton: str, sql: str, params: Sequence[object]
    ) -> tuple[str | None, Answered | StatementRefused | QueryFailed]:
        async with self._asked() as client:
            return await client.ask(baton, sql, params)

    async def version(self) -> object:
        async with self._asked() as client:
            return await client.version()

    async def leave(self, baton: str) -> None:
        """End a transaction that has read; only `close` waits for it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - it runs on the loop
        self._leaving.add(task)
        try:
            with suppress(KuraError):
                await self.stream(baton, [], last=True)
        finally:
            self._leaving.discard(task)

    def close(self) -> None:
        self._closed = True
        if self._client is not None:
            _running().run(self._left())

    def forget(self) -> None:
        """Let go of connections that belong to the process that this one was forked from."""
        if self._client is not None:
            self._client.forget()
        self._client, self._asking, self._leaving = None, 0, set()

    @asynccontextmanager
    async def _asked(self) -> AsyncGenerator["PipelineClient"]:
        client = self._made()
        self._asking += 1
        try:
            yield client
        finally:
            self._asking -= 1
            await self._let_go()

    def _made(self) -> "PipelineClient":
        if self._client is None:
            from kura.store.libsql import PipelineClient  # noqa: PLC0415 - a third of a second that few need

            self._client = PipelineClient(self.url, self._token, self._patience)
        return self._client

    async def _left(self) -> None:
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=self._patience.connect)
        await self._let_go()

    async def _let_go(self) -> None:
        if self._closed and not self._asking and self._client is not None:
            client, self._client = self._client, None
            await client.close()


_servers: WeakSet[_Server] = WeakSet()


class RemoteConnection:
    """A way into a database on a server; `transaction` keeps a stream open there. Not for two threads at once."""

    streams = False

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._open = False  # whether a transaction is around what runs
        self._baton: str | None = None
        self._begin: list[Statement] = []

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        return self._read([(sql, params)])[0]

    def row(self, sql: str, params: Sequence[object] = ()) -> Row | None:
        """Run one statement and return its first row, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def one(self, sql: str, params: Sequence[object] = ()) -> Row:
        """Run one statement whose row must be there, such as an aggregate.

        Raises:
            Damaged: if it is not.
        """
        row = self.row(sql, params)
        if row is None:
            raise Damaged("the database lacks a row that each of Kura's databases has")
        return row

    def run(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one statement; returns how many rows it changed."""
        return self._write([(sql, params)])[0].changed

    def insert(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one insert; returns the new row's id."""
        return self._write([(sql, params)])[0].last_id

    def many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each of `rows`, in requests of bounded size."""
        batch: list[Statement] = []
        size = 0
        for row in rows:
            batch.append((sql, row))
            size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
            if size >= _MOST_BYTES or len(batch) == _MOST_ROWS:
                self._write(batch)
                batch, size = [], 0
        if batch:
            self._write(batch)

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements that read, in one round trip; all see the same version. Returns the rows of each."""
        return self._read(statements) if statements else []

    def apart(self, statements: Sequence[Statement]) -> Iterator[list[Row]]:
        """Run statements that read, each as of a version of its own, several at a time; yields the rows of each."""
        running, waiting = _running(), list(reversed(statements))
        under_way: deque[Future[list[Result]]] = deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < _AT_ONCE:
                    under_way.append(running.submit(self._server.read([waiting.pop()])))
                yield under_way.popleft().result()[0].rows
        finally:
            for each in under_way:
                each.cancel()

    def atomically(self, statements: Sequence[Statement]) -> None:
        """Run statements in one round trip, all of them or, where one fails, none.

        Raises:
            Unreachable: if it cannot be learnt which of the two it was.
        """
        _running().run(self._server.write(statements))

    @contextmanager
    def transaction(self, *, write: bool = True) -> Generator[None]:
        """All or nothing; with `write`, the write lock is taken at once so that nothing is read from an old view.

        The server gives a transaction five seconds once somebody else waits to write, and ends it at the first error.
        """
        self._open, self._baton = True, None
        # Sent along with the first statement.
        self._begin = [("begin immediate" if write else "begin", ())]
        try:
            yield
            if write:
                self._stream([("commit", ())])
        finally:
            baton, self._open, self._baton, self._begin = self._baton, False, None, []
            if baton is not None:
                # What was not committed is taken back when the stream ends.
                if write:
                    _running().run(self._server.leave(baton))
                else:
                    _running().submit(self._server.leave(baton))

    def ask(self, sql: str, params: Sequence[object], reach: Reach, caps: Caps) -> Answered:  # noqa: ARG002
        """Run a statement of an agent's, in the transaction that is around it.

        The server has no authorizer: that a statement reaches no further is up to whoever wrote it. If it takes longer
        than it may, its connection is closed.

        Raises:
            StatementRefused: if the server does not take it.
            QueryFailed: if it failed while it ran, or took too long.
        """
        baton, self._baton = self._baton, None
        if baton is None:
            raise RemoteError("the server has ended the transaction, which took too long or had failed")
        asking = _running().submit(self._server.ask(baton, sql, params))
        try:
            self._baton, answered = asking.result(caps.seconds)
        except TimeoutError as error:
            asking.cancel()
            raise OutOfTime(
                f"the statement was given up after {caps.seconds:g} seconds, before its answer came"
            ) from error
        if not isinstance(answered, Answered):
            raise answered
        return _capped(answered, caps)

    def close(self) -> None:
        """Close it; closing twice is fine."""
        self._server.close()

    def _read(self, statements: Sequence[Statement]) -> list[list[Row]]:
        results = self._stream(statements) if self._open else _running().run(self._server.read(statements))
        return [result.rows for result in results]

    def _write(self, statements: Sequence[Statement]) -> "list[Result]":
        return self._stream(statements) if self._open else _running().run(self._server.write(statements))

    def _stream(self, statements: Sequence[Statement]) -> "list[Result]":
        begin, self._begin = self._begin, []
        if not begin and self._baton is None:
            raise RemoteError("the server has ended the transaction, which took too long or had failed")
        baton, self._baton = self._baton, None
        self._baton, results = _running().run(self._server.stream(baton, [*begin, *statements]))
        return results[len(begin) :]


def _capped(answered: Answered, caps: Caps) -> Answered:
    size, cut = 0, None
    rows: list[Row] = []
    for row in answered.rows:
        size += size_of(row, answered.columns)
        if len(rows) == caps.rows or size > caps.bytes:
            cut = "rows" if len(rows) == caps.rows else "bytes"
            break
        rows.append(row)
    return replace(answered, rows=rows, cut=cut)


class RemoteReader:
    """Reads one database on a server from any number of threads and tasks, through connections that it keeps."""

    def __init__(self, url: str, token: Token | None, executor: Executor, *, patience: Patience | None = None) -> None:
        self._server = _Server(url, token, patience)
        self._executor = executor

    async def read(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """Run `work` in a worker thread, inside one read transaction: all its statements see the same version.

        Without `whole`, each of its statements is a transaction of its own, which saves round trips.
        """
        run = partial(self.read_here, work, whole=whole)
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)

    def read_here(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """As `read`, in the calling thread."""
        connection = RemoteConnection(self._server)
        with connection.transaction(write=False) if whole else nullcontext():
            return work(connection)

    def version(self) -> object:
        """What is another one after each change that anybody commits; None where the server does not tell."""
        return _running().run(self._server.version())

    @contextmanager
    def guarded(self, *, write: bool = False) -> Generator[Asked]:  # noqa: ARG002 - the token decides
        """A way into the database for one statement of an agent's."""
        yield RemoteConnection(self._server)

    def close(self) -> None:
        """Close its connections."""
        self._server.close()


def open_remote(url: str, token: Token | None = None, *, patience: Patience | None = None) -> RemoteConnection:
    """Open a database on a server; nothing is sent yet.

    Args:
        url: `libsql://`, `https://` or `http://`.
        token: Gives the token to send, anew for each request.
        patience: How long to wait.

    Raises:
        ConfigurationError: if the URL is none.
    """
    return RemoteConnection(_Server(url, token, patience))
