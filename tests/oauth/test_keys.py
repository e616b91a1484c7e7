"""The keys of an authorization server are fetched seldom, change under way, and outlive its outages."""

import asyncio
import json
import socket
from collections.abc import Generator

import httpx2
import pytest
from starlette.types import ASGIApp

from kura.access.issuers import KEEP_SECONDS, KEYS_SECONDS, SOONEST_SECONDS
from kura.library.library import Library
from tests.oauth.authority import Authority, authority, new_key
from tests.oauth.protected import RESOURCE, Clock, bearing, called, listed, loaded, protected
from tests.serve.running import asked

SEEN = ["acme-plans", "notes"]
JWKS = "/jwks"


@pytest.fixture
def trusted() -> Generator[Authority]:
    """One of its own for each test: it is changed by it."""
    with authority() as opened:
        yield opened


@pytest.fixture
def app(library: Library, trusted: Authority, clock: Clock) -> ASGIApp:
    assert clock.now > SOONEST_SECONDS
    return protected(library, trusted)


def good(trusted: Authority) -> str:
    return trusted.sign(trusted.claims(RESOURCE))


def unreachable(response: httpx2.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (503, "issuer_unreachable")
    # Another token would not help, so none is asked for.
    assert "www-authenticate" not in response.headers


def test_nothing_is_fetched_before_somebody_sends_a_token(app: ASGIApp, trusted: Authority):
    assert asked(app, "GET", "/api/list").status_code == 401
    assert listed(app, "kura_an_ordinary_key").status_code == 401
    assert not trusted.asked


def test_keys_are_fetched_once_for_many_requests(app: ASGIApp, trusted: Authority, clock: Clock):
    for _ in range(20):
        assert loaded(app, good(trusted)) == SEEN
        clock.now += 100
    assert trusted.asked[JWKS] == 1
    clock.now += KEYS_SECONDS
    assert loaded(app, good(trusted)) == SEEN
    assert trusted.asked[JWKS] == 2


def test_a_new_key_is_taken_as_soon_as_a_token_names_it(app: ASGIApp, trusted: Authority, clock: Clock):
    assert loaded(app, good(trusted)) == SEEN
    before = good(trusted)
    trusted.rotate()
    clock.now += SOONEST_SECONDS
    assert loaded(app, good(trusted)) == SEEN
    assert loaded(app, before) == SEEN
    assert trusted.asked[JWKS] == 2


def test_a_key_that_is_no_longer_published_is_refused_once_keys_were_fetched(
    app: ASGIApp, trusted: Authority, clock: Clock
):
    before = good(trusted)
    assert loaded(app, before) == SEEN
    trusted.rotate(keep=False)
    assert loaded(app, before) == SEEN
    clock.now += KEYS_SECONDS
    assert listed(app, before).status_code == 401
    assert loaded(app, good(trusted)) == SEEN


def test_a_token_of_a_new_key_ends_the_old_one_too(app: ASGIApp, trusted: Authority, clock: Clock):
    before = good(trusted)
    assert loaded(app, before) == SEEN
    trusted.rotate(keep=False)
    clock.now += SOONEST_SECONDS
    assert loaded(app, good(trusted)) == SEEN
    assert listed(app, before).status_code == 401


def test_tokens_with_unknown_keys_do_not_make_keys_be_fetched_again_and_again(
    app: ASGIApp, trusted: Authority, clock: Clock
):
    for turn in range(30):
        token = trusted.sign(trusted.claims(RESOURCE), {"kid": f"unknown {turn}"})
        assert listed(app, token).status_code == 401
        clock.now += 1
    # At the start, and half a minute after that.
    assert trusted.asked[JWKS] <= 2


def test_tokens_that_cannot_be_taken_whatever_their_key_fetch_nothing(app: ASGIApp, trusted: Authority):
    for header in ({"alg": "RS512"}, {"typ": "logout+jwt"}, {"crit": ["exp"]}):
        assert listed(app, trusted.sign(trusted.claims(RESOURCE), header)).status_code == 401
    assert not trusted.asked


def test_keys_that_were_fetched_are_good_while_the_issuer_is_down(app: ASGIApp, trusted: Authority, clock: Clock):
    assert loaded(app, good(trusted)) == SEEN
    trusted.down = True
    for hours in (1, 2, 20):
        clock.now = 1000 + hours * 3600
        assert loaded(app, good(trusted)) == SEEN
    clock.now = 1000 + KEEP_SECONDS + 100
    unreachable(listed(app, good(trusted)))
    trusted.down = False
    clock.now += SOONEST_SECONDS
    assert loaded(app, good(trusted)) == SEEN


def test_an_unknown_key_is_refused_while_the_issuer_is_down(app: ASGIApp, trusted: Authority, clock: Clock):
    assert loaded(app, good(trusted)) == SEEN
    trusted.down = True
    trusted.rotate()
    clock.now += SOONEST_SECONDS
    assert listed(app, good(trusted)).status_code == 401
    trusted.down = False
    clock.now += SOONEST_SECONDS
    assert loaded(app, good(trusted)) == SEEN


def test_an_issuer_that_was_never_reached_is_said_to_be_unreachable(app: ASGIApp, trusted: Authority, clock: Clock):
    trusted.down = True
    unreachable(listed(app, good(trusted)))
    unreachable(called(app, good(trusted), "list_rag"))
    # It is up again, and is asked again soon, but not by every request.
    asked_before = sum(trusted.asked.values())
    trusted.down = False
    unreachable(listed(app, good(trusted)))
    assert sum(trusted.asked.values()) == asked_before
    clock.now += SOONEST_SECONDS
    assert loaded(app, good(trusted)) == SEEN


def test_health_is_told_while_the_issuer_is_down(app: ASGIApp, trusted: Authority):
    trusted.down = True
    response = asked(app, "GET", "/api/health", headers=bearing(good(trusted)))
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.usefixtures("clock")
def test_an_issuer_at_which_nobody_listens_is_said_to_be_unreachable(library: Library):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    nobody = Authority(f"http://127.0.0.1:{port}")
    response = listed(protected(library, nobody), good(nobody))
    unreachable(response)
    assert str(port) not in response.text


@pytest.mark.usefixtures("clock")
def test_an_issuer_that_is_down_hinders_no_other(library: Library, trusted: Authority):
    with authority() as second:
        second.down = True
        app = protected(library, second, trusted)
        unreachable(listed(app, good(second)))
        assert loaded(app, good(trusted)) == SEEN


@pytest.mark.parametrize("path", ["/realms/acme", "/a/b/c"])
@pytest.mark.usefixtures("clock")
def test_an_issuer_may_have_a_path(library: Library, path: str):
    with authority(path) as below:
        assert loaded(protected(library, below), good(below)) == SEEN
        assert set(below.asked) == {f"/.well-known/oauth-authorization-server{path}", f"{path}/jwks"}


@pytest.mark.parametrize("path", ["", "/realms/acme"])
@pytest.mark.usefixtures("clock")
def test_an_issuer_may_publish_as_openid_connect_says(library: Library, path: str):
    with authority(path, well_known=f"{path}/.well-known/openid-configuration") as provider:
        assert loaded(protected(library, provider), good(provider)) == SEEN


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "https://issuer.example"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://issuer.example/jwks"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://user@127.0.0.1/jwks"},
        {"jwks_uri": ["https://issuer.example"]},
    ],
    ids=str,
)
def test_metadata_that_cannot_be_believed_lead_nowhere(app: ASGIApp, trusted: Authority, wrong: dict[str, object]):
    trusted.metadata |= wrong
    unreachable(listed(app, good(trusted)))
    assert JWKS not in trusted.asked


@pytest.mark.parametrize(
    "published",
    [b"{", b"[]", b'{"keys": {}}', b'{"keys": null}', b"[" * 100_000, b'{"keys": [' + b" " * 300_000 + b"]}", b"\xff"],
    ids=["no json", "list", "keys that are an object", "no keys", "deep", "long", "no utf-8"],
)
def test_what_is_no_list_of_keys_is_not_taken_for_one(app: ASGIApp, trusted: Authority, published: bytes):
    trusted.published = published
    unreachable(listed(app, good(trusted)))


def test_keys_that_cannot_be_read_do_not_hinder_those_that_can(app: ASGIApp, trusted: Authority):
    odd: list[object] = [
        None,
        7,
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "kid": trusted.keys[0].kid, "use": "enc"},
        {"kty": "oct", "kid": trusted.keys[0].kid, "k": "c2VjcmV0"},
        {"kty": "unheard of", "kid": trusted.keys[0].kid},
        {"kty": "EC", "crv": "P-256", "kid": "ec"},
    ]
    trusted.published = json.dumps({"keys": [*odd, *trusted.jwks()["keys"]]}).encode()
    assert loaded(app, good(trusted)) == SEEN


def test_of_two_keys_with_one_name_none_is_chosen(app: ASGIApp, trusted: Authority):
    trusted.keys.append(new_key(trusted.keys[0].kid))
    assert listed(app, good(trusted)).status_code == 401


def test_callers_who_come_at_once_make_keys_be_fetched_once(app: ASGIApp, trusted: Authority):
    token = good(trusted)

    async def ask() -> list[int]:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            answers = await asyncio.gather(*(client.get("/api/list", headers=bearing(token)) for _ in range(20)))
        return [each.status_code for each in answers]

    assert asyncio.run(ask()) == [200] * 20
    assert trusted.asked[JWKS] == 1


@pytest.mark.parametrize("broken", [{"n": 5}, {"n": None}, {"n": "!"}, {"e": []}, {"n": ""}, {"n": "é"}], ids=str)
def test_a_key_of_the_same_name_that_is_broken_refuses_nobody_a_clear_answer(
    app: ASGIApp, trusted: Authority, broken: dict[str, object]
):
    [key] = trusted.jwks()["keys"]
    trusted.published = json.dumps({"keys": [key | broken]}).encode()
    assert listed(app, good(trusted)).status_code == 401


def test_a_redirection_is_not_followed(app: ASGIApp, trusted: Authority):
    trusted.moved = True
    unreachable(listed(app, good(trusted)))
    assert JWKS not in trusted.asked
