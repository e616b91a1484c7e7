"""The local engine: SQLite through the standard library. Nothing else in Kura imports `sqlite3`.

Driver exceptions become ours here. Databases are in WAL mode: readers never wait for the one writer, nor it for them.
"""

import asyncio
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from kura.errors import Busy, Damaged, StoreError
from kura.store.engine import Asked, Row, Statement

T = TypeVar("T")

WRITE_PATIENCE = 30.0
"""Seconds that a writer waits for another one; each holds the lock for one source at most."""

READ_PATIENCE = 10.0
"""Seconds that a reader waits, which happens only while another process recovers or first creates the file."""

_REASONS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (Busy, "another process is writing to the database and did not finish in time; try again"),
    sqlite3.SQLITE_LOCKED: (Busy, "another process is writing to the database and did not finish in time; try again"),
    sqlite3.SQLITE_PROTOCOL: (Busy, "other processes kept opening and closing the database; try again"),
    sqlite3.SQLITE_NOTADB: (Damaged, "the file is not a SQLite database"),
    sqlite3.SQLITE_CORRUPT: (Damaged, "the database file is damaged; index into a new one or restore a copy"),
    sqlite3.SQLITE_FULL: (StoreError, "the disk is full"),
    sqlite3.SQLITE_READONLY: (StoreError, "the database file or its folder is read-only"),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "the database file cannot be opened"),
    sqlite3.SQLITE_IOERR: (StoreError, "the disk reported an error"),
    sqlite3.SQLITE_PERM: (StoreError, "the database file may not be opened by this user"),
    sqlite3.SQLITE_AUTH: (StoreError, "the database file may not be opened by this user"),
    sqlite3.SQLITE_TOOBIG: (StoreError, "a value is larger than the database takes"),
}


@contextmanager
def translated() -> Generator[None]:
    """Turn the driver's exceptions into ours; those that are mistakes of ours pass."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise StoreError("a text with half a character in it (a lone surrogate) cannot be stored") from error
    except sqlite3.Error as error:
        # The low byte is the primary code; extended ones only refine it.
        known = _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if known is None:
            raise
        kind, reason = known
        raise kind(reason) from error


class Connection:
    """One connection in autocommit mode. Not for use by two threads at once, but not bound to one either."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    @property
    def raw(self) -> sqlite3.Connection:
        """The driver's own connection, for those in this room that know the driver."""
        return self._raw

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        with translated():
            return self._raw.execute(sql, params).fetchall()

    def row(self, sql: str, params: Sequence[object] = ()) -> Row | None:
        """Run one statement and return its first row, or None."""
        with translated():
            return self._raw.execute(sql, params).fetchone()

    def one(self, sql: str, params: Sequence[object] = ()) -> Row:
        """Run one statement whose row must be there, such as an aggregate.

        Raises:
            Damaged: if it is not.
        """
        row = self.row(sql, params)
        if row is None:
            raise Damaged("the database lacks a row that each of Kura's databases has")
        return row

    def run(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one statement; returns how many rows it changed."""
        with translated():
            return self._raw.execute(sql, params).rowcount

    def insert(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one insert; returns the new row's id."""
        with translated():
            return self._raw.execute(sql, params).lastrowid or 0

    def many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each of `rows`."""
        with translated():
            self._raw.executemany(sql, rows)

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements that read; all see the same version. Returns the rows of each."""
        with nullcontext() if self._raw.in_transaction else self.transaction(write=False):
            return [self.rows(sql, params) for sql, params in statements]

    def apart(self, statements: Sequence[Statement]) -> Iterator[list[Row]]:
        """Run statements that read, one after the other; yields the rows of each."""
        for sql, params in statements:
            yield self.rows(sql, params)

    def atomically(self, statements: Sequence[Statement]) -> None:
        """Run statements, all of them or, where one fails, none."""
        with self.transaction():
            for sql, params in statements:
                self.run(sql, params)

    @contextmanager
    def transaction(self, *, write: bool = True) -> Generator[None]:
        """All or nothing; with `write`, the write lock is taken at once so that nothing is read from an old view."""
        with translated():
            try:
                self._raw.execute("begin immediate" if write else "begin")
                yield
                self._raw.execute("commit")
            except BaseException:
                # Also a commit can fail, on a full disk for instance, and leaves the transaction open.
                if self._raw.in_transaction:
                    self._raw.execute("rollback")
                raise

    def close(self) -> None:
        """Close it; closing twice is fine."""
        with translated():
            self._raw.close()


def open_for_writing(path: Path, *, create: bool = False) -> Connection:
    """Open a database for its one writer; only with `create` is a file made where there is none.

    A file that holds something already stays as it is: `prefer_wal` is for those that turned out to be Kura's.

    Raises:
        StoreError: if it cannot be opened or is not a database.
    """
    with translated():
        uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        raw = sqlite3.connect(uri, uri=True, timeout=WRITE_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            # A power cut may take the last transactions but never tears the file; a killed process loses nothing.
            raw.execute("pragma synchronous = normal")
            raw.execute("pragma foreign_keys = on")
            connection = Connection(raw)
            if connection.row("select 1 from sqlite_schema limit 1") is None:
                prefer_wal(connection)
        except BaseException:
            raw.close()
            raise
    return connection


def copy_to(path: Path, file: Path) -> None:
    """Write a database, whole as of one moment and without gaps, into a file of its own that is not there yet.

    Raises:
        StoreError: if it cannot be read, or the file is there already or cannot be written; then none is left behind.
    """
    if file.exists():
        raise StoreError(f"the file {file} is there already; name another one, or delete it first")
    if not file.absolute().parent.is_dir():
        raise StoreError(f"there is no folder {file.parent} to write the copy into")
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
    open_for_reading(path).close()
    with translated():
        raw = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=READ_PATIENCE)
        try:
            raw.execute("vacuum into ?", (str(part),))
            _disown(part)
            # Whoever made a file of that name meanwhile keeps it.
            os.link(part, file)
        except OSError as error:
            raise StoreError(f"the copy cannot be written: {error.strerror}") from error
        finally:
            raw.close()
            part.unlink(missing_ok=True)


def _disown(part: Path) -> None:
    """Take from a copy what tells its pushes from those of others: it is another database from now on."""
    copy = sqlite3.connect(part)
    try:
        with copy:
            if copy.execute("select 1 from sqlite_schema where name = 'publisher'").fetchone():
                copy.execute("delete from publisher")
    finally:
        copy.close()


def prefer_wal(connection: Connection) -> None:
    """Put the database into WAL mode, which the file remembers; without effect where it is in it already.

    Raises:
        Busy: if others kept the database in use.
    """
    until = time.monotonic() + WRITE_PATIENCE
    while True:
        try:
            connection.row("pragma journal_mode = wal")
        except Busy:
            # SQLite does not wait here by itself: two who create the same database would fail each other.
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def open_for_reading(path: Path) -> Connection:
    """Open an existing database so that nothing in it can change through this connection.

    In a folder that this process cannot write to, SQLite cannot place its `-shm` file beside the database; if no `-wal`
    file waits there either, the file is taken as immutable.

    Raises:
        StoreError: if there is no such file, or it cannot be opened.
    """
    with translated():
        try:
            return _readonly(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if not os.access(path, os.F_OK):
                raise StoreError("the database file does not exist") from error
            if path.is_dir():
                raise StoreError("a folder is where the database file should be") from error
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            # Anywhere else a writer could be at work, and an immutable reader would take its changes for damage.
            if os.access(path.parent, os.W_OK) or _has_content(path.with_name(path.name + "-wal")):
                raise
            return _readonly(path, "mode=ro&immutable=1")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _readonly(path: Path, flags: str) -> Connection:
    uri = f"{path.absolute().as_uri()}?{flags}"
    raw = sqlite3.connect(uri, uri=True, timeout=READ_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        raw.execute("pragma query_only = on")
        # The first statement that touches the file is what tells whether it can be read at all.
        raw.execute("select count(*) from sqlite_schema").fetchone()
    except BaseException:
        raw.close()
        raise
    return Connection(raw)


class Reader:
    """Reads one database from any number of threads and tasks, through a few connections that it keeps.

    A file that is put in the place of the database is noticed: the next read is from that one.
    """

    MOST_IDLE = 4
    """Connections that wait for the next read; more are opened in a rush and closed after it."""

    def __init__(self, path: Path, executor: Executor) -> None:
        self._path = path
        self._executor = executor
        self._lock = threading.Lock()
        # Last in, first out: the one used last has the most of the database in its cache.
        self._idle: list[tuple[Connection, _Identity]] = []
        self._closed = False
        self._watch: tuple[Connection, _Identity] | None = None

    def version(self) -> object:
        """What is another one after each change that anybody commits to the database.

        To be called from one thread at a time.
        """
        identity = _identity(self._path)
        if self._watch is None or self._watch[1] != identity:
            if self._watch is not None:
                self._watch[0].close()
            # SQLite counts the changes of others for each connection: it takes one that stays.
            self._watch = open_for_reading(self._path), identity
        return identity, self._watch[0].one("pragma data_version")[0]

    async def read(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """Run `work` in a worker thread, inside one read transaction: all its statements see the same version.

        Without `whole`, each of its statements is a transaction of its own.
        """
        run = partial(self.read_here, work, whole=whole)
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)

    def read_here(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """As `read`, in the calling thread."""
        connection, identity = self._taken()
        try:
            with connection.transaction(write=False) if whole else nullcontext():
                result = work(connection)
        except BaseException:
            # Whatever went wrong may be the connection's own fault; a new one costs little.
            connection.close()
            raise
        with self._lock:
            kept = not self._closed and len(self._idle) < self.MOST_IDLE
            if kept:
                self._idle.append((connection, identity))
        if not kept:
            connection.close()
        return result

    @contextmanager
    def guarded(self, *, write: bool = False) -> Generator[Asked]:
        """A way into the database for one statement of an agent's, which can change anything only with `write`."""
        from kura.store.guarded import guarded  # noqa: PLC0415 - it stands on this module

        with guarded(self._path, write=write) as connection:
            yield connection

    def close(self) -> None:
        """Close the connections that are idle, and those in use as soon as they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            if self._watch is not None:
                self._watch[0].close()
        for connection, _ in idle:
            connection.close()

    def _taken(self) -> tuple[Connection, "_Identity"]:
        identity = _identity(self._path)
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, of = self._idle.pop()
            if of == identity:
                return connection, identity
            connection.close()
        # The identity is of before the opening: if the file is exchanged in between, the next read opens it again.
        return open_for_reading(self._path), identity


_Identity = tuple[int, int] | None


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
