"""REST, for scripts: the same answers as the tools, the same rules for what may be asked."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kura.access.principal import open_session
from kura.errors import ArgumentError, KuraError, TooManyRequests
from kura.library.library import Library
from kura.serve.calls import Caller, call, compact, require_fitting
from kura.serve.entrance import Entrance
from kura.serve.health import health_of
from kura.serve.openapi import describe
from kura.serve.problems import REQUEST_ID
from kura.serve.tools import LIST, SEARCH, Answer, Tool

_ALIASES = {"target": "mode"}


def rest_routes(
    library: Library, entrance: Entrance, *, version: str, most_bytes: int | None = None, log_queries: bool = False
) -> list[Route]:
    """The routes below /api.

    Args:
        library: The knowledge bases to serve.
        entrance: Who a request comes from.
        version: Kura's version, for those who are let in.
        most_bytes: A longer answer is refused; None is no limit.
        log_queries: Whether the words of queries may be logged.
    """
    description = describe()

    async def health(request: Request) -> Response:
        # Anyone may ask whether the server is up; what it is and holds is for those who are let in.
        try:
            principal = await entrance(request)
        except TooManyRequests:
            raise
        except KuraError:
            # Not let in, or nobody can say now; that does not mean that this process is down.
            return _json({"status": "ok"})
        session = open_session(principal, None, None)
        return _json({"status": "ok", "version": version} | await health_of(library, session))

    async def openapi(_request: Request) -> Response:
        return _json(description)

    def answer(tool: Tool[Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            principal = await entrance(request)
            caller = Caller(principal, request.scope[REQUEST_ID], log_queries=log_queries)
            given = _parameters(request.scope["query_string"])
            return _json(await call(library, tool, given, caller), most_bytes)

        return respond

    return [
        Route("/api/health", health),
        Route("/api/list", answer(LIST)),
        Route("/api/search", answer(SEARCH)),
        Route("/api/openapi.json", openapi),
    ]


def _json(answer: Answer, most_bytes: int | None = None) -> Response:
    text = compact(answer)
    require_fitting(text, most_bytes)
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
