"""The one HTTP application: MCP at /mcp, REST below /api."""

import contextlib
from collections.abc import Sequence

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ErrorData, JSONRPCError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kura.access.credentials import Gate
from kura.errors import KuraError
from kura.library.library import Library
from kura.serve.hosts import HostCheck, OwnHost
from kura.serve.mcp import build_server
from kura.serve.messages import read_message
from kura.serve.problems import Masked, known, problem, unrouted
from kura.serve.rest import authorization, rest_routes
from kura.types import Principal

MAX_BODY_BYTES = 1_000_000
_PRINCIPAL = "kura.principal"


def build_app(
    library: Library,
    gate: Gate,
    *,
    version: str,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    own_host: OwnHost | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> ASGIApp:
    """The ASGI application that every way of hosting serves. It needs no lifespan events.

    Args:
        library: The knowledge bases to serve.
        gate: Who a request comes from.
        version: Kura's version, which callers are told.
        allowed_hosts: Host names, besides loopback, that requests may be addressed to; written with a port, only
            with that port.
        allowed_origins: Web origins whose pages may call.
        own_host: What the platform says a request was addressed to; such a host is allowed.
        max_body_bytes: A longer request body is refused (413).
    """
    server = build_server(library, _principal, version=version)
    endpoint = McpEndpoint(server.core, gate, max_body_bytes)
    middleware = [
        Middleware(Masked),
        Middleware(HostCheck, hosts=allowed_hosts, origins=allowed_origins, own_host=own_host),
    ]
    if allowed_origins:
        # Outermost: a browser shows a page no answer, not even a refusal, without these headers.
        cors = Middleware(
            CORSMiddleware,
            allow_origins=allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["WWW-Authenticate"],
        )
        middleware.insert(0, cors)
    app = Starlette(
        routes=[Route("/mcp", endpoint), Route("/mcp/", endpoint), *rest_routes(library, gate, version=version)],
        middleware=middleware,
        exception_handlers={KuraError: known, HTTPException: unrouted},
    )
    app.router.redirect_slashes = False
    return app


def _principal(request: Request | None) -> Principal:
    # The request that carried this very message, so nothing is shared between requests that run at once.
    assert request is not None  # noqa: S101 - this server is driven by HTTP alone
    principal: Principal = request.scope[_PRINCIPAL]
    return principal


class McpEndpoint:
    """Streamable HTTP without sessions: every request is answered by itself, as JSON, by whichever process gets it.

    Args:
        core: The server that answers.
        gate: Who a request comes from.
        max_body_bytes: A longer request body is refused (413).
    """

    def __init__(self, core: Server[object], gate: Gate, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._core = core
        self._gate = gate
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            # Before the credential is asked for: a 401 here would start a client's search for one. There is no stream
            # to GET and no session to DELETE.
            answer = problem(405, "send JSON-RPC messages by POST", "method_not_allowed", {"Allow": "POST"})
            await answer(scope, receive, send)
            return
        request = Request(scope, receive)
        principal = await self._gate(authorization(request))
        # What the SDK refuses in plain text, or by quoting what was sent, is refused here.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            answer = problem(400, "send JSON-RPC messages as Content-Type: application/json", "wrong_content_type")
            await answer(scope, receive, send)
            return
        try:
            body = await _read(request, self._max_body_bytes)
        except ClientDisconnect:
            return
        if body is None:
            answer = problem(413, f"a body may be at most {self._max_body_bytes:,} bytes long", "body_too_long")
            await answer(scope, receive, send)
            return
        message = read_message(body, "body")
        if isinstance(message, ErrorData):
            refusal = JSONRPCError(jsonrpc="2.0", id=None, error=message).model_dump_json(exclude_unset=True)
            await Response(refusal, 400, media_type="application/json")(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        if "accept" not in request.headers:
            headers.append((b"accept", b"*/*"))  # which is what leaving it out means (RFC 9110, section 12.5.1)
        await self._serve({**scope, "headers": headers, _PRINCIPAL: principal}, body, receive, send)

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return pieces.pop() if pieces else await receive()

        # A manager lives for one request: it needs no lifespan, which some platforms run for each request or never,
        # and it leaves no task behind. Hosts and origins are already checked, for all routes alike.
        manager = StreamableHTTPSessionManager(
            app=self._core,
            stateless=True,
            json_response=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with manager.run():
            await manager.handle_request(scope, replayed, send)


async def _read(request: Request, most: int) -> bytes | None:
    """The whole body, or nothing as soon as it is certain to be longer than that many bytes.

    Raises:
        ClientDisconnect: if it never arrives.
    """
    # The header only announces a length, and a body that comes in chunks has none: what arrives is counted.
    with contextlib.suppress(ValueError):
        if int(request.headers.get("content-length", "")) > most:
            return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)
