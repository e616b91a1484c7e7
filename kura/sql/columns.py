"""Reading a table's vector column, and which of its rows a session may see."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from kura.library.columns import LoadedColumn
from kura.sql.dialect import written
from kura.sql.grammar import function_name, nodes
from kura.sql.guard import Binding, Value
from kura.sql.schema import Column, Schema, Table
from kura.store.engine import Asked, Caps, Reach, Row, folded, quoted, rows_per_answer
from kura.vectors.blobs import usable
from kura.vectors.metrics import rows_of

Keys = NDArray[np.int64]

_DECLARED = re.compile(r"(?:f32_blob|float32|vector|vector32)\s*\(\s*(\d+)\s*\)", re.IGNORECASE)
_PAGE = 5_000  # rows


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column that may hold vectors, and how many numbers it says that they have; None where it does not say."""

    table: Table
    column: Column
    dimension: int | None


def declared_dimension(column: Column) -> int | None:
    """The length of a column's vectors, if its type says so, as libSQL's does: `F32_BLOB(384)`."""
    found = _DECLARED.fullmatch(column.type.strip())
    return int(found[1]) if found else None


def vector_columns(schema: Schema) -> list[VectorColumn]:
    """The columns of the user's tables that may hold vectors: declared ones, and plain blobs."""
    return [
        VectorColumn(table, column, declared_dimension(column))
        for table in schema.tables.values()
        if table.kind == "table"
        for column in table.columns
        if declared_dimension(column) is not None or column.type.strip().lower() == "blob"
    ]


@dataclass(frozen=True, slots=True)
class Named:
    """How the rows of a table are named: by SQL expressions, and whether those are one whole number."""

    expressions: tuple[str, ...]
    numbered: bool


def named(table: Table) -> Named:
    """What names a table's rows: their number, or the primary key of a table whose rows have none."""
    free = next((name for name in ("rowid", "oid", "_rowid_") if name not in table.names), None)
    if table.rowid and free is not None:
        return Named((free,), numbered=True)
    keys = sorted((column for column in table.columns if column.key), key=lambda column: column.key)
    return Named(tuple(quoted(column.name) for column in keys), numbered=False)


def parts_of(connection: Asked, wanted: VectorColumn, dimension: int, version: object) -> Iterator[LoadedColumn]:
    """All vectors of a column as float32, some thousands of rows at a time. Inside a read transaction."""
    by = named(wanted.table)
    for page in _pages(connection, wanted, by, dimension):
        values = [row[-1] for row in page]
        if by.numbered:
            keys, names = np.array([row[0] for row in page], np.int64), None
        else:
            keys, names = np.arange(len(page), dtype=np.int64), tuple(row[:-1] for row in page)
        found = usable(values, dimension)
        lengths = [_length(values[place]) for place in found.wrong_length.tolist()]
        yield LoadedColumn(
            version, keys[found.places], rows_of(found.rows), keys[found.wrong_length], np.array(lengths, np.int64),
            keys[found.not_finite], keys[found.zero], names,
        )  # fmt: skip


def joined(parts: Sequence[LoadedColumn], dimension: int, version: object) -> LoadedColumn:
    """Parts of a column as one."""
    names: list[tuple[object, ...]] | None = None
    shifted: list[LoadedColumn] = []
    for part in parts:
        first = len(names or ())
        if part.names is not None:
            names = [*(names or ()), *part.names]
            part = replace(  # noqa: PLW2901 - the same part, with numbers that no other has
                part, keys=part.keys + first, wrong_length=part.wrong_length + first,
                not_finite=part.not_finite + first, zero=part.zero + first,
            )  # fmt: skip
        shifted.append(part)

    def together(arrays: Iterable[Keys]) -> Keys:
        return np.concatenate([np.empty(0, np.int64), *arrays])

    vectors = np.concatenate([np.empty((0, dimension), np.float32), *(part.rows.vectors for part in parts)])
    return LoadedColumn(
        version,
        together(part.keys for part in shifted),
        rows_of(vectors),
        together(part.wrong_length for part in shifted),
        together(part.lengths for part in shifted),
        together(part.not_finite for part in shifted),
        together(part.zero for part in shifted),
        None if names is None else tuple(names),
    )


def size_of_column(connection: Asked, wanted: VectorColumn, dimension: int) -> int:
    """About how many bytes of memory a column takes."""
    table, column = quoted(wanted.table.name), quoted(wanted.column.name)
    [(count,)] = connection.rows(f"select count({column}) from main.{table}")
    return int(count) * (4 * dimension + 16)


@dataclass(frozen=True, slots=True)
class Selection:
    """A statement of ours that names the rows which a session may see and which pass a filter.

    Attributes:
        sql: The statement.
        params: Its values.
        steady: Whether it names the same rows as long as the database does not change.
    """

    sql: str
    params: tuple[Value, ...]
    steady: bool


def selection(binding: Binding, wanted: VectorColumn, filtered: tuple[str, Value] | None) -> Selection | None:
    """What names the rows that a session may see and that pass a filter; None for all rows."""
    if filtered is None and not binding.policed(wanted.table):
        return None
    select = _select(binding, wanted.table, list(named(wanted.table).expressions), filtered)
    timely = any(
        isinstance(node, exp.CurrentDate | exp.CurrentTime | exp.CurrentTimestamp)
        or (isinstance(node, exp.Anonymous) and function_name(node) in _TIMELY)
        for node in nodes(select)
    )
    return Selection(written(select), binding.values(), not timely)


def selected(connection: Asked, wanted: VectorColumn, what: Selection, seconds: float) -> list[Row]:
    """The rows that a selection names, by what names them.

    Raises:
        OutOfTime: if that takes longer than so many seconds.
    """
    caps = Caps(rows=2**62, bytes=2**62, seconds=seconds)
    reach = Reach(frozenset({folded(wanted.table.name)}), _FUNCTIONS)
    return connection.ask(what.sql, what.params, reach, caps).rows


def rows_named(
    connection: Asked,
    binding: Binding,
    wanted: VectorColumn,
    names: Sequence[Sequence[object]],
    seconds: float,
) -> dict[tuple[object, ...], dict[str, Value]]:
    """All other columns of some rows, as far as the session may see them, by what names the rows."""
    others = [column.name for column in wanted.table.columns if column.name != wanted.column.name]
    by = named(wanted.table).expressions
    found: dict[tuple[object, ...], dict[str, Value]] = {}
    for start in range(0, len(names), 200):
        some = names[start : start + 200]
        fresh = Binding("", (), binding.session, binding.known)
        select = _select(fresh, wanted.table, [*by, *map(quoted, others)], None)
        values = [value for name in some for value in name]
        first = len(fresh.values())
        tuples = ", ".join(
            "(" + ", ".join(f"?{first + place * len(by) + each + 1}" for each in range(len(by))) + ")"
            for place in range(len(some))
        )
        select.set("where", exp.Where(this=exp.Paren(this=select.args["where"].this)))
        sql = f"{written(select)} AND ({', '.join(by)}) IN (VALUES {tuples})"
        reach = Reach(frozenset({folded(wanted.table.name)}), _FUNCTIONS)
        caps = Caps(rows=2**62, bytes=2**62, seconds=seconds)
        for row in connection.ask(sql, (*fresh.values(), *values), reach, caps).rows:
            found[tuple(row[: len(by)])] = dict(zip(others, row[len(by) :], strict=True))
    return found


_TIMELY = frozenset({"date", "datetime", "time"})
_FUNCTIONS = frozenset(
    {"coalesce", "date", "datetime", "ifnull", "iif", "instr", "length", "lower", "ltrim", "nullif", "rtrim", "substr",
     "time", "trim", "typeof", "upper", "like", "glob"}
)  # fmt: skip
"""What policies may call."""


def _select(
    binding: Binding, table: Table, expressions: Sequence[str], filtered: tuple[str, Value] | None
) -> exp.Select:
    """A select of a table's visible rows; no expression in it can fail for any row."""
    select = binding.visible(table) if binding.policed(table) else binding.all_rows(table)
    select.set("expressions", [exp.Var(this=expression) for expression in expressions])
    if filtered is not None:
        column, value = filtered
        equal = exp.EQ(this=exp.column(exp.to_identifier(column, quoted=True)), expression=binding.value(value))
        allowed = select.args["where"].this
        select.set("where", exp.Where(this=exp.And(this=exp.Paren(this=allowed), expression=equal)))
    return select


def _pages(connection: Asked, wanted: VectorColumn, by: Named, dimension: int) -> Iterator[list[Row]]:
    key, column, table = ", ".join(by.expressions), quoted(wanted.column.name), quoted(wanted.table.name)
    limit = min(_PAGE, rows_per_answer(4 * dimension * 4 // 3))
    after, last = "", ()
    while True:
        sql = f"select {key}, {column} from main.{table} where {column} is not null{after} order by {key} limit {limit}"
        page = connection.rows(sql, last)
        if page:
            yield page
        if len(page) < limit:
            return
        last = tuple(page[-1][:-1])
        after = f" and ({key}) > ({', '.join('?' * len(last))})"


def _length(value: object) -> int:
    return len(value) // 4 if isinstance(value, bytes) and len(value) % 4 == 0 else -1
