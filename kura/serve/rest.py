"""REST, for scripts: the same answers as the tools, the same rules for what may be asked."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kura.access.credentials import Gate
from kura.access.principal import open_session
from kura.errors import ArgumentError, CredentialError
from kura.library.library import Library
from kura.serve.arguments import read
from kura.serve.tools import LIST, SEARCH, Answer, Tool

_ALIASES = {"target": "mode"}


def authorization(request: Request) -> str | None:
    """The value of the request's `Authorization` header.

    Raises:
        CredentialError: if there are several, since it is not for us to choose.
    """
    sent = request.headers.getlist("authorization")
    if len(sent) > 1:
        raise CredentialError("more than one Authorization header was sent")
    return sent[0] if sent else None


def rest_routes(library: Library, gate: Gate, *, version: str) -> list[Route]:
    """The routes below /api."""

    async def health(request: Request) -> Response:
        # Anyone may ask whether the server is up; what it is and holds is for those who are let in.
        try:
            principal = await gate(authorization(request))
        except CredentialError:
            return _json({"status": "ok"})
        session = open_session(principal, None, None)
        return _json({"status": "ok", "version": version, "loaded": await library.loaded(session)})

    def answer(tool: Tool[Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            principal = await gate(authorization(request))
            checked = read(tool.arguments, _parameters(request.scope["query_string"]))
            session = open_session(principal, checked.tenant_id, checked.user_id)
            return _json(await tool.run(library, session, checked))

        return respond

    return [
        Route("/api/health", health),
        Route("/api/list", answer(LIST)),
        Route("/api/search", answer(SEARCH)),
    ]


def _json(answer: Answer) -> Response:
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


def _parameters(query_string: bytes) -> dict[str, object]:
    """Parse a query string; whatever is not UTF-8 in it becomes U+FFFD.

    Raises:
        ArgumentError: if a parameter is given twice: it is not for us to choose.
    """
    try:
        pairs = parse_qsl(
            query_string.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=50
        )
    except ValueError:
        raise ArgumentError("too many parameters") from None
    parameters: dict[str, object] = {}
    for sent, value in pairs:
        name = _ALIASES.get(sent, sent)
        if name in parameters:
            shown = f' "{name}"' if len(name) <= 40 and name.isprintable() else ""
            raise ArgumentError(f"invalid argument: the parameter{shown} is given more than once")
        parameters[name] = value
    return parameters
