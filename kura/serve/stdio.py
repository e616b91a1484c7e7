"""MCP over the standard streams of this process."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Generator

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

from kura.serve.mcp import KnowledgeServer

logger = logging.getLogger(__name__)

_Read = AsyncIterable[SessionMessage | Exception]
_Write = Callable[[SessionMessage], Awaitable[None]]


def serve_stdio(server: KnowledgeServer, *, patience: float = 30.0) -> None:
    """Serve one client until it closes our standard input.

    Nothing but protocol messages reaches standard output: while we serve, the descriptor itself leads to standard
    error, for this process and its children.

    Args:
        server: What answers.
        patience: Seconds that requests under way get to finish once the input is closed.
    """
    with _interrupts_end_it():
        try:
            anyio.run(_serve, server, patience)
        except* BrokenPipeError:
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


async def _serve(server: KnowledgeServer, patience: float) -> None:
    async with stdio_server() as (read, write):
        # Text that was printed before, but not yet written, must not turn up among the messages later.
        sys.stdout.flush()
        with contextlib.redirect_stdout(sys.stderr):
            # The transport ends once its writing end is closed.
            async with read, write:
                await _Relay(read, write.send, patience).run(server)


class _Relay:
    """Stands between the streams and the server, for two things that the SDK leaves out.

    A line that is no message gets an error in reply, and the end of the input does not cut off answers under way.
    """

    def __init__(self, read: _Read, write: _Write, patience: float) -> None:
        self._read = read
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
            async for item in self._read:
                if isinstance(item, Exception):
                    await self._write(_refusal(item))
                    continue
                self._note(item)
                await self._to_server.send(item)
            with anyio.move_on_after(self._patience):
                while self._unanswered:
                    await self._answered.wait()

    async def _send(self) -> None:
        async with self._from_server:
            async for item in self._from_server:
                await self._write(item)
                self._note(item)

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


def _refusal(error: Exception) -> SessionMessage:
    if isinstance(error, ValidationError) and error.errors()[0]["type"] == "json_invalid":
        data = ErrorData(code=PARSE_ERROR, message="Parse error: the line is not valid JSON")
    else:
        data = ErrorData(code=INVALID_REQUEST, message="Invalid request: the line is not one JSON-RPC message")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=data))
