"""The description of the REST API for programs (OpenAPI 3.1), from the same definitions that answer it."""

from typing import Any

from kura.serve.arguments import schema
from kura.serve.tools import LIST, SEARCH, Tool, array_of, object_of

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}

_PROBLEM = object_of(
    {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string", "description": "The phrase of the status."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What is wrong and what would be right, for people and models."},
        "code": {"type": "string", "description": "What is wrong, for scripts."},
    }
)

_HEALTH = object_of(
    {
        "status": {"type": "string", "const": "ok"},
        "version": {"type": "string", "description": "Kura's version."},
        "loaded": array_of(_TEXT, "Names of the databases that can be searched now."),
        "databases": array_of(
            object_of(
                {
                    "db": _TEXT,
                    "state": {"enum": ["open", "not open"]},
                    "since": {"type": "string", "description": "When this process opened it (UTC)."},
                    "version": _COUNT | {"description": "The version of the knowledge whose vectors are loaded."},
                    "vectors": _COUNT | {"description": "How many vectors are loaded."},
                },
                "since",
                "version",
                "vectors",
            ),
            "All databases that the caller may see.",
        ),
        "embedder": _TEXT | {"description": "Its name, or why there is none: none, loading, failed."},
    },
    "version",
    "loaded",
    "databases",
    "embedder",
)

_PROBLEMS = {
    "400": "An argument is unknown, missing, or against its rules.",
    "401": "No credential, or not a valid one.",
    "403": "The credential is valid, but does not reach this far; or a page of another origin calls.",
    "404": "No such database, or none that the caller may see.",
    "409": "The database holds vectors of another embedder.",
    "421": "The request is addressed to a host that this server does not answer to.",
    "422": "The answer would be longer than may be sent.",
    "429": "The caller sends more requests than it may; Retry-After says when to go on.",
    "500": "Something unforeseen; the detail holds a request id that the log holds too.",
    "502": "The branch of the search that was asked for does not work, or a server of databases says no.",
    "503": "A database, or the server that signs credentials, cannot be reached now.",
    "504": "The request took longer than it may.",
}
_OF_LIST = ("400", "401", "403", "421", "422", "429", "500", "502", "503", "504")


def describe() -> dict[str, Any]:
    """The description. It is for everyone, so it tells of this API's version, not of Kura's."""
    health: dict[str, Any] = {
        "operationId": "health",
        "summary": "Whether the server is up, and for those who are let in, what it has loaded",
        "security": [{}, {"bearer": []}],
        "responses": _answers(_HEALTH, ("403", "421", "429", "500", "504")),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kura", "version": "1", "summary": "Search over named knowledge bases."},
        "security": [{"bearer": []}],
        "paths": {
            "/api/health": {"get": health},
            "/api/list": {"get": _operation(LIST, _OF_LIST)},
            "/api/search": {"get": _operation(SEARCH, tuple(_PROBLEMS))},
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or an access token."}
            },
            "schemas": {"Problem": _PROBLEM},
        },
    }


def _operation(tool: Tool[Any], problems: tuple[str, ...]) -> dict[str, Any]:
    taken = schema(tool.arguments)
    required = set(taken.get("required", ()))
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": known.get("description", ""),
            "schema": _given(
                {key: value for key, value in known.items() if key != "description"}, required=name in required
            ),
        }
        for name, known in taken["properties"].items()
    ]
    return {
        "operationId": tool.name,
        "summary": tool.title,
        "parameters": parameters,
        "responses": _answers(tool.output, problems),
    }


def _given(rule: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """What may stand for a parameter in a query string, where clients leave some open rather than out."""
    if required:
        return rule
    default = {"default": rule["default"]} if "default" in rule else {}
    known = {key: value for key, value in rule.items() if key != "default"}
    return default | {"anyOf": [known, {"enum": ["", "null"], "description": "The same as leaving it out."}]}


def _answers(output: dict[str, Any], problems: tuple[str, ...]) -> dict[str, Any]:
    shape = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    known = {status: {"description": _PROBLEMS[status], "content": shape} for status in problems}
    return {"200": {"description": "The answer.", "content": {"application/json": {"schema": output}}}} | known
