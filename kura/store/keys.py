"""API keys as they are kept, in the catalog of this machine or in one on a server: of the key itself only its hash."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kura.errors import StoreError
from kura.store.engine import Connection, Row
from kura.types import SCOPES, Scope

KEYS_TABLE = """
  create table if not exists keys (
    id text primary key,
    hash text not null unique,
    label text not null,
    tenant text,
    user text,
    databases text,
    scopes text not null,
    created_at text not null,
    expires_at text,
    revoked_at text
  )
"""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key without its secret, and what it opens.

    Attributes:
        id: The part of the key that may be shown.
        hash: SHA-256 of the whole key, in lower-case hex.
        label: What it is for, in its owner's words.
        tenant: Whose databases it opens besides those that belong to nobody.
        user: The user within the tenant.
        databases: Names that it is limited to; None is no limit.
        scopes: What it is good for.
        created_at: When it was made (UTC).
        expires_at: From when on it is not valid; None is never.
        revoked_at: Since when it is not valid any more; None while it is.
    """

    id: str
    hash: str
    label: str = ""
    tenant: str | None = None
    user: str | None = None
    databases: frozenset[str] | None = None
    scopes: frozenset[Scope] = SCOPES
    created_at: str = ""
    expires_at: str | None = None
    revoked_at: str | None = None


def keys_of(connection: Connection) -> list[Key]:
    """All keys that a catalog holds, valid or not, oldest first; none where it never had any.

    Raises:
        StoreError: if one of them cannot be understood: guessing what it opens is not for us.
    """
    if connection.row("select 1 from sqlite_schema where type = 'table' and name = 'keys'") is None:
        return []
    rows = connection.rows(
        "select id, hash, label, tenant, user, databases, scopes, created_at, expires_at, revoked_at from keys"
        " order by created_at, id"
    )
    return [_key(row) for row in rows]


def labels_of(connection: Connection) -> dict[str, str]:
    """The labels of all keys by their ids, those that cannot be understood among them."""
    if connection.row("select 1 from sqlite_schema where type = 'table' and name = 'keys'") is None:
        return {}
    return {
        str(id_): str(label) for id_, label in connection.rows("select id, label from keys order by created_at, id")
    }


def add_key(connection: Connection, key: Key) -> None:
    """Keep a key."""
    connection.atomically([(KEYS_TABLE, ()), _added(key)])


def replace_key(connection: Connection, key: Key, old: Key) -> None:
    """Keep a key in place of another one, whose end is kept with it; both or neither."""
    connection.atomically([_added(key), ("update keys set expires_at = ? where id = ?", (old.expires_at, old.id))])


def revoke_key(connection: Connection, id: str, at: str) -> None:  # noqa: A002 - that is what it is called
    """Note that a key is not valid any more. Its row stays: where there was a key once, one is asked for."""
    connection.atomically([("update keys set revoked_at = ? where id = ? and revoked_at is null", (at, id))])


def _added(key: Key) -> tuple[str, Sequence[str | None]]:
    return (
        "insert into keys (id, hash, label, tenant, user, databases, scopes, created_at, expires_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key.id,
            key.hash,
            key.label,
            key.tenant,
            key.user,
            None if key.databases is None else json.dumps(sorted(key.databases), ensure_ascii=False),
            " ".join(sorted(key.scopes)),
            key.created_at,
            key.expires_at,
        ),
    )


_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_STRANGE = 'the key "{}" in the catalog is not as Kura writes it; revoke it and make another'


def _key(row: Row) -> Key:
    id_, hash_, label, tenant, user, databases, scopes, created_at, expires_at, revoked_at = row
    texts, perhaps = (id_, hash_, label, scopes, created_at), (tenant, user, databases, expires_at, revoked_at)
    usable = all(isinstance(text, str) for text in texts)
    usable = usable and all(text is None or isinstance(text, str) for text in perhaps)
    usable = usable and all(moment is None or _TIME.fullmatch(moment) for moment in (expires_at, revoked_at))
    try:
        named: object = None if databases is None or not usable else json.loads(databases)
    except (ValueError, RecursionError):
        named, usable = None, False
    names = cast("list[object]", named) if isinstance(named, list) else []
    usable = usable and (named is None or isinstance(named, list)) and all(isinstance(name, str) for name in names)
    given = frozenset(str(scopes).split())
    if usable and given <= SCOPES:
        return Key(
            id_, hash_, label, tenant, user, None if named is None else frozenset(cast("list[str]", names)),
            cast("frozenset[Scope]", given), created_at, expires_at, revoked_at,
        )  # fmt: skip
    if isinstance(revoked_at, str):
        # It opens nothing any more, whatever else is written there.
        return Key(str(id_), "", databases=frozenset(), scopes=frozenset(), revoked_at=revoked_at)
    raise StoreError(_STRANGE.format(id_))
