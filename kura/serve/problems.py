"""Errors over HTTP: one shape for all of them (RFC 9457), and the table from exception to answer."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kura.errors import KuraError
from kura.serve.challenge import Challenge

logger = logging.getLogger(__name__)


CODE = "kura.code"
"""Where an ASGI scope holds the code of the error that a request was answered with."""

REQUEST_ID = "kura.request_id"
"""Where an ASGI scope holds the request's id."""


class Problem(Response):
    """An error as `application/problem+json`, which leaves word of its code for those who watch the server."""

    def __init__(self, status: int, detail: str, code: str, headers: Mapping[str, str] | None) -> None:
        title = HTTPStatus(status).phrase
        body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}
        super().__init__(
            json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"),
            status_code=status,
            headers={"Cache-Control": "no-store", **(headers or {})},
            media_type="application/problem+json",
        )
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        scope[CODE] = self._code
        await super().__call__(scope, receive, send)


def problem(status: int, detail: str, code: str, headers: Mapping[str, str] | None = None) -> Problem:
    """An error as `application/problem+json`.

    Args:
        status: HTTP status.
        detail: What is wrong and what would be right, for people and models.
        code: What is wrong, for scripts.
        headers: Further headers.
    """
    return Problem(status, detail, code, headers)


class Known:
    """Answers an error that Kura raised on purpose: each class has its status.

    Args:
        challenge: What goes along for those whose credential does not do.
    """

    def __init__(self, challenge: Challenge) -> None:
        self._challenge = challenge

    async def __call__(self, _request: Request, error: Exception) -> Response:
        """The answer, as Starlette's table of handlers asks for it."""
        return self.answer(error)

    def answer(self, error: Exception) -> Response:
        """The answer."""
        assert isinstance(error, KuraError)  # noqa: S101 - Starlette's table is keyed by class; its type is wider
        return problem(error.status, str(error), error.code, self._challenge.headers(error))


async def unrouted(_request: Request, error: Exception) -> Response:
    """Answer what the router raised: no such path, or not with this method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    phrase = HTTPStatus(error.status_code).phrase
    return problem(error.status_code, phrase, phrase.lower().replace(" ", "_"), error.headers)


class Masked:
    """The outer wall: what nobody foresaw is logged with its trace, and answered with nothing but a request id."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer for what it raises."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            request_id = scope[REQUEST_ID]
            logger.exception("a request failed unexpectedly, request id %s", request_id)
            if started:
                raise
            await problem(500, f"internal error, request id {request_id}", "internal")(scope, receive, send)
