"""The tools over tables: what a model reads of them, and their answers as JSON."""

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from kura.library.library import Library
from kura.serve.arguments import Arguments, opened
from kura.serve.tools import LIST, SEARCH, Answer, Tool, array_of, object_of
from kura.serve.values import Value, to_json, to_value
from kura.sql import MOST_CHARACTERS, MOST_PARAMS
from kura.types import Rules, Session

if TYPE_CHECKING:
    from kura.sql.query import Result

_DB = "Name of the database, as list_rag gives it; it can be left out where there is only one."


def _values(given: object) -> object:
    given = opened(given)
    return tuple(to_value(each) for each in cast("list[object]", given)) if isinstance(given, list) else given


_PARAMS: dict[str, Any] = {
    "type": "array",
    "maxItems": MOST_PARAMS,
    "items": {
        "anyOf": [
            {"type": ["null", "boolean", "integer", "number", "string"]},
            object_of({"base64": {"type": "string"}}) | {"additionalProperties": False},
        ]
    },
}


class QueryArguments(Arguments):
    """What `query` takes."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS)] = Field(
        description="One statement in SQLite's SQL. Write values as ? and give them in params."
    )
    params: Annotated[tuple[Value, ...], BeforeValidator(_values), WithJsonSchema(_PARAMS)] = Field(
        default=(),
        max_length=MOST_PARAMS,
        description='A value for each ?, in their order. A blob is {"base64": "…"}.',
    )
    db: str | None = Field(default=None, min_length=1, max_length=64, description=_DB)


async def run_query(library: Library, session: Session, arguments: QueryArguments) -> Answer:
    """The rows of a statement, each as an object."""
    from kura.sql.query import query  # noqa: PLC0415 - a fifth of a second that not every process needs

    found = await query(library, session, arguments.db, arguments.sql, arguments.params)
    return _query_answer(found) | {"_session": session_of(session)}


def session_of(session: Session) -> Answer:
    """On whose behalf a call ran."""
    return {"tenant_id": session.tenant_id, "user_id": session.user_id}


def _query_answer(found: "Result") -> Answer:
    return {
        "columns": list(found.columns),
        "rows": [dict(zip(found.columns, map(to_json, row), strict=True)) for row in found.rows],
        "affectedRows": found.affected,
        "message": found.message,
        "truncated": found.truncated,
    }


SESSION = object_of(
    {
        "tenant_id": {"type": ["string", "null"], "description": "The tenant that the call ran for."},
        "user_id": {"type": ["string", "null"], "description": "The user that the call ran for."},
    }
)
"""JSON schema of `_session`."""

_READING = (
    "Run one SQL statement (SQLite's dialect) over the tables of a database and get its rows. Call schema_inspect first"
    " to see which tables and columns there are. Besides the tables of the database's owner there are `sources` (the"
    " indexed files) and `chunks` (their passages). Joins, CTEs, window functions, JSON and date functions work; tables"
    " are named without a schema. Use ? for values. Large answers are cut: `truncated` and `message` say so; use limit"
    " and offset, or aggregate."
)
_WRITING = (
    " Where the operator allows it, insert, update and delete change rows too, on these databases: {names}. Elsewhere"
    " only reading works."
)


def query_tool(rules: Rules) -> Tool[QueryArguments]:
    """The tool, as the operator's rules have it."""
    names = ", ".join(sorted(rules.writable))
    return Tool(
        name="query",
        title="Query tables with SQL",
        description=_READING + (_WRITING.format(names=names) if names else " It only reads."),
        arguments=QueryArguments,
        output=object_of(
            {
                "columns": array_of({"type": "string"}, "Names of the columns; one that occurs again has _2, _3 …."),
                "rows": array_of(
                    {"type": "object"},
                    "Rows as objects. Integers beyond 2^53 are decimal strings, blobs are base64.",
                ),
                "affectedRows": {"type": "integer", "minimum": 0, "description": "Rows that the statement changed."},
                "message": {"type": "string", "description": "How many rows there are, and why some were left out."},
                "truncated": {"type": "boolean", "description": "Whether rows were left out."},
                "_session": SESSION,
            }
        ),
        run=run_query,
        writes=bool(names),
    )


def tools_of(rules: Rules) -> tuple[Tool[Any], ...]:
    """All tools, as the operator's rules have them."""
    return LIST, SEARCH, query_tool(rules)
