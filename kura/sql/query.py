"""The use case: one statement of an agent's, run on one database."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kura.access.principal import require
from kura.errors import ArgumentError, OutOfTime, QueryFailed, StoreError, Unavailable
from kura.library.knowledge import KnowledgeBase
from kura.library.library import Library
from kura.sql import MOST_PARAMS
from kura.sql.changes import CHECK
from kura.sql.grammar import FUNCTIONS, OPERATOR_FUNCTIONS
from kura.sql.guard import Guarded, Known, Value, guard, known
from kura.sql.schema import read_schema
from kura.sql.statement import read
from kura.store.engine import Answered, Asked, Caps, Reach, Row, size_of
from kura.store.policies import policies
from kura.store.sources import STATE, State
from kura.types import Rules, Session

_REACHED = FUNCTIONS | OPERATOR_FUNCTIONS
_HIDDEN = (
    "the statement failed while it ran; the reason is not told, because it may depend on rows that this session does"
    " not see"
)
_CONFLICT = (
    "the statement failed and changed nothing: it breaks a rule of a table, or a row that this session does not see"
    " stands in its way"
)
_CUTS = {
    "rows": "{count:,} rows; there are more, but an answer has at most {caps.rows:,}",
    "bytes": "{count:,} rows; there are more, but an answer has at most about {caps.bytes:,} bytes",
    "time": "{count:,} rows; there may be more, but the statement was ended after {caps.seconds:g} seconds",
}


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave.

    Attributes:
        columns: Their names; one that occurs again has `_2`, `_3` … behind it.
        rows: As many as the rules allow.
        affected: How many rows it changed.
        truncated: Whether rows were left out.
        message: How many there are, and why some were left out.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    affected: int
    truncated: bool
    message: str


async def query(
    library: Library,
    session: Session,
    db: str | None,
    sql: str,
    params: Sequence[Value] = (),
    *,
    rules: Rules | None = None,
) -> Result:
    """Run one statement on one database.

    Args:
        library: The process's databases.
        session: On whose behalf; it decides which databases there are, and which rows.
        db: Name of the database; None where the session sees exactly one.
        sql: The statement.
        params: A value for each `?` in it.
        rules: What agents may do; left out, what the library says.

    Raises:
        UnknownDatabase: if there is no such database for this session.
        Unavailable: if there is, but it cannot be read now.
        StatementRefused: if the statement is wrong or not allowed.
        QueryFailed: if it was allowed, but failed while it ran.
        MissingScope: if it would change something, and the caller's credential is not good for that.
    """
    rules = rules or library.rules
    if len(params) > MOST_PARAMS:
        raise ArgumentError(f'invalid argument: "params" has more than {MOST_PARAMS:,} values')
    name, base = await database(library, session, db)
    caps = Caps(rules.rows, rules.bytes, rules.seconds)
    try:
        return await base.in_thread(_run, base, session, sql, params, caps, name in rules.writable)
    except StoreError as error:
        raise Unavailable(name, str(error)) from error


async def database(library: Library, session: Session, db: str | None) -> tuple[str, KnowledgeBase]:
    """The database of that name, or the only one that the session sees, opened.

    Raises:
        UnknownDatabase: if there is no such database for this session.
        ArgumentError: if none was named and there is not exactly one.
        Unavailable: if it cannot be opened.
    """
    if db is None:
        names = [entry.name for entry in await library.registered(session)]
        if len(names) != 1:
            there = ", ".join(f'"{name}"' for name in names) or "no database is available"
            raise ArgumentError(f'invalid argument: "db" is missing; name one of: {there}')
        db = names[0]
    return db, await library.open(session, db)


def context(connection: Asked, base: KnowledgeBase) -> Known:
    """The tables and policies of a database, and whether it is still the one that was opened.

    Raises:
        StoreError: if it belongs to another owner than it did.
    """
    schema = read_schema(connection)
    base.note(State(*connection.rows(STATE)[0]))
    return known(schema, policies(connection) if "policies" in schema.taken else ())


def _run(
    base: KnowledgeBase, session: Session, sql: str, params: Sequence[Value], caps: Caps, writable: bool
) -> Result:
    statement = read(sql)
    writes = writable and statement.changes
    if writes:
        require(session, "sql:write")
    with base.reader.guarded(write=writes) as connection, connection.transaction(write=writes):
        database = context(connection, base)
        most = None if connection.streams else caps.rows + 1
        bound = guard(statement, params, session, database, writable=writable, most=most)
        answered = _asked(connection, bound, caps)
        if bound.checks:
            answered = _checked(answered, bound)
        if bound.explain:
            answered = replace(answered, rows=_redacted(answered.rows, bound, database))
        return _result(answered, bound, caps)


def _asked(connection: Asked, bound: Guarded, caps: Caps) -> Answered:
    try:
        return connection.ask(bound.sql, bound.params, Reach(bound.tables, _REACHED, bound.target, bound.related), caps)
    except OutOfTime:
        raise
    except QueryFailed as error:
        if not bound.filtered:
            raise
        raise QueryFailed(_HIDDEN if bound.target is None else _CONFLICT) from error


def _checked(answered: Answered, bound: Guarded) -> Answered:
    """Take the check from the returned rows, and refuse what it does not allow.

    Raises:
        QueryFailed: if a row may not be written; the transaction is taken back.
    """
    if any(not row[-1] for row in answered.rows):
        raise QueryFailed(
            f'the statement changed nothing: a row that it writes into "{bound.target}" is not one that the policies'
            " allow this session"
        )
    assert answered.columns[-1:] in ((CHECK,), ())  # noqa: S101 - nothing else is ever returned last
    return replace(answered, columns=answered.columns[:-1], rows=[row[:-1] for row in answered.rows])


_READS = re.compile(r"^(SCAN|SEARCH) .*", re.DOTALL)


def _redacted(rows: list[Row], bound: Guarded, database: Known) -> list[Row]:
    """A plan without what it says of how the rows of the session are found.

    Raises:
        QueryFailed: if statistics of all rows might show in it.
    """
    if not bound.filtered:
        return rows
    if "sqlite_stat1" in database.schema.taken:
        raise QueryFailed("the plan is not told: it follows statistics of rows that this session does not see")
    hidden: set[int] = set()
    kept: list[Row] = []
    inner = {f"MATERIALIZE {name}" for name in bound.filtered}
    materialized = "AS MATERIALIZED" in bound.sql
    for number, parent, unused, detail in rows:
        if parent in hidden:
            hidden.add(number)
        elif detail in inner:
            hidden.add(number)
            kept.append((number, parent, unused, detail))
        elif not materialized and _READS.match(detail):
            kept.append((number, parent, unused, f"SCAN {min(bound.filtered)}"))
        else:
            kept.append((number, parent, unused, detail))
    return kept


def _result(answered: Answered, bound: Guarded, caps: Caps) -> Result:
    columns = _distinct(answered.columns) if bound.shown else ()
    rows = answered.rows if bound.shown else []
    cut = answered.cut if bound.shown else None
    if bound.target is not None:
        rows = rows[: caps.rows]
        size, count = 0, 0
        for row in rows:
            size += size_of(row, columns)
            if size > caps.bytes:
                break
            count += 1
        rows = rows[:count]
    count = len(rows)
    if cut is not None:
        message = _CUTS[cut].format(count=count, caps=caps)
    elif bound.target is not None:
        message = f"{answered.changed:,} {'row' if answered.changed == 1 else 'rows'} changed"
    else:
        message = f"{count:,} {'row' if count == 1 else 'rows'}"
    return Result(columns, tuple(rows), answered.changed, cut is not None, message)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of which none occurs twice, in any spelling that was there before."""
    taken, numbers = set(names), dict[str, int]()
    out: list[str] = []
    for name in names:
        unique, number = name, numbers.get(name, 0) + 1
        while number > 1 and (unique := f"{name}_{number}") in taken:
            number += 1
        numbers[name] = number
        taken.add(unique)
        out.append(unique)
    return tuple(out)
