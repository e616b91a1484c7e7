"""From what a caller sends to who they are.

A gate is asked once for every HTTP request. It gets the value of the `Authorization` header, or None, and answers with
a principal. It is awaited, so that a gate may look something up.
"""

import hmac
from collections.abc import Awaitable, Callable
from hashlib import sha256

from kura.errors import ConfigurationError, CredentialError
from kura.types import Principal

Gate = Callable[[str | None], Awaitable[Principal]]
"""Raises `CredentialError` for a caller who is not let in."""


def hash_key(key: str) -> str:
    """The SHA-256 of a bearer key in lower-case hex: what is configured in place of the key."""
    return sha256(key.encode()).hexdigest()


def open_gate(principal: Principal) -> Gate:
    """A gate that lets everyone in, as `principal`. Whatever credential is sent is ignored."""

    async def admit(_authorization: str | None) -> Principal:
        return principal

    return admit


def key_gate(key_hash: str, principal: Principal) -> Gate:
    """A gate that lets in, as `principal`, who sends the bearer key with this hash (RFC 6750)."""
    expected = key_hash.encode()

    async def admit(authorization: str | None) -> Principal:
        if authorization is None:
            raise CredentialError("no credential: send the header `Authorization: Bearer KEY`")
        scheme, _, key = authorization.partition(" ")
        # Servers hand headers on as Latin-1 text: this is the way back to the bytes that were sent.
        sent = sha256(key.strip(" ").encode("latin-1", "replace")).hexdigest().encode()
        if not hmac.compare_digest(sent, expected) or scheme.lower() != "bearer":
            raise CredentialError("the credential is not valid")
        return principal

    return admit


def choose_gate(*, key_hash: str | None, public: bool, loopback: bool, tenant: str | None, user: str | None) -> Gate:
    """The gate that the settings ask for.

    A configured key is always required. Without one, the person at this machine is let in on loopback, as the tenant
    and user that the server was started for; elsewhere everyone is, if that was said explicitly, and sees only what
    belongs to nobody.

    Args:
        key_hash: SHA-256 of the one bearer key, if there is one.
        public: Whether it was said that anyone may read.
        loopback: Whether only this machine can reach the server.
        tenant: The tenant that callers are fixed to.
        user: The user that callers are fixed to.

    Raises:
        ConfigurationError: if nothing says who may come in.
    """
    if key_hash is not None:
        return key_gate(key_hash, Principal(tenant=tenant, user=user))
    if public:
        if tenant is not None or user is not None:
            raise ConfigurationError(
                "a public server cannot act for a tenant or user: everyone would see what is theirs; "
                "set KURA_KEY_HASH, or leave out KURA_PUBLIC, or leave out tenant and user"
            )
        return open_gate(Principal())
    if loopback:
        return open_gate(Principal(tenant=tenant, user=user))
    raise ConfigurationError(
        "this server could be reached from other machines, and nothing says who may come in: set KURA_KEY_HASH to the "
        "SHA-256 of a key that callers must send, or KURA_PUBLIC=true to let anyone read"
    )
