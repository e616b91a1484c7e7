"""JSON schemas of the answers over tables."""

from kura.serve.tools import array_of, object_of

_TEXT = {"type": "string"}
_YES_OR_NO = {"type": "boolean"}

SESSION = object_of(
    {
        "tenant_id": {"type": ["string", "null"], "description": "The tenant that the call ran for."},
        "user_id": {"type": ["string", "null"], "description": "The user that the call ran for."},
    }
) | {"description": "On whose behalf the call ran."}

_COUNT = {
    "type": ["integer", "null"],
    "description": "How many the session may see; null where counting took too long.",
}
_NULLABLE = {"type": ["string", "null"]}
_COLUMN = object_of(
    {
        "name": _TEXT,
        "type": {"type": "string", "description": "The words of its type; empty where it has none."},
        "primary_key": _YES_OR_NO,
        "not_null": _YES_OR_NO,
        "unique": _YES_OR_NO,
        "default": _NULLABLE | {"description": "The SQL of its default value."},
        "foreign_key": {
            "anyOf": [object_of({"table": _TEXT, "column": _NULLABLE}), {"type": "null"}],
            "description": "The column of another table whose values it takes.",
        },
        "generated": {"enum": ["virtual", "stored"], "description": "Where a computed column is kept."},
    },
    "generated",
)
_INDEX = object_of(
    {
        "name": _TEXT,
        "kind": {"enum": ["btree", "vector", "fulltext"]},
        "columns": array_of(_NULLABLE, "Names; null is an expression."),
        "unique": _YES_OR_NO,
        "partial": _YES_OR_NO,
        "dimensions": {"type": "integer", "description": "Length of the vectors."},
        "count": _COUNT,
    },
    "unique",
    "partial",
    "dimensions",
    "count",
)
TABLE = object_of(
    {
        "name": _TEXT,
        "kind": {"enum": ["table", "view", "virtual"]},
        "columns": array_of(_COLUMN, "In their order."),
        "primary_key": array_of(_TEXT, "Names of its columns, in their order."),
        "foreign_keys": array_of(
            object_of(
                {
                    "columns": array_of(_TEXT, "Of this table."),
                    "table": _TEXT,
                    "referred": array_of(_TEXT, "Of the other table."),
                    "on_update": _TEXT,
                    "on_delete": _TEXT,
                }
            ),
            "References to other tables.",
        ),
        "indexes": array_of(_INDEX, "What finds its rows: by order, by vector, by words."),
        "policies": array_of(
            object_of({"name": _TEXT, "command": _TEXT, "using": _NULLABLE, "check": _NULLABLE}),
            "Row-level policies: which rows a session sees and may write.",
        ),
        "row_count": _COUNT,
        "notice": {"type": "string", "description": "Why it cannot be queried."},
    },
    "notice",
)

QUERY_ANSWER = object_of(
    {
        "columns": array_of(_TEXT, "Names of the columns; one that occurs again has _2, _3 …."),
        "rows": array_of(
            {"type": "object"}, "Rows as objects. Integers beyond 2^53 are decimal strings, blobs are base64."
        ),
        "affectedRows": {"type": "integer", "minimum": 0, "description": "Rows that the statement changed."},
        "message": {"type": "string", "description": "How many rows there are, and why some were left out."},
        "truncated": {"type": "boolean", "description": "Whether rows were left out."},
        "_session": SESSION,
    }
)

VECTOR_ANSWER = object_of(
    {
        "table": {"type": "string", "description": "The table that was searched."},
        "column": {"type": "string", "description": "Its column."},
        "index_size": {
            "type": "integer",
            "minimum": 0,
            "description": "Rows with a usable vector that the session may see.",
        },
        "k": {"type": "integer", "description": "How many were asked for."},
        "metric": {"type": "string", "description": "How distances were measured."},
        "results": array_of(
            object_of(
                {
                    "id": {"description": "The primary key or the row's number; a list where it has several parts."},
                    "distance": {"type": "number", "description": "The smaller, the nearer."},
                    "metadata": {"type": "object", "description": "The other columns."},
                }
            ),
            "Nearest first.",
        ),
        "left_out": {
            "type": "object",
            "description": "How many visible rows were not ranked, by reason: wrong_length, not_finite, zero.",
        },
        "_session": SESSION,
    },
    "left_out",
)

INSPECT_ANSWER = object_of(
    {
        "tables": array_of(TABLE, "By name."),
        "table_count": {"type": "integer", "minimum": 0, "description": "How many there are."},
        "_session": SESSION,
    }
)
