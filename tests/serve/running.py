"""Ways to reach one and the same application: in process, under uvicorn, and through Lambda events."""

import asyncio
import base64
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import httpx2
import pytest
import uvicorn
from starlette.types import ASGIApp

from handler.adapter import Handler

if TYPE_CHECKING:
    from mangum.types import LambdaContext

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "events"
EventKind = Literal["function_url", "http_api", "rest_api"]
KINDS: tuple[EventKind, ...] = ("function_url", "http_api", "rest_api")

CONTEXT = cast("LambdaContext", None)
"""The context of an invocation; nothing of it is used."""

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def message(method: str, params: dict[str, Any] | None = None, id: int | str | None = 1) -> dict[str, Any]:  # noqa: A002
    """A JSON-RPC message; without an id, a notification."""
    built: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return built if id is None else {**built, "id": id}


def initialize(version: str = "2025-11-25") -> dict[str, Any]:
    client = {"name": "test", "version": "0"}
    return message("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})


def modern(method: str, params: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of 2026-07-28 and the headers that go with it."""
    headers = {**JSON, "mcp-protocol-version": MODERN, "mcp-method": method}
    if params and "name" in params:
        headers["mcp-name"] = params["name"]
    return message(method, {**(params or {}), "_meta": META}), headers


def call(name: str, **arguments: object) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": arguments})


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}


def command(transport: str, data_dir: Path, **options: object) -> list[str]:
    return [sys.executable, str(ROOT / "tests/serve/process.py"), transport, str(data_dir), json.dumps(options)]


@contextmanager
def process(data_dir: Path, **options: object) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A server under uvicorn on a free port: its URL and the process."""
    started = subprocess.Popen(
        command("http", data_dir, port=0, **options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with started:
        try:
            assert started.stdout is not None
            yield started.stdout.readline().strip(), started
        finally:
            started.kill()


@contextmanager
def talking(data_dir: Path) -> Generator["subprocess.Popen[bytes]"]:
    """A server on standard streams that are pipes; killed if it has not ended by itself."""
    started = subprocess.Popen(
        command("stdio", data_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def event(
    kind: EventKind,
    method: str,
    path: str,
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    encoded: bool = False,
) -> dict[str, Any]:
    """The recorded event of that kind, carrying this request instead of its own."""
    built: dict[str, Any] = json.loads((EVENTS / f"{kind}.json").read_text())
    text = base64.b64encode(body).decode() if encoded else body.decode()
    built |= {"body": text or None, "isBase64Encoded": encoded}
    recorded: dict[str, str] = {"host": built["requestContext"]["domainName"], "x-forwarded-proto": "https"}
    sent = {**recorded, **{name.lower(): value for name, value in (headers or {}).items()}}
    if kind == "rest_api":
        pairs = httpx2.QueryParams(query)
        sent = {name.title(): value for name, value in sent.items()}
        built |= {
            "httpMethod": method,
            "path": path,
            "headers": sent,
            "multiValueHeaders": {name: [value] for name, value in sent.items()},
            "queryStringParameters": dict(pairs) or None,
            "multiValueQueryStringParameters": {name: pairs.get_list(name) for name in pairs} or None,
        }
        built["requestContext"] |= {"httpMethod": method, "path": f"/Prod{path}"}
    else:
        built |= {"rawPath": path, "rawQueryString": query, "headers": sent}
        built["requestContext"]["http"] |= {"method": method, "path": path}
    return built


def answer(result: dict[str, Any]) -> httpx2.Response:
    """What the gateway makes of a handler's result."""
    body: str = result.get("body", "")
    content = base64.b64decode(body) if result["isBase64Encoded"] else body.encode()
    return httpx2.Response(result["statusCode"], headers=result.get("headers", {}), content=content)


class EventTransport(httpx2.AsyncBaseTransport):
    """Sends requests as events to a handler, one after the other, as one Lambda process gets them."""

    def __init__(self, handler: Handler, kind: EventKind) -> None:
        self.handler = handler
        self.kind: EventKind = kind
        self.turn = asyncio.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        built = event(
            self.kind,
            request.method,
            request.url.path,
            query=request.url.query.decode(),
            headers={name: value for name, value in request.headers.items() if name != "host"},
            body=await request.aread(),
        )
        async with self.turn:
            return answer(await asyncio.to_thread(self.handler, built, CONTEXT))


@asynccontextmanager
async def reaching(transport: httpx2.AsyncBaseTransport | str) -> AsyncGenerator[httpx2.AsyncClient]:
    """An HTTP client for a URL, or for an application in this process."""
    if isinstance(transport, str):
        # Without certificates to check: loading them takes longer than the whole test.
        async with httpx2.AsyncClient(base_url=transport, verify=False) as client:
            yield client
    else:
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
            yield client


class Collected(logging.Handler):
    """Keeps what is logged as a failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())


@contextmanager
def nothing_logged() -> Generator[None]:
    collected = Collected()
    logging.getLogger().addHandler(collected)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(collected)
    assert collected.records == []


def asked(app: ASGIApp, method: str, target: str, **sent: Any) -> httpx2.Response:
    """The answer of an application in this process, which leaves no task behind and no complaint in the log."""

    async def ask() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            response = await client.request(method, target, **sent)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return response

    with nothing_logged():
        return asyncio.run(ask())


def sends_at_once(serving: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether connections to what uvicorn is told to serve on send small pieces without waiting for confirmation."""
    found: list[bool] = []

    async def connect(listener: socket.socket) -> None:
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection: socket.socket = writer.get_extra_info("socket")
            accepted.set_result(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            writer.close()

        server = await asyncio.start_server(look, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            found.append(await asyncio.wait_for(accepted, 20))
            writer.close()
            await writer.wait_closed()

    def run(_: uvicorn.Server, sockets: list[socket.socket]) -> None:
        asyncio.run(connect(sockets[0]))

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serving()
    return found == [True]
