"""The use case: what tables there are for a session, with their columns, keys, indexes and policies."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from kura.errors import ArgumentError, KuraError, OutOfTime, StoreError, Unavailable
from kura.library.knowledge import KnowledgeBase
from kura.library.library import Library
from kura.sql.columns import declared_dimension
from kura.sql.grammar import FUNCTIONS, OPERATOR_FUNCTIONS
from kura.sql.guard import KNOWLEDGE, KNOWLEDGE_COLUMNS, Known, guard
from kura.sql.query import context, database
from kura.sql.schema import Column, Table
from kura.sql.statement import read
from kura.store.engine import Answered, Asked, Caps, Reach, Row, folded, quoted
from kura.types import Policy, Rules, Session

_KNOWLEDGE_TYPES = {
    "sources": ("INTEGER", "TEXT", "INTEGER", "TEXT"),
    "chunks": ("INTEGER", "INTEGER", "INTEGER", "TEXT", "INTEGER", "INTEGER", "TEXT"),
}
_FOREIGN = """
  select s.name, f.id, f.seq, f."table", f."from", f."to", f.on_update, f.on_delete
  from sqlite_schema s, pragma_foreign_key_list(s.name) f where s.type = 'table' order by s.name, f.id, f.seq
"""
_INDEXES = """
  select s.name, i.name, i."unique", i.origin, i.partial, x.seqno, x.name
  from sqlite_schema s, pragma_index_list(s.name) i, pragma_index_xinfo(i.name) x
  where s.type = 'table' and x.key = 1 order by s.name, i.seq, x.seqno
"""
_SMALLEST_VECTOR = 8  # bytes


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns whose values are those of a row in another table."""

    columns: tuple[str, ...]
    table: str
    referred: tuple[str, ...]
    on_update: str
    on_delete: str


@dataclass(frozen=True, slots=True)
class Index:
    """What finds rows.

    Attributes:
        name: Its name; that of the column for vectors, that of the table for full text.
        kind: What it is.
        columns: Names; None is an expression.
        unique: Whether no two rows have the same values there.
        partial: Whether it holds some of the rows alone.
        dimensions: Of vectors.
        count: How many vectors or documents the session may see; None where counting took too long.
    """

    name: str
    kind: Literal["btree", "vector", "fulltext"]
    columns: tuple[str | None, ...]
    unique: bool = False
    partial: bool = False
    dimensions: int | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """One table or view as a session may use it.

    Attributes:
        table: Its name, what it is and its columns.
        unique: Folded names of columns in which no value occurs twice.
        foreign: Its foreign keys.
        indexes: What finds its rows.
        policies: Those on it.
        rows: How many the session may see; None where counting took too long, or it cannot be queried.
        notice: Why it cannot be queried.
    """

    table: Table
    unique: frozenset[str] = frozenset()
    foreign: tuple[ForeignKey, ...] = ()
    indexes: tuple[Index, ...] = ()
    policies: tuple[Policy, ...] = ()
    rows: int | None = None
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class _Structure:
    """What the engine says of all tables at once, by folded name."""

    foreign: dict[str, list[ForeignKey]] = field(default_factory=dict[str, list[ForeignKey]])
    indexes: dict[str, list[Index]] = field(default_factory=dict[str, list[Index]])
    unique: dict[str, set[str]] = field(default_factory=dict[str, set[str]])


async def schema_inspect(
    library: Library, session: Session, db: str | None, table: str | None = None, *, rules: Rules | None = None
) -> list[Described]:
    """What tables and views a session may query, by name.

    Args:
        library: The process's databases.
        session: On whose behalf; counts are of what it may see.
        db: Name of the database; None where the session sees exactly one.
        table: Only this one.
        rules: What agents may do; left out, what the library says.

    Raises:
        ArgumentError: if there is no such table; the message lists those that there are.
        UnknownDatabase: if there is no such database for this session.
        Unavailable: if there is, but it cannot be read now.
    """
    rules = rules or library.rules
    name, base = await database(library, session, db)
    try:
        return await base.in_thread(_inspected, base, session, table, rules.seconds)
    except StoreError as error:
        raise Unavailable(name, str(error)) from error


def _inspected(base: KnowledgeBase, session: Session, only: str | None, seconds: float) -> list[Described]:
    until = time.monotonic() + seconds
    with base.reader.guarded() as connection:
        with connection.transaction(write=False):
            known = context(connection, base)
            structure = _structure(connection, known)
            embedding = _embedding(connection)
        tables = [*_knowledge(), *known.schema.tables.values()]
        if only is not None:
            tables = [table for table in tables if folded(table.name) == folded(only)]
        if not tables and only is not None:
            names = sorted([*KNOWLEDGE, *(table.name for table in known.schema.tables.values())])
            raise ArgumentError(f'invalid argument: there is no table "{only[:100]}"; there are {", ".join(names)}')
        counting = _Counting(connection, session, known, until)
        described = [_described(counting, table, known, structure, embedding) for table in tables]
    return sorted(described, key=lambda each: folded(each.table.name))


class _Counting:
    """Counts for a session, through the same guard as its own statements, until time is up."""

    def __init__(self, connection: Asked, session: Session, known: Known, until: float) -> None:
        self._connection, self._session, self._known, self._until = connection, session, known, until

    def ask(self, sql: str) -> Row | None:
        """The first row; None where time is up.

        Raises:
            KuraError: if the guard or the engine refuses it.
        """
        answered = self.answered(sql)
        return answered.rows[0] if answered is not None and answered.rows else None

    def answered(self, sql: str) -> Answered | None:
        """The answer; None where time is up.

        Raises:
            KuraError: if the guard or the engine refuses it.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        bound = guard(read(sql), (), self._session, self._known)
        reach = Reach(bound.tables, FUNCTIONS | OPERATOR_FUNCTIONS)
        with suppress(OutOfTime), self._connection.transaction(write=False):
            # A server begins the transaction with the first statement of ours.
            self._connection.rows("select 1")
            return self._connection.ask(bound.sql, bound.params, reach, Caps(1, 1_000_000, left))
        return None


def _described(
    counting: _Counting, table: Table, known: Known, structure: _Structure, embedding: Index | None
) -> Described:
    name = folded(table.name)
    if name in KNOWLEDGE:
        counted = counting.ask(f"select count(*) from {name}")
        shown = [] if embedding is None or name != "chunks" else [embedding]
        return Described(table, indexes=tuple(shown), rows=None if counted is None else int(counted[0]))
    notice: str | None = None
    rows: int | None = None
    indexes = list(structure.indexes.get(name, ()))
    try:
        if table.kind == "view":
            table = _with_columns(counting, table)
        counted = counting.ask(f"select count(*) from {quoted(table.name)}")
        rows = None if counted is None else int(counted[0])
        indexes += _vectors(counting, table)
        if table.module == "fts5":
            columns = tuple(column.name for column in table.columns)
            indexes.append(Index(table.name, "fulltext", columns, count=rows))
    except KuraError as error:
        notice = str(error)
    return Described(
        table,
        frozenset(structure.unique.get(name, ())),
        tuple(structure.foreign.get(name, ())),
        tuple(indexes),
        tuple(known.policies.get(name, ())),
        rows,
        notice,
    )


def _vectors(counting: _Counting, table: Table) -> list[Index]:
    """The vector columns: declared ones, and blobs that look like vectors to this session."""
    found: list[Index] = []
    for column in table.columns:
        if table.kind != "table":
            break
        dimensions = declared_dimension(column)
        own = quoted(column.name)
        if dimensions is None:
            if column.type.strip().lower() != "blob":
                continue
            seen = counting.ask(
                f"select typeof({own}), length({own}) from {quoted(table.name)} where {own} is not null limit 1"
            )
            if seen is None or seen[0] != "blob" or seen[1] % 4 or seen[1] < _SMALLEST_VECTOR:
                continue
            dimensions = int(seen[1]) // 4
        counted = counting.ask(f"select count({own}) from {quoted(table.name)}")
        count = None if counted is None else int(counted[0])
        found.append(Index(column.name, "vector", (column.name,), dimensions=dimensions, count=count))
    return found


def _with_columns(counting: _Counting, view: Table) -> Table:
    """A view with its columns, which only a query tells.

    Raises:
        KuraError: if it cannot be queried.
    """
    answered = counting.answered(f"select * from {quoted(view.name)} limit 0")
    columns = () if answered is None else answered.columns
    return replace(
        view, columns=tuple(Column(name, "", 0, not_null=False, default=None, generated=None) for name in columns)
    )


def _knowledge() -> list[Table]:
    """Kura's own tables, as they are shown."""
    return [
        Table(
            name,
            "table",
            "",
            tuple(
                Column(column, kind, int(column == "id"), not_null=True, default=None, generated=None)
                for column, kind in zip(columns, _KNOWLEDGE_TYPES[name], strict=True)
            ),
            rowid=False,
            sql="",
        )
        for name, columns in KNOWLEDGE_COLUMNS.items()
    ]


def _embedding(connection: Asked) -> Index | None:
    """The vectors of the passages."""
    [(dimension, count)] = connection.rows(
        "select dimension, (select count(*) from chunks where vector_id is not null) from state"
    )
    if dimension is None:
        return None
    return Index("embedding", "vector", ("embedding",), dimensions=int(dimension), count=int(count))


def _structure(connection: Asked, known: Known) -> _Structure:
    foreign_rows, index_rows = connection.together([(_FOREIGN, ()), (_INDEXES, ())])
    structure = _Structure()
    parts: dict[tuple[str, int], list[Row]] = {}
    for row in foreign_rows:
        parts.setdefault((folded(row[0]), row[1]), []).append(row)
    for (name, _), rows in sorted(parts.items()):
        structure.foreign.setdefault(name, []).append(_foreign_key(rows, known))
    by_index: dict[tuple[str, str], list[Row]] = {}
    for row in index_rows:
        by_index.setdefault((folded(row[0]), row[1]), []).append(row)
    for (name, index), rows in by_index.items():
        unique, origin, partial = bool(rows[0][2]), rows[0][3], bool(rows[0][4])
        columns = tuple(row[6] for row in rows)
        if unique and not partial and len(columns) == 1 and columns[0] is not None:
            structure.unique.setdefault(name, set()).add(folded(columns[0]))
        if origin != "pk" or not index.startswith("sqlite_"):
            structure.indexes.setdefault(name, []).append(
                Index(index, "btree", columns, unique=unique, partial=partial)
            )
    return structure


def _foreign_key(rows: Sequence[Row], known: Known) -> ForeignKey:
    parent = rows[0][3]
    referred = tuple(row[5] for row in rows)
    if referred[0] is None:
        # The primary key of the parent is meant.
        table = known.schema.tables.get(folded(parent))
        keys = sorted((each for each in table.columns if each.key), key=lambda each: each.key) if table else []
        referred = tuple(column.name for column in keys)
    return ForeignKey(tuple(row[4] for row in rows), parent, referred, rows[0][6].lower(), rows[0][7].lower())
