"""The owner's own SQL on a local database: any of it, but for what would break Kura's tables."""

import re
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kura.errors import ArgumentError, QueryFailed, StoreError
from kura.store.engine import Answered
from kura.store.own import is_own
from kura.store.sqlite import open_for_writing, translated

_STEPS = 10_000  # of SQLite's virtual machine between two looks for Ctrl-C
_CHANGING = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE,
             sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_DROP_VTABLE,
             sqlite3.SQLITE_CREATE_VIEW}  # fmt: skip
_ON_SECOND = {sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_DROP_INDEX,
              sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_DROP_TRIGGER}  # fmt: skip
_PRAGMAS = {"journal_mode", "locking_mode", "writable_schema"}


def statements(script: str) -> list[str]:
    """The statements of a script, which end with a semicolon; the last one need not."""
    found: list[str] = []
    rest = script
    while rest.strip():
        one, rest = _first(rest)
        found.append(one)
    return [one for one in found if _says_something(one)]


def run_script(path: Path, script: str) -> list[Answered]:
    """Run a script as one transaction: all of its statements or, where one fails, none. A single one runs by itself.

    Returns:
        What each statement gave.

    Raises:
        ArgumentError: if there is no statement in it, or one would change Kura's own tables.
        QueryFailed: if SQLite refuses one, or it fails; with SQLite's words.
        StoreError: if the database cannot be opened or written.
        KeyboardInterrupt: after Ctrl-C, with nothing changed.
    """
    todo = statements(script)
    if not todo:
        raise ArgumentError("invalid argument: there is no statement to run")
    with closing(open_for_writing(path)) as connection:
        if len(todo) == 1:
            return [_ran(connection.raw, todo[0], place="")]
        with connection.transaction():
            return [
                _ran(connection.raw, one, place=f"statement {number} of {len(todo)}: ")
                for number, one in enumerate(todo, 1)
            ]


def _ran(raw: sqlite3.Connection, sql: str, *, place: str) -> Answered:
    with _watched(raw, sql) as refusals:
        try:
            cursor = raw.execute(sql)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            if refusals:
                raise ArgumentError(f"invalid argument: {place}{refusals[0]}") from error
            code = getattr(error, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_INTERRUPT:
                raise KeyboardInterrupt from error
            raise _told(error, place) from error
    changed = int(raw.execute("select changes()").fetchone()[0]) if cursor.rowcount >= 0 else 0
    return Answered(tuple(each[0] for each in cursor.description or ()), rows, changed, None)


def _told(error: sqlite3.Error, place: str) -> StoreError | QueryFailed:
    try:
        with translated():
            raise error
    except StoreError as known:
        return type(known)(f"{place}{known}")
    except sqlite3.Error:
        return QueryFailed(f"{place}{error}")


@contextmanager
def _watched(raw: sqlite3.Connection, sql: str) -> Generator[list[str]]:
    refusals: list[str] = []
    vacuum = re.match(r"\s*vacuum\b", sql, re.IGNORECASE) is not None  # which is a transaction of SQLite's own

    def authorize(action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
        refusal = None if vacuum else _refusal(action, first, second)
        if refusal is None or inside is not None:
            return sqlite3.SQLITE_OK
        refusals.append(refusal)
        return sqlite3.SQLITE_DENY

    raw.set_authorizer(authorize)
    # Python answers Ctrl-C where it runs, which it does in this function alone while SQLite works.
    raw.set_progress_handler(lambda: False, _STEPS)
    try:
        yield refusals
    finally:
        raw.set_authorizer(None)
        raw.set_progress_handler(None, 0)


def _refusal(action: int, first: str | None, second: str | None) -> str | None:
    """Why SQLite may not do what it is about to compile; None if it may."""
    if action in {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}:
        return "a script is one transaction already; leave out begin, commit, rollback and savepoints"
    if action == sqlite3.SQLITE_PRAGMA and second is not None and (first or "").lower() in _PRAGMAS:
        return f"{first} cannot be changed here"
    name = first if action in _CHANGING else second if action in _ON_SECOND else None
    if name is None or not is_own(name) or name.lower().startswith("sqlite_"):
        return None
    if name.lower() == "policies":
        return "policies are changed with `kura policy`"
    return f'"{name}" is one of Kura\'s own tables, or is named like one; those can be read here, and not changed'


def _first(script: str) -> tuple[str, str]:
    """The first statement of a script, and the rest."""
    for end in _ends(script):
        if sqlite3.complete_statement(script[:end]):
            return script[:end], script[end:]
    return script, ""


def _ends(script: str) -> Iterator[int]:
    at = script.find(";")
    while at >= 0:
        yield at + 1
        at = script.find(";", at + 1)


def _says_something(sql: str) -> bool:
    """Whether there is more than blanks, comments and a semicolon; to SQLite nothing is a statement too."""
    at = 0
    while at < len(sql):
        if sql[at].isspace() or sql[at] == ";":
            at += 1
        elif sql.startswith("--", at):
            end = sql.find("\n", at)
            at = len(sql) if end < 0 else end + 1
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            at = len(sql) if end < 0 else end + 2
        else:
            return True
    return False
