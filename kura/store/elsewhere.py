"""Databases on servers: those that a setting names, and those that a catalog on a server does."""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor

from kura.errors import ConfigurationError, KuraError, StoreError
from kura.store.address import Patience, address
from kura.store.catalog import Entry, legal_name
from kura.store.engine import Connection, Row
from kura.store.keys import Key, keys_of
from kura.store.looked import Looked
from kura.store.remote import RemoteReader, open_remote
from kura.store.tokens import Tokens

log = logging.getLogger(__name__)

CATALOG = "catalog"
"""The name by which the token of the catalog is found."""

_TABLE = """
  create table if not exists databases
    (name text primary key, url text not null, tenant text, created_at text not null)
"""


def named(databases: Mapping[str, str]) -> list[Entry]:
    """The databases that a setting names: each `name` or `name@tenant`, with its URL.

    Raises:
        ConfigurationError: if a name, a tenant or a URL is not one; the message never holds the URL.
    """
    entries: list[Entry] = []
    for key, url in databases.items():
        name, found, tenant = key.partition("@")
        if found and not tenant.strip():
            raise ConfigurationError(f'KURA_DATABASES: the tenant of "{name}" is blank; leave out the @ for nobody')
        try:
            entry = Entry(legal_name(name), "", tenant.strip() if found else None, None, address(url))
        except KuraError as error:
            raise ConfigurationError(f"KURA_DATABASES: {error}") from None
        if any(entry.name == other.name for other in entries):
            raise ConfigurationError(f'KURA_DATABASES: the name "{entry.name}" stands there twice')
        entries.append(entry)
    return entries


class Elsewhere:
    """What there is on servers, as one process sees it. Safe for use by many threads at once."""

    def __init__(
        self,
        entries: Iterable[Entry],
        tokens: Tokens,
        *,
        catalog: str | None = None,
        refresh_seconds: float = 1.0,
        patience: Patience | None = None,
    ) -> None:
        """Keep what is needed; nothing is asked for yet.

        Args:
            entries: From `named`.
            tokens: Of the databases, and under `catalog` of the catalog.
            catalog: The URL of a database whose table names databases.
            refresh_seconds: That table is read no more often than this.
            patience: How long to wait for a server.

        Raises:
            ConfigurationError: if the URL of the catalog is none; the message never holds it.
        """
        self._named = list(entries)
        self._tokens = tokens
        self._patience = patience
        try:
            self._catalog = open_remote(catalog, tokens.of(CATALOG), patience=patience) if catalog else None
        except ConfigurationError as error:
            raise ConfigurationError(f"KURA_CATALOG: {error}") from None
        self._listing = Looked(self._look, every=refresh_seconds)

    @property
    def fault(self) -> KuraError | None:
        """Why the catalog could not be read when it was last looked at; None if it could."""
        return self._listing.fault

    def entries(self) -> list[Entry]:
        """All of them; a name that the setting has is not looked for in the catalog.

        Where the catalog cannot be read, what it said last; `fault` then says why.
        """
        names = {entry.name for entry in self._named}
        return [*self._named, *(entry for entry in self._from_catalog() if entry.name not in names)]

    def reader(self, entry: Entry, executor: Executor) -> RemoteReader:
        """What reads one of them; nothing is sent yet."""
        return RemoteReader(entry.url or "", self._tokens.of(entry.name), executor, patience=self._patience)

    def keys(self) -> list[Key]:
        """The API keys that the catalog holds; see `keys_of`.

        Raises:
            StoreError: if it cannot be read.
        """
        return [] if self._catalog is None else keys_of(self._catalog)

    def close(self) -> None:
        """Let go of the catalog's connections."""
        if self._catalog is not None:
            self._catalog.close()

    def _from_catalog(self) -> list[Entry]:
        if self._catalog is None:
            return []
        try:
            return self._listing.get()
        except KuraError:
            return []

    def _look(self) -> list[Entry]:
        assert self._catalog is not None  # noqa: S101 - nobody looks where there is none
        try:
            return _listed(self._catalog)
        except StoreError as error:
            log.warning("the catalog of databases cannot be read: %s", error)
            raise


def _listed(catalog: Connection) -> list[Entry]:
    found: dict[str, Entry] = {}
    for row in catalog.rows("select name, url, tenant, created_at from databases order by name"):
        # One row that somebody wrote wrongly must not take the others along.
        try:
            entry = _entry(row)
        except KuraError as error:
            log.warning("the catalog names a database that cannot be one: %s", error)
            continue
        if found.setdefault(entry.name, entry) is not entry:
            log.warning('the catalog names "%s" twice; the first one counts', entry.name)
    return list(found.values())


def _entry(row: Row) -> Entry:
    """The database that a row of a catalog names.

    Raises:
        KuraError: if it cannot be one.
    """
    name, url, tenant, created_at = row
    if not (isinstance(name, str) and isinstance(url, str)):
        raise StoreError("its name and its URL must be text")
    if not (tenant is None or (isinstance(tenant, str) and tenant.strip())):
        raise StoreError(f'the tenant of "{legal_name(name)}" is not text, or blank; null is nobody')
    if not (created_at is None or isinstance(created_at, str)):
        raise StoreError(f'the time of creation of "{legal_name(name)}" is not text')
    return Entry(legal_name(name), "", tenant, created_at, address(url))


def enter(catalog: Connection, entry: Entry, url: str) -> None:
    """Name a database in a catalog, which is made where it is not there."""
    catalog.atomically(
        [
            (_TABLE, ()),
            (
                "insert into databases (name, url, tenant, created_at) values (?, ?, ?, ?)"
                " on conflict (name) do update set url = excluded.url, tenant = excluded.tenant",
                (entry.name, url, entry.tenant, entry.created_at),
            ),
        ]
    )


def leave(catalog: Connection, name: str) -> None:
    """Take a database out of a catalog."""
    catalog.atomically([(_TABLE, ()), ("delete from databases where name = ?", (name,))])
