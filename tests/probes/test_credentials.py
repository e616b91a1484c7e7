"""No credential but a valid one opens anything, and no refusal tells one from another."""

import base64
import hashlib
import hmac
import itertools
import json
import logging
import time
import unicodedata
from collections.abc import Iterator
from typing import Any

import httpx2
import jwt
import pytest

from tests.probes.issuing import Issuer
from tests.probes.world import MARK, World, requests, seen, send
from tests.serve.running import reaching

LONG = 100_000


pytestmark = pytest.mark.anyio


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def confused(issuer: Issuer) -> str:
    """A token that is signed by HMAC, with the issuer's public key for a secret."""
    signed = f"{encoded({'alg': 'HS256', 'typ': 'at+jwt', 'kid': 'one'})}.{encoded(issuer.claims())}"
    code = hmac.digest(issuer.public_text(), signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}"


def wide(text: str) -> str:
    """The same in characters that compatibility normalization makes equal."""
    return "".join(chr(ord(character) + 0xFEE0) if character.isalnum() else character for character in text)


def variants(credential: str) -> Iterator[str]:
    """What careless comparing would take for the same."""
    yield credential.upper()
    yield credential.swapcase()
    yield wide(credential)
    yield unicodedata.normalize("NFD", credential.replace("a", "á", 1) if "a" in credential else credential + "á")
    yield credential + "\u200b"
    yield credential.replace("_", "\uff3f")
    yield credential[:-1]
    yield credential[1:]
    yield credential + credential[-1]
    yield credential[:-1] + ("a" if credential[-1] != "a" else "b")
    yield f'"{credential}"'
    yield credential + "\t"
    yield credential.ljust(LONG, "a")


def keys(world: World) -> Iterator[tuple[str, str]]:
    known = world.keys
    yield "expired", known["expired"]
    yield "revoked", known["revoked"]
    yield "nobody's", "kura_aaaaaaaa_" + "a" * 43
    yield "secret of another key", known["acme"][:14] + known["globex"][14:]
    yield "name of another key", known["globex"][:14] + known["acme"][14:]
    yield "hash", hashlib.sha256(known["acme"].encode()).hexdigest()
    for place, variant in enumerate(variants(known["acme"])):
        yield f"variant {place} of a key", variant


def tokens(world: World) -> Iterator[tuple[str, str]]:
    issuer, stranger, now = world.issuer, Issuer(world.issuer.url), int(time.time())
    audience = issuer.claims()["aud"]
    changed: dict[str, dict[str, Any]] = {
        "other audience": {"aud": "https://other.example/mcp"},
        "audience in another case": {"aud": audience.upper()},
        "audience and a slash": {"aud": audience + "/"},
        "audience's host": {"aud": audience.removesuffix("/mcp")},
        "no audience": {"aud": None},
        "audience that is no text": {"aud": 7},
        "other issuer": {"iss": "https://login.example"},
        "issuer in another case": {"iss": issuer.url.upper()},
        "issuer and a slash": {"iss": issuer.url + "/"},
        "issuers": {"iss": [issuer.url]},
        "no issuer": {"iss": None},
        "expired": {"exp": now - 3600},
        "just expired, beyond the leeway": {"exp": now - 31},
        "no end": {"exp": None},
        "end that is no number": {"exp": "never"},
        "end that is infinite": {"exp": float("inf")},
        "beginning that is infinite": {"nbf": float("inf")},
        "end that is not a number": {"exp": float("nan")},
        "not yet valid": {"nbf": now + 3600},
        "issued later": {"iat": now + 3600},
        "tenant that is no text": {"tenant": ["acme"]},
        "tenant of blanks": {"tenant": "   "},
        "scope that is no text": {"scope": 7},
        "long subject": {"sub": "a" * LONG},
    }
    for name, claims in changed.items():
        yield name, issuer.token(**claims)
    yield "other key", stranger.token()
    yield "other key, brought along", stranger.token({"jwk": stranger.published()["keys"][0]})
    yield "other key, from elsewhere", stranger.token({"jku": "https://login.example/keys", "x5u": "https://x.example"})
    yield "unknown key", issuer.token({"kid": "two"})
    yield "key by its path", issuer.token({"kid": "../../dev/null"})
    yield "of another type", issuer.token({"typ": "dpop+jwt"})
    yield "with something critical", issuer.token({"crit": ["exp"]})
    for algorithm in ("none", "None", "NONE", "nOnE", "HS256", "RS1", "", None):
        header = encoded({"alg": algorithm, "typ": "at+jwt", "kid": "one"})
        yield f"algorithm {algorithm}", f"{header}.{encoded(issuer.claims())}."
    yield "public key as secret", confused(issuer)
    other_length = jwt.encode(issuer.claims(), issuer.private, "RS512", {"kid": "one", "typ": "at+jwt"})
    yield "an algorithm that is not on the list", other_length
    head, _, signature = issuer.token().split(".")
    yield "other claims under a signature", f"{head}.{encoded(issuer.claims(tenant='globex'))}.{signature}"
    yield "claims that are a list", f"{head}.{encoded([1])}.{signature}"
    yield "header that is a list", f"{encoded([1])}.{encoded({})}.{signature}"
    yield "deep", f"{encoded({'alg': 'RS256'})}.{base64.urlsafe_b64encode(b'[' * LONG).decode()}.x"
    for place, variant in enumerate(variants(issuer.token())):
        yield f"variant {place} of a token", variant


def schemes(world: World) -> Iterator[tuple[str, bytes]]:
    """A key that is valid, sent in another way than it should be."""
    key = world.keys["acme"]
    basic = base64.b64encode(f"{key}:".encode()).decode()
    for sent in (key, f"Basic {basic}", f"Token {key}", f"Bearer{key}", f"Bearer, {key}", "Bearer", "Bearer ", ""):
        yield f"sent as {sent.split('kura_')[0]!r}", sent.encode()
    yield "two at once", f"Bearer {key}, Bearer {key}".encode()
    yield "bytes that are no text", b"Bearer " + bytes(range(128, 256))
    yield "a NUL", f"Bearer {key}".encode() + b"\0"


def refused(world: World) -> list[tuple[str, bytes]]:
    credentials = itertools.chain(keys(world), tokens(world))
    sent = [(name, b"Bearer " + value.encode()) for name, value in credentials]
    return [*sent, *schemes(world)]


ELSEWHERE = ("x-api-key", "x-authorization", "proxy-authorization", "cookie", "x-forwarded-user", "x-tenant-id")


async def test_what_is_not_valid_opens_nothing_and_is_refused_alike(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    asked = requests()
    sent = 0
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        expected = {each.path: seen(await send(client, each, "Bearer guessed")) for each in asked}
        assert {status for status, _, _ in expected.values()} == {401}
        assert len({text for _, text, _ in expected.values()}) == 1
        for (name, credential), each in itertools.product(refused(world), asked):
            answered = await send(client, each, credential)
            assert seen(answered) == expected[each.path], (name, each.name)
            sent += 1
    assert sent > 700
    quiet(world, caplog)


async def test_a_credential_that_is_sent_elsewhere_counts_for_nothing(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    asked = requests()
    valid = (world.keys["acme"], world.issuer.token())
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        expected = {each.path: seen(await send(client, each)) for each in asked}
        assert {status for status, _, _ in expected.values()} == {401}
        for credential, each in itertools.product(valid, asked):
            for header in ELSEWHERE:
                assert seen(await send(client, each.having(**{header: f"Bearer {credential}"}))) == expected[each.path]
            for parameter in ("access_token", "api_key", "key", "token", "authorization"):
                url = f"{each.path}?{parameter}={credential}"
                answered = await client.request(each.method, url, json=each.body, headers=dict(each.headers))
                assert seen(answered) == expected[each.path]
    quiet(world, caplog)


async def test_what_is_valid_is_let_in(world: World):
    # Otherwise the other tests would prove nothing.
    key = world.keys["acme"]
    credentials = [key, world.issuer.token(), world.issuer.token(exp=int(time.time()) - 20)]
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        for credential, each in itertools.product(credentials, requests()):
            answered = await send(client, each, f"bearer {credential}")
            assert answered.status_code == 200, (each.name, answered.text)
            assert "globex" not in answered.text


def quiet(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that was sent, and no path, is in the log."""
    lines = [record for record in caplog.records if not record.name.startswith("httpx2")]  # the test's own client
    assert any(record.name == "kura.events" for record in lines)
    text = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in lines)
    assert MARK not in text
    assert str(world.directory) not in text.replace(__file__, "")
    for secret in (*world.secrets, *(secret[14:] for secret in world.secrets), world.issuer.token()[:60]):
        assert secret not in text
