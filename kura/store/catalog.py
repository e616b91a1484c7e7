"""Which databases there are: a small table of names in the data directory, and the files that they stand for.

A database keeps its file when it is renamed, so a process that serves it does not lose its footing.
"""

import re
import secrets
import unicodedata
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from kura.errors import ArgumentError, StoreError, UnknownDatabase
from kura.store.engine import Connection
from kura.store.keys import Key, keys_of
from kura.store.lock import indexing
from kura.store.migrations import Migration, applied_version, create, migrate, now, require_readable
from kura.store.sqlite import open_for_reading, open_for_writing

CATALOG_MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "catalog",
        (
            """
            create table databases (
              name text primary key,
              file text not null unique,
              tenant text,
              created_at text not null
            )
            """,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One database that can be opened.

    Attributes:
        name: What it is called.
        file: Its file, relative to the data directory; empty where it is on a server.
        tenant: Whom it belongs to; None is nobody.
        created_at: When it was created, in UTC; None where only the database itself knows.
        url: Where it is on a server; None where it is a file.
    """

    name: str
    file: str
    tenant: str | None
    created_at: str | None
    url: str | None = None


class Catalog:
    """The databases of one data directory. Every call reads what is there now; nothing is kept in memory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.file = data_dir / "catalog.db"

    def entries(self) -> list[Entry]:
        """All databases, by name. An empty or missing data directory has none.

        Raises:
            StoreError: if there is a catalog but it cannot be read.
        """
        if not self.file.exists():
            return []
        with explained():
            connection = open_for_reading(self.file)
            try:
                return listed(connection)
            finally:
                connection.close()

    def find(self, name: str) -> Entry:
        """The database of that name, whoever owns it.

        Raises:
            UnknownDatabase: if there is none.
        """
        return _found(self.entries(), name)

    def path(self, entry: Entry) -> Path:
        """Where its database file is."""
        return self.data_dir / entry.file

    def inbox(self, entry: Entry) -> Path:
        """The folder whose files are indexed without being named on the command line.

        It is called like the database's file, not by its name: names can be changed and given away, and what lies in
        one database's inbox must never turn up in another.
        """
        return self.data_dir / "inbox" / Path(entry.file).stem

    def add(self, name: str, tenant: str | None = None) -> Entry:
        """Create an empty database, owned by `tenant` or by nobody, and its inbox folder.

        Raises:
            ArgumentError: if the name is not a legal one, or is taken.
        """
        name = legal_name(name)
        if tenant is not None and not tenant.strip():
            raise ArgumentError("invalid argument: tenant must not be blank; leave it out for a database of nobody")
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "database"
        entry = Entry(name, f"databases/{stem}-{secrets.token_hex(4)}.db", tenant, now())
        with self._change() as (connection, undo):
            _require_free(connection, name)
            undo.callback(self._delete_files, entry)
            # Both are complete before the catalog names them: whoever finds the name can use it.
            self._create(entry)
            self._make_inbox(entry, undo)
            connection.run("insert into databases (name, file, tenant, created_at) values (?, ?, ?, ?)", _row(entry))
        return entry

    def rename(self, old: str, new: str) -> Entry:
        """Give a database another name. Its files and its inbox stay where they are.

        Raises:
            UnknownDatabase: if there is no `old`.
            ArgumentError: if `new` is not a legal name, or is taken.
        """
        new = legal_name(new)
        self.find(old)  # where there is nothing to rename, no catalog is made either
        with self._change() as (connection, _):
            entry = _found(listed(connection), old)
            _require_free(connection, new, besides=entry.name)
            connection.run("update databases set name = ? where name = ?", (new, entry.name))
        return replace(entry, name=new)

    def remove(self, name: str) -> Entry:
        """Forget a database and delete its file. The folders that were indexed, its inbox among them, stay.

        An inbox that is empty goes too.

        Raises:
            UnknownDatabase: if there is none of that name.
            Busy: if a process is indexing into it.
        """
        path = self.path(self.find(name))
        with _in_words(), indexing(path, patience=0.0) if path.parent.is_dir() else nullcontext():
            with self._change() as (connection, _):
                entry = _found(listed(connection), name)
                connection.run("delete from databases where name = ?", (entry.name,))
            self._delete_files(entry)
            inbox = self.inbox(entry)
            if inbox.is_dir() and not inbox.is_symlink() and not any(inbox.iterdir()):
                inbox.rmdir()
        return entry

    def _create(self, entry: Entry) -> None:
        path = self.path(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        database = open_for_writing(path, create=True)
        try:
            create(database, entry.tenant, entry.created_at or now())
        finally:
            database.close()

    def _delete_files(self, entry: Entry) -> None:
        path = self.path(entry)
        for suffix in ("", "-wal", "-shm", "-journal", ".lock", ".push.lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def _make_inbox(self, entry: Entry, undo: ExitStack) -> None:
        inbox = self.inbox(entry)
        if not inbox.is_dir():
            inbox.mkdir(parents=True)
            undo.callback(inbox.rmdir)

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """The catalog's own database, which is made where it is not there.

        Raises:
            StoreError: if that is not possible.
        """
        with explained():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            connection = open_for_writing(self.file, create=True)
            try:
                migrate(connection, CATALOG_MIGRATIONS)
            except BaseException:
                connection.close()
                raise
        with closing(connection):
            yield connection

    def keys(self) -> list[Key]:
        """The API keys that it holds; see `keys_of`.

        Raises:
            StoreError: if there is a catalog but it cannot be read.
        """
        if not self.file.exists():
            return []
        with explained(), closing(open_for_reading(self.file)) as connection:
            return keys_of(connection)

    @contextmanager
    def _change(self) -> Generator[tuple[Connection, ExitStack]]:
        """A transaction over the catalog, and a place for what takes back the changes to files if it fails."""
        with self.writing() as connection, _in_words(), ExitStack() as undo:
            with connection.transaction():
                yield connection, undo
            undo.pop_all()


def listed(connection: Connection) -> list[Entry]:
    """The databases that a catalog names, by name."""
    if applied_version(connection) == 0 and connection.row("select 1 from sqlite_schema limit 1") is None:
        return []  # another process is about to create it
    require_readable(connection, CATALOG_MIGRATIONS)
    rows = connection.rows("select name, file, tenant, created_at from databases order by name")
    return [Entry(*row) for row in rows]


def legal_name(name: str) -> str:
    """The name as it is kept: composed (NFC).

    Raises:
        ArgumentError: if a database cannot have it.
    """
    name = unicodedata.normalize("NFC", name)
    # Categories rather than \w, which knows no vowel signs: names in Hindi or Thai are words too.
    kinds = "".join(unicodedata.category(character)[0] for character in name)
    if not re.fullmatch(r"[LN].{0,63}", kinds) or any(
        kind not in "LMN" and character not in "-_." for kind, character in zip(kinds, name, strict=True)
    ):
        shown = name[:80].encode("utf-8", "replace").decode()
        raise ArgumentError(
            f'invalid argument: "{shown}" cannot be a database name; use 1 to 64 letters, digits, "-", "_" or ".",'
            " and begin with a letter or digit"
        )
    return name


def _found(entries: list[Entry], name: str) -> Entry:
    wanted = unicodedata.normalize("NFC", name)
    for entry in entries:
        if entry.name == wanted:
            return entry
    raise UnknownDatabase(name, tuple(entry.name for entry in entries))


@contextmanager
def _in_words() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the data directory cannot be changed: {error.strerror}") from error


@contextmanager
def explained() -> Generator[None]:
    """Say of errors within that they are the catalog's."""
    try:
        with _in_words():
            yield
    except StoreError as error:
        raise type(error)(f"the catalog of databases (catalog.db in the data directory): {error}") from error


def _require_free(connection: Connection, name: str, besides: str | None = None) -> None:
    # Names that differ in case alone would share an inbox folder on some file systems.
    for (taken,) in connection.rows("select name from databases"):
        if taken.casefold() == name.casefold() and taken != besides:
            raise ArgumentError(f'invalid argument: a database named "{taken}" exists already')


def _row(entry: Entry) -> tuple[str, str, str | None, str | None]:
    return entry.name, entry.file, entry.tenant, entry.created_at
