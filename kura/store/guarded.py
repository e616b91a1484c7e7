"""The local engine as agents' statements meet it: a connection of its own that can do next to nothing.

Under whatever checks a statement before: an authorizer that knows tables and functions by name, no attached databases,
short values, a clock, and for those that read a file that is opened for reading.
"""

import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from kura.errors import OutOfTime, QueryFailed, StatementRefused
from kura.store.engine import Answered, Asked, Caps, Reach, Row, folded, size_of
from kura.store.sqlite import Connection, open_for_reading, open_for_writing, translated

MOST_VALUE_BYTES = 16_000_000
"""No value in a statement grows beyond this."""

_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
_STEPS = 1000  # of SQLite's virtual machine between two looks at the clock: less than a tenth of a millisecond
_EXPRESSIONS = 500  # how deep they may be nested
_COMPOUND = 200  # selects in one
_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


class GuardedConnection(Connection):
    """A connection for one call of one agent."""

    streams = True

    def __init__(self, raw: sqlite3.Connection) -> None:
        super().__init__(raw)
        for limit, most in (
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, _EXPRESSIONS),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, _COMPOUND),
        ):
            raw.setlimit(limit, most)

    def ask(self, sql: str, params: Sequence[object], reach: Reach, caps: Caps) -> Answered:
        """Run a statement of an agent's.

        Raises:
            StatementRefused: if SQLite does not take it, or it would touch what it may not.
            QueryFailed: if it failed while it ran, or took too long before its first row.
        """
        for function in _TABLE_FUNCTIONS & reach.tables:
            # Connected to before the authorizer is there, which would take that for the making of a table.
            self._raw.execute(f"select 1 from {function}('[]')").close()
        until = time.monotonic() + caps.seconds
        with self._guarded(reach, until):
            try:
                # Compiled alone first: what is wrong then depends on no row, and may be told.
                self._raw.execute(f"explain {sql.removeprefix('EXPLAIN QUERY PLAN ')}", params).close()
            except sqlite3.Error as error:
                self._raise_outer(error)
                raise StatementRefused(_words(error)) from error
            rows: list[Row] = []
            try:
                cursor = self._raw.execute(sql, params)
                columns = tuple(each[0] for each in cursor.description or ())
                cut = _fetch(cursor, columns, rows, caps, whole=reach.target is not None)
            except sqlite3.Error as error:
                self._raise_outer(error)
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT and time.monotonic() >= until:
                    raise OutOfTime(
                        f"the statement was ended after {caps.seconds:g} seconds, before it gave a row"
                    ) from error
                raise QueryFailed(_words(error)) from error
        changed = 0 if reach.target is None else int(self.one("select changes()")[0])
        return Answered(columns, rows, changed, cut)

    @contextmanager
    def _guarded(self, reach: Reach, until: float) -> Generator[None]:
        def authorize(action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
            return sqlite3.SQLITE_OK if _may(reach, action, first, second, inside) else sqlite3.SQLITE_DENY

        self._raw.set_authorizer(authorize)
        self._raw.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            yield
        finally:
            self._raw.set_authorizer(None)
            self._raw.set_progress_handler(None, 0)

    def _raise_outer(self, error: sqlite3.Error) -> None:
        """Pass on what is the database's trouble and not the statement's."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _TRANSIENT or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}:
            with translated():
                raise error


@contextmanager
def guarded(path: Path, *, write: bool = False) -> Generator[Asked]:
    """Open a database for one statement of an agent's; only with `write` can it change anything.

    Raises:
        StoreError: if it cannot be opened.
    """
    with closing((open_for_writing if write else open_for_reading)(path)) as connection:
        yield GuardedConnection(connection.raw)


def _may(reach: Reach, action: int, first: str | None, second: str | None, inside: str | None) -> bool:
    """Whether SQLite may do what it is about to compile.

    Args:
        reach: What the statement may touch.
        action: SQLite's code for it.
        first: A table, mostly.
        second: A column or a function, mostly.
        inside: The trigger that does it; triggers are the operator's, and act on the operator's behalf.
    """
    match action:
        case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
            return True
        case sqlite3.SQLITE_FUNCTION:
            return inside is not None or folded(second or "") in reach.functions
        case sqlite3.SQLITE_PRAGMA:
            # FTS5 looks whether its table has changed.
            return (first, second) == ("data_version", None)
        case sqlite3.SQLITE_READ:
            # A constant in the place of a table, such as in `values`, has no name.
            return inside is not None or not first or folded(first) in reach.tables | reach.related
        case sqlite3.SQLITE_INSERT | sqlite3.SQLITE_UPDATE | sqlite3.SQLITE_DELETE:
            # The guard lets a statement name its target alone; others are changed by what hangs on that.
            return reach.target is not None and (inside is not None or folded(first or "") in reach.related)
        case _:
            return False


def _fetch(
    cursor: sqlite3.Cursor, columns: Sequence[str], rows: list[Row], caps: Caps, *, whole: bool
) -> Literal["rows", "bytes", "time"] | None:
    """Fetch rows until a cap cuts; with `whole`, all are fetched, because they are changed one by one meanwhile."""
    size, cut = 0, None
    try:
        for row in cursor:
            size += size_of(row, columns)
            if cut is None and len(rows) == caps.rows:
                cut = "rows"
            elif cut is None and size > caps.bytes:
                cut = "bytes"
            if cut is None or whole:
                rows.append(row)
            else:
                break
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT or whole or not rows:
            raise
        return "time"
    return cut


def _words(error: sqlite3.Error) -> str:
    words = str(error)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH or words.startswith("not authorized"):
        return "the statement would touch what it may not"
    return words
