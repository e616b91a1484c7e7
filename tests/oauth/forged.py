"""Tokens that must not be taken: each has one thing wrong with it."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.oauth.authority import Authority, encoded, new_elliptic_key
from tests.oauth.protected import RESOURCE

DEEP = b"[" * 10_000


def of(trusted: Authority, **changed: Any) -> str:
    return trusted.sign(trusted.claims(RESOURCE, **changed))


def headed(trusted: Authority, key: object = None, **header: Any) -> str:
    return trusted.sign(trusted.claims(RESOURCE), header, key=key)


def public_pem(trusted: Authority) -> bytes:
    return trusted.keys[0].public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_jwk(trusted: Authority) -> bytes:
    return json.dumps(trusted.jwks()["keys"][0]).encode()


def tampered(trusted: Authority) -> str:
    header, _, signature = of(trusted).split(".")
    return f"{header}.{encoded(json.dumps(trusted.claims(RESOURCE, tenant='globex')).encode())}.{signature}"


def altered(token: str, place: int) -> str:
    """The token with another first byte in its signature, or another last one."""
    at = token.rindex(".") + 1 if place == 0 else len(token) - 3
    return token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]


def bare(header: bytes, payload: bytes) -> str:
    return f"{encoded(header)}.{encoded(payload)}.{encoded(b'signature')}"


def by(attacker: Authority, trusted: Authority, **header: Any) -> str:
    """What the attacker signs in the name of the trusted one."""
    return attacker.sign(trusted.claims(RESOURCE), header)


Forged = Callable[[Authority, Authority], str]
"""Made with the authority that is trusted, and with another one, in which the attacker is whoever they want to be."""

FORGED: Mapping[str, Forged] = {
    "another audience": lambda a, _: of(a, aud="https://other.example/mcp"),
    "an audience that only begins alike": lambda a, _: of(a, aud=f"{RESOURCE}/more"),
    "an audience without the path": lambda a, _: of(a, aud="https://kura.example"),
    "a list of other audiences": lambda a, _: of(a, aud=["a client", "https://other.example/mcp"]),
    "an empty list of audiences": lambda a, _: of(a, aud=[]),
    "an audience that is an object": lambda a, _: of(a, aud={RESOURCE: RESOURCE}),
    "no audience": lambda a, _: of(a, aud=None),
    "another issuer": lambda a, _: of(a, iss="https://issuer.example"),
    "an issuer with a slash more": lambda a, _: of(a, iss=f"{a.issuer}/"),
    "an issuer that is a list": lambda a, _: of(a, iss=[a.issuer]),
    "no issuer": lambda a, _: of(a, iss=None),
    "the attacker's own": lambda _, b: of(b),
    "the attacker's key under the issuer's name": lambda a, b: by(b, a),
    "the attacker's key under the key's name": lambda a, b: by(b, a, kid=a.keys[0].kid),
    "jku": lambda a, b: by(b, a, jku=f"{b.issuer}/jwks"),
    "jku under the key's name": lambda a, b: by(b, a, jku=f"{b.issuer}/jwks", kid=a.keys[0].kid),
    "x5u": lambda a, b: by(b, a, x5u=f"{b.issuer}/jwks"),
    "jwk": lambda a, b: by(b, a, jwk=b.jwks()["keys"][0]),
    "jwk without a name": lambda a, b: by(b, a, jwk=b.jwks()["keys"][0], kid=None),
    "jwk under the key's name": lambda a, b: by(b, a, jwk=b.jwks()["keys"][0], kid=a.keys[0].kid),
    "expired": lambda a, _: of(a, exp=int(time.time()) - 3600),
    "expired long ago": lambda a, _: of(a, exp=1),
    "expires at a time that is none": lambda a, _: of(a, exp="tomorrow"),
    "expires in infinity": lambda a, _: of(a, exp=float("inf")),
    "expires at no number": lambda a, _: of(a, exp=float("nan")),
    "expires at a list": lambda a, _: of(a, exp=[2_000_000_000]),
    "no expiry": lambda a, _: of(a, exp=None),
    "not yet valid": lambda a, _: of(a, nbf=int(time.time()) + 3600),
    "valid from infinity": lambda a, _: of(a, nbf=float("inf")),
    "issued in the future": lambda a, _: of(a, iat=int(time.time()) + 3600),
    "alg none": lambda a, _: headed(a, alg="none", key=b""),
    "alg None": lambda a, _: bare(b'{"alg":"None"}', json.dumps(a.claims(RESOURCE)).encode()),
    "no alg": lambda a, _: bare(b'{"typ":"at+jwt"}', json.dumps(a.claims(RESOURCE)).encode()),
    "alg that is a list": lambda a, _: bare(b'{"alg":["RS256"]}', json.dumps(a.claims(RESOURCE)).encode()),
    "HS256 with the public key": lambda a, _: headed(a, public_pem(a), alg="HS256"),
    "HS256 with the published key": lambda a, _: headed(a, public_jwk(a), alg="HS256"),
    "an algorithm that was not allowed": lambda a, _: headed(a, alg="RS512"),
    "an algorithm that the key is not for": lambda a, _: headed(a, alg="PS256"),
    "ES256 under the name of an RSA key": lambda a, _: headed(a, new_elliptic_key("ec").private_key, alg="ES256"),
    "no key's name where there are two": lambda a, _: headed(a, kid=None),
    "a key's name that is unknown": lambda a, _: headed(a, kid="unknown"),
    "a key's name that is a number": lambda a, _: headed(a, kid=7),
    "a key's name that is a path": lambda a, _: headed(a, b"", kid="/dev/null", alg="HS256"),
    "the name of the other key": lambda a, _: headed(a, kid=a.keys[1].kid),
    "another type": lambda a, _: headed(a, typ="logout+jwt"),
    "a type that is a number": lambda a, _: headed(a, typ=1),
    "crit": lambda a, _: headed(a, crit=["exp"]),
    "crit that is unknown": lambda a, _: headed(a, crit=["urn:x"], **{"urn:x": 1}),
    "unencoded payload": lambda a, _: headed(a, b64=False),
    "tampered payload": lambda a, _: tampered(a),
    "first byte of the signature": lambda a, _: altered(of(a), 0),
    "last bytes of the signature": lambda a, _: altered(of(a), -1),
    "no signature": lambda a, _: of(a).rpartition(".")[0] + ".",
    "no third part": lambda a, _: of(a).rpartition(".")[0],
    "a fourth part": lambda a, _: f"{of(a)}.{encoded(b'x')}",
    "garbage": lambda _, __: "garbage",
    "garbage in three parts": lambda _, __: "not.a.token",
    "dots": lambda _, __: "..",
    "nothing": lambda _, __: "",
    "two tokens": lambda a, _: f"{of(a)} {of(a)}",
    "a long one": lambda a, _: of(a, padding="x" * 75_000),
    "long garbage": lambda _, __: "x" * 100_000,
    "a header that is a list": lambda a, _: bare(b"[]", json.dumps(a.claims(RESOURCE)).encode()),
    "a header that is deep": lambda a, _: bare(DEEP, json.dumps(a.claims(RESOURCE)).encode()),
    "a payload that is a list": lambda a, _: a.sign(b"[]"),
    "a payload that is deep": lambda a, _: a.sign(DEEP),
    "a payload that is no UTF-8": lambda a, _: a.sign(b'{"iss": "\xff"}'),
    "a payload that is no JSON": lambda a, _: a.sign(b"{"),
    "a tenant that is a list": lambda a, _: of(a, tenant=["acme"]),
    "a tenant that is blank": lambda a, _: of(a, tenant=" "),
    "a tenant that is long": lambda a, _: of(a, tenant="x" * 201),
    "a tenant that is true": lambda a, _: of(a, tenant=True),
    "a subject that is a number": lambda a, _: of(a, sub=7),
    "scopes that are an object": lambda a, _: of(a, scope={"search": True}),
}
