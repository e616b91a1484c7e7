"""API keys: how they look, how they are made, and which of them a process takes.

A key is `kura_`, eight characters that name it, `_`, and 43 random ones: 256 bits, so a plain SHA-256 of it can be kept
and compared, and guessing is hopeless. Nothing is ever written when one is used.
"""

import asyncio
import hmac
import json
import logging
import re
import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, cast, get_args

from kura.errors import ArgumentError, ConfigurationError, KeysUnreachable, StoreError
from kura.store.keys import Key
from kura.store.looked import Looked
from kura.store.migrations import now
from kura.types import Scope

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 10.0
"""After so long the keys of a catalog are read again: a revoked one is refused from then on."""

SOONEST_SECONDS = 1.0
"""A key that is not known makes the catalog be read at once, but no more often than this."""

KEEP_SECONDS = 600.0
"""While a catalog cannot be read, the keys that it held are good for so long."""

NOBODY = "0" * 64
"""What a key is compared with where there is none of its name."""

_ID = string.ascii_lowercase + string.digits
_SECRET = string.ascii_letters + string.digits
_KEY = re.compile(r"kura_([a-z0-9]{8})_[A-Za-z0-9]{43}")
_HASH = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FIELDS = ("id", "hash", "label", "tenant", "user", "databases", "scopes", "created", "expires")


def hash_key(key: str) -> str:
    """The SHA-256 of a key in lower-case hex: what is kept in its place."""
    return sha256(key.encode()).hexdigest()


def id_of(sent: str) -> str | None:
    """The id in what was sent as a key; None where it does not look like one."""
    found = _KEY.fullmatch(sent)
    return found[1] if found else None


def make_key(
    label: str,
    *,
    tenant: str | None,
    user: str | None,
    databases: frozenset[str] | None,
    scopes: frozenset[Scope],
    expires_at: str | None,
) -> tuple[str, Key]:
    """A new key: its text, which is shown once, and what is kept of it."""
    name = "".join(secrets.choice(_ID) for _ in range(8))
    text = f"kura_{name}_{''.join(secrets.choice(_SECRET) for _ in range(43))}"
    return text, Key(name, hash_key(text), label, tenant, user, databases, scopes, now(), expires_at)


def successor(key: Key, overlap: timedelta) -> tuple[str, Key, Key]:
    """A new key that opens what another one does: its text, what is kept of it, and the other one with its end.

    Args:
        key: The one that is to be replaced.
        overlap: For how long both are valid; never longer than the old one would have been anyway.

    Raises:
        ArgumentError: if it is not valid any more: what is lost is not handed out anew.
    """
    if not is_valid(key):
        raise ArgumentError(f'invalid argument: the key "{key.id}" is not valid any more; create a new one')
    lived = _moment(key.expires_at) - _moment(key.created_at) if key.expires_at else None
    text, new = make_key(
        key.label,
        tenant=key.tenant,
        user=key.user,
        databases=key.databases,
        scopes=key.scopes,
        expires_at=None if lived is None else _written(datetime.now(UTC) + lived),
    )
    ends = _written(datetime.now(UTC) + overlap)
    return text, new, replace(key, expires_at=min(ends, key.expires_at or ends))


def is_valid(key: Key) -> bool:
    """Whether a key opens anything now."""
    return key.revoked_at is None and (key.expires_at is None or now() < key.expires_at)


def expiry(text: str) -> str | None:
    """When a key ends, from what a person writes: `90d`, `12h`, a date (the end of it, UTC), or `never`.

    Raises:
        ArgumentError: if it is none of these, or is past.
    """
    if text == "never":
        return None
    if (span := _span(text)) is not None:
        return _written(datetime.now(UTC) + span)
    try:
        end = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise ArgumentError(
            "invalid argument: a key expires after days or hours, such as 90d or 12h, on a date such as 2030-12-31, or"
            ' "never"'
        ) from None
    if end <= datetime.now(UTC):
        raise ArgumentError(f"invalid argument: {text} is past")
    return _written(end)


def overlap(text: str) -> timedelta:
    """A time from what a person writes: `24h`, `7d`, or `0`.

    Raises:
        ArgumentError: if it is none.
    """
    span = timedelta() if text == "0" else _span(text)
    if span is None:
        raise ArgumentError("invalid argument: the overlap is a time such as 24h or 7d, or 0 for none")
    return span


def write_keys(keys: Sequence[Key]) -> str:
    """Keys as the text that `read_keys` takes: a JSON list, an object a line."""
    lines = [json.dumps(_described(key), ensure_ascii=False) for key in keys]
    return "[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]"


def read_keys(text: str, where: str) -> list[Key]:
    """Keys from a setting: a JSON list of objects with `id` and `hash` and, where they are limited, the other fields.

    Raises:
        ConfigurationError: if it is not one; the message names `where` and never holds a value.
    """
    if not text.strip():
        return []
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list):
        raise ConfigurationError(f"{where} must be a JSON list of keys, as `kura keys export` prints it")
    keys = [_given(each, f"{where}: key {place}") for place, each in enumerate(cast("list[object]", given), 1)]
    if len({key.id for key in keys}) < len(keys):
        raise ConfigurationError(f"{where}: two keys have the same id")
    return keys


@dataclass(frozen=True, slots=True)
class Found:
    """The valid key that was sent, if there is one, and whether there are any keys at all."""

    key: Key | None
    any: bool


class KeyRing:
    """The keys that a process takes: from settings, from a file, from catalogs. Safe for many requests at once.

    A key that was revoked in one place is not taken from another.
    """

    def __init__(
        self,
        settings: Sequence[Callable[[], Sequence[Key]]] = (),
        catalogs: Sequence[Callable[[], Sequence[Key]]] = (),
    ) -> None:
        """Keep what is needed; nothing is read yet.

        Args:
            settings: Each gives keys at once, whenever it is asked.
            catalogs: Each reads keys, and may wait for them.
        """
        self._settings = settings
        self._catalogs = [
            Looked(read, every=LOOK_AGAIN_SECONDS, soonest=SOONEST_SECONDS, keep=KEEP_SECONDS) for read in catalogs
        ]

    def look(self, *, again: bool = False, within: float | None = None) -> dict[str, Key]:
        """All keys by their ids; waits for catalogs, see `Looked.get`.

        Raises:
            KuraError: if a catalog cannot be read and never could.
        """
        known: dict[str, Key] = {}
        lists = [read() for read in self._settings] + [
            catalog.get(again=again, within=within) for catalog in self._catalogs
        ]
        for key in (key for keys in lists for key in keys):
            other = known.get(key.id)
            if other is None or is_valid(other):
                known[key.id] = key
        return known

    async def find(self, sent: str | None) -> Found:
        """The key that was sent, if it is valid; None, or what is none of ours, has none.

        Raises:
            KuraError: if a catalog cannot be read and never could.
        """
        name = None if sent is None else id_of(sent)
        hashed = hash_key(sent or "")
        known = await self._looked(again=False)
        found = _opened(known, name, hashed)
        if found is None and name is not None and self._catalogs:
            # It may have been made a moment ago. The same is done for a wrong key under a name that is known: how long
            # a refusal takes does not tell the two apart.
            known = await self._looked(again=True)
            found = _opened(known, name, hashed)
        # Whoever sets keys wants one to be asked for, even while the setting holds none.
        return Found(found, bool(known) or bool(self._settings))

    async def _looked(self, *, again: bool) -> Mapping[str, Key]:
        # Reading may wait, and is left to a thread; without catalogs there is nothing to wait for.
        try:
            return await asyncio.to_thread(self.look, again=again) if self._catalogs else self.look()
        except StoreError as error:
            # Whose text may name a server that strangers need not know of.
            log.warning("the keys that callers may send cannot be read: %s", error)
            raise KeysUnreachable("it cannot be found out now who may call; try again soon") from None


def _opened(known: Mapping[str, Key], name: str | None, hashed: str) -> Key | None:
    """The key of that name, if the hash is its own and it is valid; one that is not there is compared all the same."""
    key = known.get(name) if name is not None else None
    fits = hmac.compare_digest(hashed, key.hash if key is not None else NOBODY)
    return key if key is not None and fits and is_valid(key) else None


def _span(text: str) -> timedelta | None:
    found = re.fullmatch(r"([1-9][0-9]{0,4})([dh])", text)
    if not found:
        return None
    return timedelta(days=int(found[1])) if found[2] == "d" else timedelta(hours=int(found[1]))


def _moment(text: str) -> datetime:
    moment = datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    if _written(moment) != text:  # times are compared as texts
        raise ValueError
    return moment


def _written(moment: datetime) -> str:
    return moment.strftime(_TIME)


def _described(key: Key) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": key.id,
        "hash": key.hash,
        "label": key.label or None,
        "tenant": key.tenant,
        "user": key.user,
        "databases": None if key.databases is None else sorted(key.databases),
        "scopes": sorted(key.scopes),
        "created": key.created_at or None,
        "expires": key.expires_at,
    }
    return {name: value for name, value in described.items() if value is not None}


def _given(given: object, where: str) -> Key:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where} must be an object with id and hash")
    fields = cast("dict[str, object]", given)
    if not fields.keys() <= set(_FIELDS):
        raise ConfigurationError(f"{where} has a field that is none of {', '.join(_FIELDS)}")
    texts: dict[str, str | None] = {}
    for name in ("id", "hash", "label", "tenant", "user", "created", "expires"):
        value = fields.get(name)
        if not (value is None or (isinstance(value, str) and 0 < len(value) <= 200 and _is_text(value))):
            raise ConfigurationError(f"{where}: {name} must be text of 1 to 200 characters")
        texts[name] = value
    if not re.fullmatch(r"[a-z0-9]{8}", texts["id"] or "") or not _HASH.fullmatch(texts["hash"] or ""):
        raise ConfigurationError(f"{where} must have the id of a key, and the SHA-256 of the whole key as its hash")
    for name in ("created", "expires"):
        try:
            _moment(texts[name] or "2000-01-01T00:00:00Z")
        except ValueError:
            raise ConfigurationError(f"{where}: {name} must be a time such as 2030-12-31T00:00:00Z") from None
    databases = _names(fields.get("databases"), where, "databases")
    scopes = _names(fields.get("scopes"), where, "scopes")
    if scopes is None or not scopes <= set(get_args(Scope)):
        raise ConfigurationError(f"{where}: scopes must be a list of {', '.join(get_args(Scope))}")
    return Key(
        texts["id"] or "", texts["hash"] or "", texts["label"] or "", texts["tenant"], texts["user"], databases,
        cast("frozenset[Scope]", scopes), texts["created"] or "", texts["expires"],
    )  # fmt: skip


def _is_text(value: str) -> bool:
    """Whether it can be sent and stored; half a character, which JSON can hold, cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _names(given: object, where: str, name: str) -> frozenset[str] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in cast("list[object]", given)):
        raise ConfigurationError(f"{where}: {name} must be a list of texts")
    return frozenset(cast("list[str]", given))
