"""The tools over tables: what a model reads of them, and their answers as JSON."""

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from kura.errors import ArgumentError
from kura.library.library import Library
from kura.serve.arguments import Arguments, opened, whole
from kura.serve.schemas import INSPECT_ANSWER, QUERY_ANSWER, VECTOR_ANSWER
from kura.serve.tools import LIST, SEARCH, Answer, Tool, object_of
from kura.serve.values import Value, to_json, to_value
from kura.sql import MOST_CHARACTERS, MOST_PARAMS
from kura.store.engine import folded
from kura.types import Rules, Session
from kura.vectors.metrics import Metric

if TYPE_CHECKING:
    from kura.sql.inspect import Described, Index
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


MOST_DIMENSIONS = 65_536


def _numbers(given: object) -> object:
    given = opened(given)
    if not isinstance(given, list):
        return given
    numbers = cast("list[object]", given)
    # Numbers alone, and none that is none: booleans and texts are left for the check to refuse.
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        try:
            return tuple(float(cast("float", each)) for each in numbers)
        except OverflowError:
            return numbers
    return numbers


_NUMBERS = WithJsonSchema({"type": "array", "minItems": 1, "maxItems": MOST_DIMENSIONS, "items": {"type": "number"}})
_FILTER_VALUE = WithJsonSchema({"type": ["string", "number", "boolean"]})


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
        output=QUERY_ANSWER,
        run=run_query,
        scopes=("sql",),
        hits=lambda answer: len(answer["rows"]),
        text=lambda arguments: arguments.sql,
        writes=bool(names),
    )


def _filter_value(given: object) -> object:
    return to_value(given) if given is None or isinstance(given, str | bool | int | float) else given


class VectorArguments(Arguments):
    """What `vector_search` takes."""

    table: str = Field(
        min_length=1,
        max_length=200,
        description="A table with a column of vectors, as schema_inspect shows it; chunks for the passages.",
    )
    column: str = Field(
        min_length=1, max_length=200, description="The column that holds the vectors; embedding for chunks."
    )
    query_vector: Annotated[tuple[Annotated[float, Field(strict=False)], ...], BeforeValidator(_numbers), _NUMBERS] = (
        Field(
            min_length=1,
            max_length=MOST_DIMENSIONS,
            description="The vector to compare with, as long as those in the column.",
        )
    )
    k: Annotated[int, BeforeValidator(whole)] = Field(
        default=10, ge=1, le=1000, description="At most this many rows, the nearest ones."
    )
    metric: Metric = Field(
        default="cosine",
        description="How distances are measured; for all of them the smallest is the nearest. dot_product gives its"
        " negative.",
    )
    filter_column: str | None = Field(
        default=None, min_length=1, max_length=200, description="Only rows in which this column …"
    )
    filter_value: Annotated[bool | int | float | str | None, BeforeValidator(_filter_value), _FILTER_VALUE] = Field(
        default=None, description="… has this value."
    )
    db: str | None = Field(default=None, min_length=1, max_length=64, description=_DB)


class InspectArguments(Arguments):
    """What `schema_inspect` takes."""

    table: str | None = Field(
        default=None, min_length=1, max_length=200, description="Only this table or view; left out, all of them."
    )
    db: str | None = Field(default=None, min_length=1, max_length=64, description=_DB)


async def run_vector_search(library: Library, session: Session, arguments: VectorArguments) -> Answer:
    """The nearest rows, with their distances."""
    from kura.sql.vector_search import vector_search  # noqa: PLC0415 - as for `query`

    if (arguments.filter_column is None) != (arguments.filter_value is None):
        raise ArgumentError('invalid argument: "filter_column" and "filter_value" go together')
    filtered = None if arguments.filter_column is None else (arguments.filter_column, arguments.filter_value)
    found = await vector_search(
        library, session, arguments.db, arguments.table, arguments.column, arguments.query_vector, arguments.k,
        arguments.metric, filtered,
    )  # fmt: skip
    results = [
        {
            "id": to_json(near.id[0]) if len(near.id) == 1 else [to_json(part) for part in near.id],
            "distance": near.distance,
            "metadata": {name: to_json(value) for name, value in near.metadata.items()},
        }
        for near in found.results
    ]
    answer: Answer = {
        "table": found.table,
        "column": found.column,
        "index_size": found.index_size,
        "k": arguments.k,
        "metric": arguments.metric,
        "results": results,
    }
    left_out = {reason: count for reason, count in found.left_out.items() if count}
    if left_out:
        answer["left_out"] = left_out
    return answer | {"_session": session_of(session)}


async def run_schema_inspect(library: Library, session: Session, arguments: InspectArguments) -> Answer:
    """The tables, each with all that is known of it."""
    from kura.sql.inspect import schema_inspect  # noqa: PLC0415 - the same

    found = await schema_inspect(library, session, arguments.db, arguments.table)
    return {
        "tables": [_table(each) for each in found],
        "table_count": len(found),
        "_session": session_of(session),
    }


def _table(described: "Described") -> Answer:
    table = described.table
    foreign_of = {folded(foreign.columns[0]): foreign for foreign in described.foreign if len(foreign.columns) == 1}
    columns: list[Answer] = []
    for column in table.columns:
        name = folded(column.name)
        shown: Answer = {
            "name": column.name,
            "type": column.type,
            "primary_key": column.key > 0,
            "not_null": column.not_null,
            "unique": name in described.unique or (column.key > 0 and sum(each.key > 0 for each in table.columns) == 1),
            "default": column.default,
            "foreign_key": None,
        }
        if (foreign := foreign_of.get(name)) is not None:
            shown["foreign_key"] = {"table": foreign.table, "column": next(iter(foreign.referred), None)}
        if column.generated is not None:
            shown["generated"] = column.generated
        columns.append(shown)
    answer: Answer = {
        "name": table.name,
        "kind": table.kind,
        "columns": columns,
        "primary_key": [column.name for column in sorted(table.columns, key=lambda each: each.key) if column.key],
        "foreign_keys": [
            {
                "columns": list(foreign.columns),
                "table": foreign.table,
                "referred": list(foreign.referred),
                "on_update": foreign.on_update,
                "on_delete": foreign.on_delete,
            }
            for foreign in described.foreign
        ],
        "indexes": [_index(index) for index in described.indexes],
        "policies": [
            {"name": policy.name, "command": policy.command, "using": policy.using, "check": policy.check}
            for policy in described.policies
        ],
        "row_count": described.rows,
    }
    if described.notice is not None:
        answer["notice"] = described.notice
    return answer


def _index(index: "Index") -> Answer:
    shown: Answer = {"name": index.name, "kind": index.kind, "columns": list(index.columns)}
    if index.kind == "btree":
        return shown | {"unique": index.unique, "partial": index.partial}
    if index.dimensions is not None:
        shown["dimensions"] = index.dimensions
    return shown | {"count": index.count}


VECTOR_SEARCH = Tool(
    name="vector_search",
    title="Find the nearest vectors",
    description="Find the rows of a table whose vectors are nearest to a vector that you already have, exactly, by one"
    " of four metrics. For a question in words use search_rag instead. schema_inspect shows which columns hold"
    " vectors, and how long they are. Each result has the row's other columns as metadata.",
    arguments=VectorArguments,
    output=VECTOR_ANSWER,
    run=run_vector_search,
    scopes=("sql",),
    hits=lambda answer: len(answer["results"]),
)

INSPECT = Tool(
    name="schema_inspect",
    title="Show tables and columns",
    description="List the tables and views of a database that query can use, with their columns, keys, indexes (for"
    " order, vectors and full text) and row-level policies. Counts are of what this session may see. Call it before"
    " query and vector_search. The passages of the knowledge base are the table chunks, its files the table sources.",
    arguments=InspectArguments,
    output=INSPECT_ANSWER,
    run=run_schema_inspect,
    scopes=("sql",),
    hits=lambda answer: answer["table_count"],
)


def tools_of(rules: Rules) -> tuple[Tool[Any], ...]:
    """All tools, as the operator's rules have them."""
    return LIST, SEARCH, query_tool(rules), VECTOR_SEARCH, INSPECT
