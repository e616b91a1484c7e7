"""MCP over the standard streams of this process."""

import asyncio
import contextlib
import errno
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError
from typing import Any, TextIO

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from kura.serve.mcp import KnowledgeServer
from kura.serve.messages import read_message

logger = logging.getLogger(__name__)

_Write = Callable[[SessionMessage], Awaitable[None]]


def serve_stdio(server: KnowledgeServer, *, patience: float = 30.0) -> None:
    """Serve one client until it closes our standard input.

    It ends as well when the client no longer reads what we write, whether or not its end of our input is open.

    Nothing but protocol messages reaches standard output: while we serve, the descriptor itself leads to standard
    error, for this process and its children.

    Args:
        server: What answers.
        patience: Seconds that requests under way get to finish once the input is closed.
    """
    with _interrupts_end_it():
        try:
            anyio.run(_serve, server, patience)
        except* ConnectionError:
            logger.info("the client stopped reading")


@contextlib.contextmanager
def _interrupts_end_it() -> Generator[None]:
    """Let Ctrl-C end the process at once: a thread that waits for input cannot be told to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _own_input() -> Generator[TextIO]:
    """Standard input for us alone: whoever else reads the descriptor, a tool or a child, finds the null device."""
    private = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        # Never closed: a thread may still be waiting in it.
        yield os.fdopen(private, encoding="utf-8", errors="replace", closefd=False)
    finally:
        os.dup2(private, 0)


@contextlib.contextmanager
def _lines_of(file: TextIO) -> Generator[AsyncIterable[str]]:
    """The lines of a file, read by a thread that neither the loop nor the end of the process has to wait for."""
    loop = asyncio.get_running_loop()
    to_us, lines = anyio.create_memory_object_stream[str]()

    async def end() -> None:
        to_us.close()

    def done(work: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, loop).result()
        finally:
            work.close()  # where the loop is gone, nobody has begun with it

    def read() -> None:
        # Not the thread's concern: that the loop has ended before the input.
        with contextlib.suppress(RuntimeError, CancelledError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            # Where the input is a socket, a client that is gone may show as an error: it is an end like any other.
            with contextlib.suppress(OSError):
                for line in file:
                    done(to_us.send(line))
            done(end())

    threading.Thread(target=read, name="kura-input", daemon=True).start()
    with lines, to_us:
        yield lines


async def _serve(server: KnowledgeServer, patience: float) -> None:
    # The SDK writes; what it would read is empty, since it takes a request with an impossible id for a notification.
    with _own_input() as file, _lines_of(file) as lines:
        async with stdio_server(stdin=anyio.wrap_file(io.StringIO())) as (read, write):
            # Text that was printed before, but not yet written, must not turn up among the messages later.
            sys.stdout.flush()
            with contextlib.redirect_stdout(sys.stderr):
                # The transport ends once its writing end is closed.
                async with read, write:
                    await _Relay(lines, write.send, patience).run(server)


class _Relay:
    """Stands between the streams and the server, for two things that the SDK leaves out.

    A line that is no message gets an error in reply, and the end of the input does not cut off answers under way.
    """

    def __init__(self, lines: AsyncIterable[str], write: _Write, patience: float) -> None:
        self._lines = lines
        self._write = write
        self._patience = patience
        self._unanswered: set[str | int] = set()
        self._answered = anyio.Event()
        self._to_server, self._requests = anyio.create_memory_object_stream[SessionMessage | Exception]()
        self._answers, self._from_server = anyio.create_memory_object_stream[SessionMessage]()

    async def run(self, server: KnowledgeServer) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive)
            tasks.start_soon(self._send)
            await server.core.run(self._requests, self._answers, server.core.create_initialization_options())

    async def _receive(self) -> None:
        async with self._to_server:
            async for line in self._lines:
                message = read_message(line, "line")
                if isinstance(message, ErrorData):
                    await self._put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=message)))
                    continue
                item = SessionMessage(message)
                self._note(item)
                await self._to_server.send(item)
            with anyio.move_on_after(self._patience):
                while self._unanswered:
                    await self._answered.wait()

    async def _send(self) -> None:
        async with self._from_server:
            async for item in self._from_server:
                await self._put(item)
                self._note(item)

    async def _put(self, item: SessionMessage) -> None:
        try:
            await self._write(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise BrokenPipeError(errno.EPIPE, "the transport could not write any more") from None

    def _note(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=request):
                self._unanswered.add(request)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as request}):
                self._settle(request)
            case JSONRPCResponse(id=request) | JSONRPCError(id=str() | int() as request):
                self._settle(request)
            case _:
                pass

    def _settle(self, request: str | int) -> None:
        self._unanswered.discard(request)
        self._answered.set()
        self._answered = anyio.Event()
