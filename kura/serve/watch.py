"""Around every request: an id, headers that keep browsers from harm, a time limit, and a line for the operator."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import cast
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kura.events import tell
from kura.serve.entrance import PRINCIPAL
from kura.serve.problems import CODE, REQUEST_ID, problem
from kura.types import Principal

logger = logging.getLogger(__name__)

ROUTES = ("/mcp", "/api/health", "/api/list", "/api/search", "/api/openapi.json")
"""Paths that are logged as they are; any other one is a caller's own words."""

TimeLeft = Callable[[Scope], float | None]
"""Seconds that the platform leaves a request; None where it sets no limit."""

OwnId = Callable[[Scope], str | None]
"""The id that the platform itself gives a request; None where it gives none."""

_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ONLY_BY_TLS = "max-age=31536000"


class Watched:
    """Gives each request an id, in its answer as in the log, adds headers, and reports what became of it.

    It never answers by itself, so it can stand outside of everything, what answers browsers' preflights among it.
    """

    def __init__(self, app: ASGIApp, *, own_id: OwnId | None = None) -> None:
        self.app = app
        self.own_id = own_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = (self.own_id(scope) if self.own_id is not None else None) or uuid4().hex
        began, status = time.perf_counter(), 0
        # One dictionary for all within: what they add to it is seen here.
        scope[REQUEST_ID] = request_id

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Request-Id"] = request_id
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", _ONLY_BY_TLS)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            path = cast(str, scope["path"]).rstrip("/")
            principal = cast("Principal | None", scope.get(PRINCIPAL))
            tell(
                "request",
                method=scope["method"] if scope["method"] in {"GET", "POST", "OPTIONS", "HEAD"} else "other",
                route=path if path in ROUTES else "other",
                status=status or None,
                code=scope.get(CODE),
                seconds=time.perf_counter() - began,
                caller=principal.name if principal is not None else None,
                request_id=request_id,
            )


class Deadline:
    """Ends a request that takes too long with an answer of its own, before the platform does it with another one.

    What the request had begun in a thread goes on there and ends by its own limits.
    """

    def __init__(self, app: ASGIApp, *, seconds: float, time_left: TimeLeft | None) -> None:
        self.app = app
        self.seconds = seconds
        self.time_left = time_left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer for it when its time is over."""
        left = self.time_left(scope) if self.time_left is not None else None
        seconds = self.seconds if left is None else max(0.0, min(self.seconds, left - _FOR_THE_ANSWER))
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self.app(scope, receive, watched)
        except TimeoutError:
            if not limit.expired() or started:
                raise
            logger.warning("a request took longer than %.3g seconds, request id %s", seconds, scope.get(REQUEST_ID))
            text = f"the request took longer than {seconds:.3g} seconds; ask for less, or again later"
            await problem(504, text, "out_of_time", {"Retry-After": "1"})(scope, receive, send)


_FOR_THE_ANSWER = 0.5  # seconds that are kept for sending it
