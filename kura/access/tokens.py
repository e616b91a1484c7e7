"""Access tokens of OAuth 2.1 as this resource server takes them: JSON Web Tokens (RFC 9068), and nothing else.

What a token claims of itself decides nothing: not where its keys are (`jku`, `jwk`, `x5u` are not read), not how it is
checked (the algorithm must be on a closed list of asymmetric ones, and belong to the key), not whom it is for (this
server must be in its audience).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast, get_args

import jwt

from kura.access.issuers import Issuer, JsonWebKey
from kura.access.trust import Trust
from kura.errors import CredentialError
from kura.types import Principal, Scope

MOST_CHARACTERS = 16_384
_TYPES = {"at+jwt", "application/at+jwt", "jwt"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Checks access tokens. Safe for many requests at once."""

    trust: Trust
    _issuers: dict[str, Issuer] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_issuers", {url: Issuer(url) for url in self.trust.issuers})

    async def principal(self, token: str) -> Principal:
        """Whom a token is for.

        Raises:
            CredentialError: if it is not valid here and now; always in the same words.
            IssuerUnreachable: if it may be, but its issuer cannot be asked for the key.
        """
        try:
            header, issuer = self._said(token)
            key = await self._key(issuer, header)
            claims = self._checked(token, key, issuer)
            return self._principal(claims)
        except (jwt.PyJWTError, _Refused, ValueError, TypeError, OverflowError, RecursionError):
            # Without its cause, which may quote what was sent.
            raise CredentialError("the credential is not valid") from None

    def _said(self, token: str) -> tuple[Mapping[str, Any], Issuer]:
        """What a token says of itself before anything is proved: how it is signed, and by which of the trusted."""
        if len(token) > MOST_CHARACTERS or not token.isascii():
            raise _Refused
        header = jwt.get_unverified_header(token)
        kind = header.get("typ", "JWT")
        if not isinstance(kind, str) or kind.lower() not in _TYPES or "crit" in header:
            raise _Refused
        if header.get("alg") not in self.trust.algorithms:
            raise _Refused
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
        named: object = claims.get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise _Refused
        return header, issuer

    async def _key(self, issuer: Issuer, header: Mapping[str, Any]) -> jwt.PyJWK:
        for again in (False, True):
            # The keys may have to be fetched.
            keys = await asyncio.to_thread(issuer.keys, again=again)
            if (key := _fitting(keys, header)) is not None:
                return key
        raise _Refused

    def _checked(self, token: str, key: jwt.PyJWK, issuer: Issuer) -> Mapping[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self.trust.audiences,
            issuer=issuer.url,
            leeway=self.trust.leeway,
            options={"require": ["exp", "iss", "aud"]},
        )

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        trust = self.trust
        user = _text(_claim(claims, trust.user_claim))
        tenant = None if trust.tenant_claim is None else _text(_claim(claims, trust.tenant_claim))
        databases: frozenset[str] | None = None
        if trust.databases_claim is not None:
            # A token that does not say it would be good for all of them.
            databases = frozenset(_words(_claim(claims, trust.databases_claim)))
        who = f"{claims['iss']}\n{claims.get('sub', '')}\n{claims.get('client_id', '')}"
        return Principal(
            tenant=tenant,
            user=user,
            databases=databases,
            scopes=_scopes(claims, trust.scope_prefix),
            # A digest: what names a person to their company has no place in a log.
            name=f"token:{sha256(who.encode()).hexdigest()[:12]}",
        )


class _Refused(Exception):
    """The token is not one that is taken here."""


def _fitting(keys: Sequence[JsonWebKey], header: Mapping[str, Any]) -> jwt.PyJWK | None:
    """The published key that a token says it was signed with, for its algorithm; None if there is no such key."""
    algorithm, name = header["alg"], header.get("kid")
    named = [key for key in keys if name is None or key.get("kid") == name]
    found: list[jwt.PyJWK] = []
    for key in named:
        if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm or key.get("kty") == "oct":
            continue
        try:
            found.append(jwt.PyJWK.from_dict(dict(key), algorithm))
        except jwt.PyJWTError:
            continue  # of another kind than the algorithm
    # Without a name in the token there must be no choice.
    return found[0] if len(found) == 1 else None


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by a path of names with dots between them."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = cast("Mapping[str, object]", found).get(part) if isinstance(found, dict) else None
    return found


def _text(claim: object) -> str | None:
    if claim is None:
        return None
    if not isinstance(claim, str) or not 0 < len(claim) <= 200 or not claim.strip():
        raise _Refused
    claim.encode()  # half a character cannot be sent back: a ValueError
    return claim


def _words(claim: object) -> list[str]:
    """The words of a claim that is a list of them, or a text with blanks between; one that is not there has none."""
    if claim is None:
        return []
    if isinstance(claim, str):
        return claim.split()
    if not isinstance(claim, list) or not all(isinstance(each, str) for each in cast("list[object]", claim)):
        raise _Refused
    return cast("list[str]", claim)


def _scopes(claims: Mapping[str, Any], prefix: str) -> frozenset[Scope]:
    given: list[str] = []
    # `scope` is RFC 9068's; `scp` and `permissions` are what well-known servers write.
    for name in ("scope", "scp", "permissions"):
        if name in claims:
            given += _words(claims[name])
    known = {f"{prefix}{scope}": scope for scope in get_args(Scope)}
    return cast("frozenset[Scope]", frozenset(known[word] for word in given if word in known))
