"""Errors over HTTP: one shape for all of them (RFC 9457), and the table from exception to answer."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kura.errors import CredentialError, KuraError

logger = logging.getLogger(__name__)


def problem(status: int, detail: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as `application/problem+json`.

    Args:
        status: HTTP status.
        detail: What is wrong and what would be right, for people and models.
        code: What is wrong, for scripts.
        headers: Further headers.
    """
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, "code": code}
    return Response(
        json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"),
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/problem+json",
    )


async def known(_request: Request, error: Exception) -> Response:
    """Answer an error that Kura raised on purpose: each class has its status."""
    assert isinstance(error, KuraError)  # noqa: S101 - Starlette's table is keyed by class; its type is wider
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, CredentialError) else None
    return problem(error.status, str(error), error.code, headers)


async def unrouted(_request: Request, error: Exception) -> Response:
    """Answer what the router raised: no such path, or not with this method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    phrase = HTTPStatus(error.status_code).phrase
    return problem(error.status_code, phrase, phrase.lower().replace(" ", "_"), error.headers)


class Masked:
    """The outermost wall: what nobody foresaw is logged with its trace, and answered with nothing but a request id."""

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
            request_id = uuid4().hex
            logger.exception("a request failed unexpectedly, request id %s", request_id)
            if started:
                raise
            await problem(500, f"internal error, request id {request_id}", "internal")(scope, receive, send)
