"""The one HTTP application: MCP at /mcp, REST below /api."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

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
from kura.access.trust import Trust
from kura.errors import KuraError
from kura.library.library import Library
from kura.serve.challenge import Challenge
from kura.serve.entrance import PRINCIPAL, Entrance
from kura.serve.hosts import HostCheck, OwnHost
from kura.serve.mcp import REFUSED, build_server
from kura.serve.messages import read_message
from kura.serve.problems import Known, Masked, problem, unrouted
from kura.serve.resource import Resource
from kura.serve.rest import rest_routes
from kura.serve.watch import Deadline, OwnId, TimeLeft, Watched
from kura.types import Principal, Rules
from kura.types import Scope as Scoped

if TYPE_CHECKING:
    from kura.serve.limit import RateLimit

MAX_BODY_BYTES = 1_000_000
MAX_ANSWER_BYTES = 5_500_000
"""AWS Lambda takes back six megabytes, its own wrapping among them."""

SECONDS = 25.0
"""How long a request may take: gateways give up after 29 seconds, with an answer that says nothing."""


def build_app(
    library: Library,
    gate: Gate,
    *,
    version: str,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    own_host: OwnHost | None = None,
    own_id: OwnId | None = None,
    time_left: TimeLeft | None = None,
    trust: Trust | None = None,
    seconds: float = SECONDS,
    requests_a_minute: int | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_answer_bytes: int | None = MAX_ANSWER_BYTES,
    log_queries: bool = False,
    traced: bool = False,
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
        own_id: What the platform calls a request.
        time_left: How long the platform lets a request take.
        trust: Which access tokens the gate takes, which is published for OAuth; None where it takes none.
        seconds: A request that takes longer is ended (504).
        requests_a_minute: At most so many from each caller, in this process (429); None is no limit.
        max_body_bytes: A longer request body is refused (413).
        max_answer_bytes: A longer answer is not sent; None is no limit.
        log_queries: Whether the words of queries may be logged.
        traced: Whether traces are sent somewhere.
    """
    entrance = Entrance(gate, _limit(requests_a_minute))
    resource = None if trust is None else Resource(trust, _scopes(library.rules))
    refusals = Known(resource.challenge if resource is not None else Challenge())
    server = build_server(library, _principal, version=version, most_bytes=max_answer_bytes, log_queries=log_queries)
    endpoint = McpEndpoint(server.core, entrance, max_body_bytes, refusals)
    middleware = [
        Middleware(Masked),
        Middleware(HostCheck, hosts=allowed_hosts, origins=allowed_origins, own_host=own_host),
        Middleware(Deadline, seconds=seconds, time_left=time_left),
    ]
    if allowed_origins:
        # Outside of all that answers: a browser shows a page no answer, not even a refusal, without these headers.
        cors = Middleware(
            CORSMiddleware,
            allow_origins=allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["WWW-Authenticate", "Retry-After", "X-Request-Id"],
        )
        middleware.insert(0, cors)
    if traced:
        from kura.serve.tracing import Traced  # noqa: PLC0415 - the SDK of OpenTelemetry need not be there

        middleware.insert(0, Middleware(Traced))
    middleware.insert(0, Middleware(Watched, own_id=own_id))
    rest = rest_routes(library, entrance, version=version, most_bytes=max_answer_bytes, log_queries=log_queries)
    app = Starlette(
        routes=[
            Route("/mcp", endpoint),
            Route("/mcp/", endpoint),
            *rest,
            *(resource.routes() if resource is not None else ()),
        ],
        middleware=middleware,
        exception_handlers={KuraError: refusals, HTTPException: unrouted},
    )
    app.router.redirect_slashes = False
    return app


def _scopes(rules: Rules) -> list[Scoped]:
    return [scope for scope in get_args(Scoped) if scope != "sql:write" or rules.writable]


def _limit(a_minute: int | None) -> "RateLimit | None":
    if a_minute is None:
        return None
    from kura.serve.limit import RateLimit  # noqa: PLC0415 - a quarter of a second that few processes need

    return RateLimit(a_minute)


def _principal(request: Request | None) -> Principal:
    # The request that carried this very message, so nothing is shared between requests that run at once.
    assert request is not None  # noqa: S101 - this server is driven by HTTP alone
    principal: Principal = request.scope[PRINCIPAL]
    return principal


class McpEndpoint:
    """Streamable HTTP without sessions: every request is answered by itself, as JSON, by whichever process gets it.

    Args:
        core: The server that answers.
        entrance: Who a request comes from.
        max_body_bytes: A longer request body is refused (413).
        refusals: How errors are answered.
    """

    def __init__(
        self,
        core: Server[object],
        entrance: Entrance,
        max_body_bytes: int = MAX_BODY_BYTES,
        refusals: Known | None = None,
    ) -> None:
        self._core = core
        self._entrance = entrance
        self._max_body_bytes = max_body_bytes
        self._refusals = refusals or Known(Challenge())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            # Before the credential is asked for: a 401 here would start a client's search for one. There is no stream
            # to GET and no session to DELETE.
            answer = problem(405, "send JSON-RPC messages by POST", "method_not_allowed", {"Allow": "POST"})
            await answer(scope, receive, send)
            return
        request = Request(scope, receive)
        await self._entrance(request)
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
        refused: list[KuraError] = []

        async def answered(message: Message) -> None:
            # What a tool refuses for want of a scope is not an answer to be read by a model: a client that can get
            # a better credential looks at the status (RFC 6750, section 3.1).
            if not refused:
                await send(message)
            elif message["type"] == "http.response.start":
                await self._refusals.answer(refused[0])(scope, receive, send)

        await self._serve({**scope, "headers": headers, REFUSED: refused}, body, receive, answered)

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
