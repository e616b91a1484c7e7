"""Which pushes a local database descends from: those that it made, and those that it was pulled from.

Ids of a local database are comparable with those of a push exactly if it descends from it.
"""

import secrets

from kura.store.engine import Connection
from kura.store.migrations import now
from kura.store.sources import state

_UNCONFIRMED = 0  # no version that a database has


def descent(local: Connection) -> dict[str, int]:
    """The pushes that this database made or was pulled from, each with the generation that the database had then."""
    return dict(local.rows("select token, generation from publications"))


def last_address(local: Connection) -> str | None:
    """Where this database was last published to or pulled from."""
    if local.row("select 1 from sqlite_schema where name = 'publications'") is None:
        return None  # of an older Kura, which did not publish
    found = local.row("select url from publications order by at desc, rowid desc limit 1")
    return None if found is None else str(found[0])


def remember(local: Connection, token: str, url: str) -> None:
    """Note, as it is pulled, that this database descends from a push.

    Args:
        local: The database, for writing.
        token: The push.
        url: Where it is published.
    """
    known = state(local)
    _note(local, token, url, known.generation, known.version)


def intend(local: Connection, token: str, url: str, of: Connection) -> None:
    """Note, before it is published, that this database descends from a push; `confirm` is to follow.

    Args:
        local: The database, for writing.
        token: The push.
        url: Where it is to be published.
        of: The view of the database that is published, which may be older than what is there by now.
    """
    _note(local, token, url, state(of).generation, _UNCONFIRMED)


def confirm(local: Connection, token: str, of: Connection) -> None:
    """Note that a push is published, as which `of` is the view of the database. Nothing where it was not `intend`ed."""
    local.run(
        "update publications set version = ? where token = ? and version = ?",
        (state(of).version, token, _UNCONFIRMED),
    )


def owner(local: Connection) -> str:
    """What tells this database's pushes from those of another one; made when it is first asked for."""
    with local.transaction():
        local.run("insert or ignore into publisher (id, owner) values (1, ?)", (secrets.token_hex(16),))
        return str(local.one("select owner from publisher where id = 1")[0])


def changed_since(local: Connection) -> bool:
    """Whether the database holds something that was neither published from it nor pulled into it."""
    return local.row("select 1 from sources limit 1") is not None and (
        local.row("select 1 from publications where version = (select version from state)") is None
    )


def _note(local: Connection, token: str, url: str, generation: int, version: int) -> None:
    local.run(
        "insert or replace into publications (token, url, generation, version, at) values (?, ?, ?, ?, ?)",
        (token, url, generation, version, now()),
    )
