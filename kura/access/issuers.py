"""Authorization servers that are trusted to say who somebody is, and the keys that they sign with."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from kura.access.trust import is_safe
from kura.errors import IssuerUnreachable
from kura.store.looked import Looked

log = logging.getLogger(__name__)

KEYS_SECONDS = 3600.0
"""The keys of an authorization server are fetched again after so long."""

SOONEST_SECONDS = 30.0
"""A token whose key is not known makes them be fetched at once, but no more often than this: anybody can send one."""

KEEP_SECONDS = 86_400.0
"""While they cannot be fetched, those that were are good for so long."""

_TIMEOUT = httpx.Timeout(5.0, connect=3.0)
_MOST_BYTES = 256 * 1024

JsonWebKey = Mapping[str, Any]


class Issuer:
    """One authorization server. Safe for use by many threads at once."""

    def __init__(self, url: str) -> None:
        """Keep its address; nothing is asked for yet.

        Args:
            url: Its issuer identifier, exactly as it stands in its tokens.
        """
        self.url = url
        self._keys = Looked(self._fetch, every=KEYS_SECONDS, soonest=SOONEST_SECONDS, keep=KEEP_SECONDS)

    def keys(self, *, again: bool = False) -> Sequence[JsonWebKey]:
        """The keys that it publishes (RFC 7517), as they were fetched last; may wait.

        Args:
            again: The one that is looked for is not among them.

        Raises:
            IssuerUnreachable: if they cannot be fetched and never could.
        """
        return self._keys.get(again=again)

    def _fetch(self) -> Sequence[JsonWebKey]:
        try:
            # Redirects are not followed: where its keys are is for the server itself to say.
            with httpx.Client(timeout=_TIMEOUT, follow_redirects=False) as client:
                published = _asked(client, self._where(client))
        except httpx.HTTPError as error:
            log.warning("the keys of the authorization server cannot be fetched: %s", type(error).__name__)
            raise IssuerUnreachable(_UNREACHABLE) from None
        except IssuerUnreachable as error:
            log.warning("the keys of the authorization server cannot be fetched: %s", error)
            raise IssuerUnreachable(_UNREACHABLE) from None
        keys = published.get("keys")
        if not isinstance(keys, list):
            log.warning("the authorization server publishes no list of keys")
            raise IssuerUnreachable(_UNREACHABLE)
        return [cast("JsonWebKey", key) for key in cast("list[object]", keys) if isinstance(key, dict)]

    def _where(self, client: httpx.Client) -> str:
        """Where it publishes them: as its metadata say (RFC 8414, OpenID Connect Discovery).

        Raises:
            IssuerUnreachable: if it has none, or they are not its own.
        """
        for url in _metadata_of(self.url):
            try:
                found = _asked(client, url)
            except IssuerUnreachable:
                continue
            where = found.get("jwks_uri")
            # Metadata that name another issuer are not this one's (RFC 8414, section 3.3).
            if found.get("issuer") == self.url and isinstance(where, str) and is_safe(where):
                return where
        raise IssuerUnreachable("it has no metadata that name it and where its keys are")


_UNREACHABLE = "the authorization server that the credential names cannot be asked for its keys now; try again soon"


def _metadata_of(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    inserted = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*inserted, f"{origin}{path}/.well-known/openid-configuration"] if path else inserted


def _asked(client: httpx.Client, url: str) -> dict[str, Any]:
    """The JSON object at an address.

    Raises:
        IssuerUnreachable: if there is none.
        httpx.HTTPError: if nobody answers.
    """
    with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != 200:
            raise IssuerUnreachable(f"it answers with status {response.status_code}")
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise IssuerUnreachable("its answer is too long")
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IssuerUnreachable("its answer is no JSON object")
    return cast("dict[str, Any]", found)
