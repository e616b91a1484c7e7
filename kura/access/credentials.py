"""From what a caller sends to who they are.

A gate is asked once for every HTTP request. It gets the value of the `Authorization` header, or None, and answers with
a principal. It is awaited, because keys may have to be looked up.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kura.access.keys import NOBODY, KeyRing, hash_key, id_of
from kura.access.trust import Trust
from kura.errors import ConfigurationError, CredentialError, KuraError
from kura.types import READING, Principal

if TYPE_CHECKING:  # a tenth of a second, for those who take tokens
    from kura.access.tokens import Tokens

log = logging.getLogger(__name__)

Gate = Callable[[str | None], Awaitable[Principal]]
"""Raises `CredentialError` for a caller who is not let in."""


def open_gate(principal: Principal) -> Gate:
    """A gate that lets everyone in, as `principal`. Whatever credential is sent is ignored."""

    async def admit(_authorization: str | None) -> Principal:
        return principal

    return admit


class CredentialGate:
    """Lets in who sends a credential that is valid: the one key of a setting, a named key, an access token.

    Args:
        key_hash: SHA-256 of a key that opens everything of `owner`.
        owner: Whom that key is for.
        ring: The named keys.
        tokens: What checks access tokens.
        otherwise: Who comes in while there is no credential at all that could be sent; None is nobody.
        everyone: Who comes in without a named key, whatever keys there are; None is nobody.
    """

    def __init__(
        self,
        *,
        key_hash: str | None = None,
        owner: Principal | None = None,
        ring: KeyRing | None = None,
        tokens: "Tokens | None" = None,
        otherwise: Principal | None = None,
        everyone: Principal | None = None,
    ) -> None:
        self._key_hash, self._owner, self._everyone = key_hash, owner or Principal(), everyone
        self._ring, self._tokens, self._otherwise = ring, tokens, otherwise

    async def __call__(self, authorization: str | None) -> Principal:
        """Say who sends this.

        Raises:
            CredentialError: if it is not valid; in the same words whatever is wrong with it.
            KuraError: if that cannot be found out now.
        """
        sent = None if authorization is None else _bearer(authorization)
        is_owner = hmac.compare_digest(hash_key(sent or ""), self._key_hash or NOBODY)
        if sent and is_owner and self._key_hash is not None:  # the empty text has a hash too
            return self._owner
        if self._everyone is not None and (sent is None or id_of(sent) is None):
            # Nobody who may read anyway waits for a catalog, or is turned away because it cannot be reached.
            return self._everyone
        there_are_keys = False
        if self._ring is not None:
            found = await self._ring.find(sent)
            there_are_keys = found.any
            if (key := found.key) is not None:
                return Principal(key.tenant, key.user, key.databases, key.scopes, f"key:{key.id}")
        if self._otherwise is not None and self._key_hash is None and self._tokens is None and not there_are_keys:
            return self._otherwise
        if authorization is None:
            raise CredentialError("no credential: send the header `Authorization: Bearer KEY`", sent=False)
        if self._tokens is not None and sent is not None:
            return await self._tokens.principal(sent)
        raise CredentialError("the credential is not valid")


def key_gate(key_hash: str, principal: Principal) -> Gate:
    """A gate that lets in, as `principal`, who sends the bearer key with this hash (RFC 6750)."""
    return CredentialGate(key_hash=key_hash, owner=principal)


def choose_gate(
    *,
    key_hash: str | None,
    public: bool,
    loopback: bool,
    tenant: str | None,
    user: str | None,
    ring: KeyRing | None = None,
    trust: Trust | None = None,
) -> Gate:
    """The gate that the settings ask for.

    Where it was said explicitly, everyone may read what belongs to nobody, and named keys open more. Otherwise, and
    always with the one key of a setting or with access tokens, a credential is required wherever there is one that
    could be sent. Where there is none, the person at this machine is let in on loopback, as the tenant and user that
    the server was started for.

    Args:
        key_hash: SHA-256 of the one key of a setting, if there is one.
        public: Whether it was said that anyone may read.
        loopback: Whether only this machine can reach the server.
        tenant: The tenant that callers without a key of their own are fixed to.
        user: The user that they are fixed to.
        ring: The named keys, of which there may be none.
        trust: Which access tokens are taken, if any are.

    Raises:
        ConfigurationError: if nothing says who may come in.
    """
    known = Principal(tenant=tenant, user=user)
    tokens = None if trust is None else _tokens(trust)
    if key_hash is not None or tokens is not None:
        return CredentialGate(key_hash=key_hash, owner=known, ring=ring, tokens=tokens)
    if public:
        if tenant is not None or user is not None:
            raise ConfigurationError(
                "a public server cannot act for a tenant or user: everyone would see what is theirs; "
                "set KURA_KEY_HASH, or leave out KURA_PUBLIC, or leave out tenant and user"
            )
        return CredentialGate(ring=ring, everyone=Principal(scopes=READING))
    if loopback:
        return CredentialGate(ring=ring, otherwise=known)
    if ring is not None and _may_hold_keys(ring):
        return CredentialGate(ring=ring)
    raise ConfigurationError(
        "this server could be reached from other machines, and nothing says who may come in: set KURA_KEY_HASH to the "
        "SHA-256 of a key that callers must send, make keys with `kura keys create`, name authorization servers in "
        "KURA_OAUTH_ISSUERS, or set KURA_PUBLIC=true to let anyone read"
    )


def _tokens(trust: Trust) -> "Tokens":
    from kura.access.tokens import Tokens  # noqa: PLC0415 - see above

    return Tokens(trust)


_START_SECONDS = 3.0  # a start waits no longer for a catalog


def _may_hold_keys(ring: KeyRing) -> bool:
    try:
        return bool(ring.look(within=_START_SECONDS))
    except KuraError as error:
        # There is somewhere that keys are asked for, and until it answers nobody comes in.
        log.warning("the keys that callers may send cannot be read yet: %s", error)
        return True


def _bearer(authorization: str) -> str | None:
    """What was sent as a bearer credential (RFC 6750); None if it is of another kind."""
    scheme, _, sent = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return None
    # Servers hand headers on as Latin-1 text: this is the way back to the bytes that were sent.
    return sent.strip(" ").encode("latin-1", "replace").decode("utf-8", "replace")
