"""Row `warm`: a search through the Lambda handler that has answered before."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from mangum import Mangum
from mcp.server import MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from handler.adapter import Handler
from kura.embed.choose import Identity
from kura.embed.hashing import HashingEmbedder
from kura.settings import Settings
from tests.bench.children import Json, question, search_call
from tests.bench.corpus import Bench
from tests.bench.line import Finding, Line, at_most
from tests.bench.measure import here, interleaved
from tests.serve.running import CONTEXT, JSON, event

GOAL = 3.0
ECHO = "SDK echo tool"

Invoke = Callable[[dict[str, Any]], dict[str, Any]]


def warm(bench: Bench) -> Iterator[Finding]:
    """`search_rag` for each mode beside a tool that gives back its argument, both behind Mangum."""
    hashing = HashingEmbedder()
    data_dir = bench.served(Identity(hashing.name, hashing.dimension))
    with closing(Handler(Settings(data_dir=data_dir, embedder="hashing", public=True, key_hash=None))) as handler:
        q = question(60, 400)

        def kura(built: dict[str, Any]) -> dict[str, Any]:
            return handler(built, CONTEXT)

        asyncio.set_event_loop(handler.loop)
        echo = echoing()
        asked = {
            "keyword": (kura, search_call(q, mode="keyword")),
            "both modes": (kura, search_call(q)),
            ECHO: (echo, echo_call(q)),
        }
        sizes = {name: len(_answered(invoke, message)) for name, (invoke, message) in asked.items()}
        timings = interleaved(
            {name: here(_invoking(invoke, message)) for name, (invoke, message) in asked.items()},
            bench.scale.rounds_of(2),
        )
    for name in ("keyword", "both modes"):
        yield Line(
            f"warm search_rag, {name}",
            timings[name],
            ECHO,
            timings[ECHO],
            at_most(GOAL, timings[name], timings[ECHO]),
            f"{bench.scale.chunks:,} chunks, embedder hashing; {sizes[name]:,} bytes beside {sizes[ECHO]:,}",
        )


def echoing() -> Invoke:
    """A server of the SDK with one tool behind Mangum, as lean as it can be: one session manager per request."""
    server: MCPServer[Any] = MCPServer("echo", log_level="WARNING")

    @server.tool()
    def echo(text: str) -> str:
        return text

    server.streamable_http_app(json_response=True, stateless_http=True)
    core = server.session_manager.app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        manager = StreamableHTTPSessionManager(
            app=core,
            stateless=True,
            json_response=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    adapter = Mangum(app, lifespan="off")
    return lambda built: adapter(built, CONTEXT)


def echo_call(text: str) -> Json:
    """The JSON-RPC message that asks for an echo."""
    return {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": text}},
    }


def _event(message: Json) -> dict[str, Any]:
    return event("function_url", "POST", "/mcp", headers=JSON, body=json.dumps(message).encode())


def _invoking(invoke: Invoke, message: Json) -> Callable[[], object]:
    built = _event(message)
    return lambda: invoke(built)


def _answered(invoke: Invoke, message: Json) -> str:
    answer = invoke(_event(message))
    body: str = answer["body"]
    if answer["statusCode"] != 200 or json.loads(body)["result"].get("isError"):
        raise RuntimeError(f"the tool failed: {body}")
    return body
