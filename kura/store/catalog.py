"""Which databases there are: a small table of names in the data directory, and the files that they stand for.

A database keeps its file when it is renamed, so a process that serves it does not lose its footing.
"""

import re
import secrets
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kura.errors import ArgumentError, UnknownDatabase, WrongSchema
from kura.store.migrations import migrate, now
from kura.store.sqlite import Connection, open_for_reading, open_for_writing
from kura.text.tokens import TOKENIZER_VERSION

_NAME = re.compile(r"[^\W_][\w.\-]{0,63}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One database of the catalog. `file` is relative to the data directory; `tenant` None belongs to nobody."""

    name: str
    file: str
    tenant: str | None
    created_at: str


class Catalog:
    """The databases of one data directory. Every call reads what is there now; nothing is kept in memory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._path = data_dir / "catalog.db"

    def entries(self) -> list[Entry]:
        """All databases, by name. An empty or missing data directory has none."""
        if not self._path.exists():
            return []
        connection = open_for_reading(self._path)
        try:
            if not connection.row("select 1 from sqlite_schema where name = 'databases'"):
                return []
            rows = connection.rows("select name, file, tenant, created_at from databases order by name")
        finally:
            connection.close()
        return [Entry(*row) for row in rows]

    def find(self, name: str) -> Entry:
        """The database of that name, whoever owns it.

        Raises:
            UnknownDatabase: if there is none.
        """
        entries = self.entries()
        wanted = _normal(name)
        for entry in entries:
            if entry.name == wanted:
                return entry
        raise UnknownDatabase(name, tuple(entry.name for entry in entries))

    def path(self, entry: Entry) -> Path:
        """Where its database file is."""
        return self.data_dir / entry.file

    def inbox(self, entry: Entry) -> Path:
        """The folder whose files are indexed without being named on the command line."""
        return self.data_dir / "inbox" / entry.name

    def add(self, name: str, tenant: str | None = None) -> Entry:
        """Create an empty database, owned by `tenant` or by nobody, and its inbox folder.

        Raises:
            ArgumentError: if the name is not a legal one, or is taken.
        """
        name = _legal(name)
        if tenant is not None and not tenant.strip():
            raise ArgumentError("invalid argument: tenant must not be blank; leave it out for a database of nobody")
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "database"
        entry = Entry(name, f"databases/{stem}-{secrets.token_hex(4)}.db", tenant, now())
        with self._change() as connection:
            _require_free(connection, name)
            # The file is complete before the catalog names it: whoever finds the name can use it.
            self._create(entry)
            connection.run("insert into databases (name, file, tenant, created_at) values (?, ?, ?, ?)", _row(entry))
        self.inbox(entry).mkdir(parents=True, exist_ok=True)
        return entry

    def rename(self, old: str, new: str) -> Entry:
        """Give a database another name; its inbox folder moves along.

        Raises:
            UnknownDatabase: if there is no `old`.
            ArgumentError: if `new` is not a legal name, or is taken.
        """
        entry, new = self.find(old), _legal(new)
        renamed = Entry(new, entry.file, entry.tenant, entry.created_at)
        if entry == renamed:
            return entry
        with self._change() as connection:
            _require_free(connection, new, besides=entry.name)
            inbox, target = self.inbox(entry), self.inbox(renamed)
            if target.exists() and any(target.iterdir()) and not (inbox.exists() and target.samefile(inbox)):
                raise ArgumentError(f'the inbox folder of "{new}" already holds files; move them away first')
            connection.run("update databases set name = ? where name = ?", (new, entry.name))
            if inbox.exists():
                if target.exists() and not target.samefile(inbox):
                    target.rmdir()
                inbox.rename(target)
                try:
                    self._move_root(renamed, inbox, target)
                except BaseException:
                    target.rename(inbox)
                    raise
        return renamed

    def remove(self, name: str) -> Entry:
        """Forget a database and delete its file. The folders that were indexed, its inbox among them, stay.

        An inbox that is empty goes too.

        Raises:
            UnknownDatabase: if there is none of that name.
        """
        entry = self.find(name)
        with self._change() as connection:
            connection.run("delete from databases where name = ?", (entry.name,))
        path = self.path(entry)
        for suffix in ("", "-wal", "-shm", ".lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        inbox = self.inbox(entry)
        if inbox.is_dir() and not any(inbox.iterdir()):
            inbox.rmdir()
        return entry

    def _create(self, entry: Entry) -> None:
        path = self.path(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        database = open_for_writing(path)
        try:
            migrate(database)
            database.run(
                "insert into state (id, generation, version, tokenizer, tenant, created_at) values (1, 1, 1, ?, ?, ?)",
                (TOKENIZER_VERSION, entry.tenant, entry.created_at),
            )
        except BaseException:
            database.close()
            path.unlink(missing_ok=True)
            raise
        database.close()

    def _move_root(self, entry: Entry, old: Path, new: Path) -> None:
        database = open_for_writing(self.path(entry))
        try:
            database.run("update roots set path = ? where path = ?", (str(new.resolve()), str(old.resolve())))
        finally:
            database.close()

    @contextmanager
    def _change(self) -> Generator[Connection]:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        connection = open_for_writing(self._path)
        try:
            foreign = connection.row(
                "select 1 from sqlite_schema where name <> 'databases' and name not like 'sqlite_%'"
            )
            if foreign:
                raise WrongSchema(f"{self._path.name} in the data directory is not Kura's catalog")
            with connection.transaction():
                connection.run(
                    "create table if not exists databases"
                    " (name text primary key, file text not null unique, tenant text, created_at text not null)"
                )
                yield connection
        finally:
            connection.close()


def _normal(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _legal(name: str) -> str:
    name = _normal(name)
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f'invalid argument: "{name[:80]}" cannot be a database name; use 1 to 64 letters, digits, "-", "_" or ".",'
            " and begin with a letter or digit"
        )
    return name


def _require_free(connection: Connection, name: str, besides: str | None = None) -> None:
    # Names that differ in case alone would share an inbox folder on some file systems.
    for (taken,) in connection.rows("select name from databases"):
        if taken.casefold() == name.casefold() and taken != besides:
            raise ArgumentError(f'invalid argument: a database named "{taken}" exists already')


def _row(entry: Entry) -> tuple[str, str, str | None, str]:
    return entry.name, entry.file, entry.tenant, entry.created_at
