"""Whatever is wrong with a token, it is refused, and the answer does not say what it was."""

import json
import time
from collections.abc import Generator

import pytest
from starlette.types import ASGIApp

from kura.library.library import Library
from tests.oauth.authority import Authority, authority, new_elliptic_key, new_key
from tests.oauth.forged import FORGED, Forged, headed, of
from tests.oauth.protected import RESOURCE, bearing, called, listed, loaded, protected
from tests.serve.running import asked

METADATA = "https://kura.example/.well-known/oauth-protected-resource/mcp"


@pytest.fixture(scope="module")
def attacker() -> Generator[Authority]:
    """A server that nobody here trusts, at which an attacker is whoever they want to be."""
    with authority() as opened:
        yield opened


@pytest.fixture(scope="module")
def app(library: Library, trusted: Authority) -> ASGIApp:
    trusted.rotate()  # so that there are two keys
    return protected(library, trusted)


@pytest.fixture(scope="module")
def usual(app: ASGIApp) -> tuple[int, bytes, str]:
    """How a token is refused: status, body, challenge."""
    response = listed(app, "kura_of_somebody_else")
    return response.status_code, response.content, response.headers["www-authenticate"]


def test_a_good_token_is_let_in(app: ASGIApp, trusted: Authority):
    assert loaded(app, of(trusted)) == ["acme-plans", "notes"]
    assert called(app, of(trusted), "list_rag").status_code == 200


def test_a_refusal_says_where_to_get_a_token(usual: tuple[int, bytes, str]):
    status, body, challenge = usual
    assert (status, json.loads(body)["code"]) == (401, "unauthorized")
    assert challenge == f'Bearer error="invalid_token", scope="search sql", resource_metadata="{METADATA}"'


@pytest.mark.parametrize("forged", FORGED.values(), ids=list(FORGED))
def test_a_token_that_is_not_good_is_refused_like_any_other(
    app: ASGIApp, trusted: Authority, attacker: Authority, usual: tuple[int, bytes, str], forged: Forged
):
    token = forged(trusted, attacker)
    for response in (listed(app, token), called(app, token, "list_rag")):
        assert (response.status_code, response.content, response.headers["www-authenticate"]) == usual
    assert not attacker.asked


@pytest.mark.parametrize(
    "value",
    [b"Bearer t\xc3\xb6ken", b"Bearer \xff\xfe", b"Bearer eyJ\xc3\xb6.e.x", b"Basic YTpi", b"Bearer", b"DPoP x.y.z"],
    ids=["beyond ascii", "no utf-8", "almost a token", "basic", "no token", "dpop"],
)
def test_what_cannot_be_a_token_is_refused_like_one(app: ASGIApp, usual: tuple[int, bytes, str], value: bytes):
    response = asked(app, "GET", "/api/list", headers={b"authorization": value})
    assert (response.status_code, response.content, response.headers["www-authenticate"]) == usual


def test_a_token_in_the_address_or_twice_is_not_taken(app: ASGIApp, trusted: Authority):
    token = of(trusted)
    assert asked(app, "GET", "/api/list", params={"access_token": token}).status_code == 401
    twice = [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    assert asked(app, "GET", "/api/list", headers=twice).status_code == 401


def test_one_issuer_cannot_speak_for_another(library: Library, trusted: Authority):
    with authority() as second:
        second.keys = [new_key(trusted.keys[0].kid)]
        app = protected(library, trusted, second)
        assert loaded(app, of(second, tenant="globex")) == ["globex-plans", "notes"]
        assert listed(app, second.sign(second.claims(RESOURCE, iss=trusted.issuer))).status_code == 401
        assert listed(app, trusted.sign(trusted.claims(RESOURCE, iss=second.issuer))).status_code == 401
        assert loaded(app, of(trusted)) == ["acme-plans", "notes"]


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
def test_the_type_of_an_access_token_may_be_written_as_servers_write_it(
    app: ASGIApp, trusted: Authority, typ: str | None
):
    assert loaded(app, headed(trusted, typ=typ)) == ["acme-plans", "notes"]


def test_a_token_without_a_key_s_name_is_taken_where_there_is_one_key(library: Library):
    with authority() as single:
        assert loaded(protected(library, single), headed(single, kid=None)) == ["acme-plans", "notes"]


def test_one_audience_of_several_is_enough(library: Library, trusted: Authority):
    app = protected(library, trusted, audiences="api://kura, https://kura.example")
    for audience in ("api://kura", ["https://other.example", "https://kura.example"]):
        assert loaded(app, of(trusted, aud=audience)) == ["acme-plans", "notes"]
    # What was named takes the place of the resource.
    assert listed(app, of(trusted)).status_code == 401


@pytest.mark.parametrize(
    ("changed", "leeway", "taken"),
    [
        ({"exp": -20}, 30, True),
        ({"exp": -40}, 30, False),
        ({"nbf": 20}, 30, True),
        ({"nbf": 40}, 30, False),
        ({"iat": 20}, 30, True),
        ({"iat": 40}, 30, False),
        ({"exp": -1}, 0, False),
        ({"nbf": 10}, 0, False),
        ({"exp": -290}, 300, True),
        ({"exp": -310}, 300, False),
    ],
    ids=str,
)
def test_clocks_may_differ_by_the_leeway(
    library: Library,
    trusted: Authority,
    changed: dict[str, int],
    leeway: int,
    taken: bool,
):
    now = int(time.time())
    claims = {name: now + seconds for name, seconds in changed.items()}
    response = listed(protected(library, trusted, leeway=leeway), of(trusted, **claims))
    assert response.status_code == (200 if taken else 401)


def test_algorithms_are_taken_where_they_are_set_and_there_is_a_key_for_them(library: Library):
    with authority() as several:
        several.keys.append(key := new_elliptic_key("ec"))
        token = headed(several, key.private_key, alg="ES256", kid="ec")
        assert loaded(protected(library, several), token) == ["acme-plans", "notes"]
        assert listed(protected(library, several, algorithms="RS256,PS256"), token).status_code == 401
        # Two keys, but no choice: one of them is of the other kind.
        assert loaded(protected(library, several), headed(several, kid=None)) == ["acme-plans", "notes"]


def test_a_refusal_repeats_nothing_of_the_token(app: ASGIApp, trusted: Authority):
    token = of(trusted, exp=1, tenant="a tenant of theirs")
    response = asked(app, "GET", "/api/list", headers=bearing(token))
    told = response.text + str(response.headers)
    assert "a tenant of theirs" not in told
    assert not any(part in told for part in token.split("."))
