"""Which access tokens of OAuth are taken, and what is read from them."""

from dataclasses import dataclass
from urllib.parse import urlsplit

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those that can be allowed: all of them asymmetric, so a public key can never pass for a secret."""


_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Trust:
    """Which tokens are taken, and what is read from them.

    Attributes:
        resource: This server's own identifier: the URL of its endpoint (RFC 9728).
        issuers: Identifiers of the authorization servers.
        audiences: What a token must be for; one of them is enough.
        algorithms: How it may be signed.
        leeway: Seconds by which clocks may differ.
        tenant_claim: The claim that names the tenant; None where tokens name none.
        user_claim: The claim that names the user.
        databases_claim: The claim that lists the databases; None where tokens are not limited to any.
        scope_prefix: What stands before Kura's own names in the scopes of tokens.
    """

    resource: str
    issuers: tuple[str, ...]
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    leeway: float = 30.0
    tenant_claim: str | None = None
    user_claim: str = "sub"
    databases_claim: str | None = None
    scope_prefix: str = ""


def require_identifier(url: str) -> str:
    """An identifier of a server as OAuth has them (RFC 8414, section 2; RFC 9728, section 1.2).

    Raises:
        ValueError: if it cannot be one; the message says what one is.
    """
    if not is_safe(url) or urlsplit(url).query or urlsplit(url).fragment:
        raise ValueError("it must be https:// and a host (http:// on this machine), without query or fragment")
    return url


def is_safe(url: str) -> bool:
    """Whether what is fetched from there can be believed: https, or on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and parts.username is None and (
        parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    )  # fmt: skip
