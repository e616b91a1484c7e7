"""What a token opens: its tenant, its databases, its scopes, as the settings say where they stand."""

from typing import Any

import pytest

from kura.library.library import Library
from tests.oauth.authority import Authority
from tests.oauth.protected import RESOURCE, called, listed, loaded, protected

ALL = ["acme-plans", "notes"]


def of(trusted: Authority, **claims: Any) -> str:
    return trusted.sign(trusted.claims(RESOURCE, **claims))


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("org.tenant", {"org": {"tenant": "globex"}}),
        ("org.tenant", {"org.tenant": "globex", "org": {"tenant": "acme"}}),
        ("https://kura.example/tenant", {"https://kura.example/tenant": "globex"}),
        ("a.b.c.d", {"a": {"b": {"c": {"d": "globex"}}}}),
    ],
    ids=["path", "the very name before the path", "url", "long path"],
)
def test_the_tenant_stands_where_the_setting_says(
    library: Library, trusted: Authority, claim: str, claims: dict[str, Any]
):
    app = protected(library, trusted, tenant_claim=claim)
    assert loaded(app, of(trusted, **claims)) == ["globex-plans", "notes"]


@pytest.mark.parametrize(
    "claims",
    [{}, {"org": None}, {"org": "globex"}, {"org": ["tenant"]}, {"org": {"tenant": None}}, {"org": {}}],
    ids=str,
)
def test_a_token_that_names_no_tenant_opens_only_what_is_nobody_s(
    library: Library, trusted: Authority, claims: dict[str, Any]
):
    app = protected(library, trusted, tenant_claim="org.tenant")
    assert loaded(app, trusted.sign(trusted.claims(RESOURCE) | claims)) == ["notes"]


@pytest.mark.parametrize(
    "tenant", ["", "  ", ["globex"], {"a": 1}, 7, True, "x" * 201], ids=lambda tenant: repr(tenant)[:20]
)
def test_a_tenant_that_is_no_name_is_refused(library: Library, trusted: Authority, tenant: object):
    app = protected(library, trusted, tenant_claim="org.tenant")
    assert listed(app, of(trusted, org={"tenant": tenant})).status_code == 401


def test_a_tenant_with_half_a_character_in_it_is_refused(library: Library, trusted: Authority):
    assert listed(protected(library, trusted), of(trusted, tenant="\ud800")).status_code == 401


def test_without_the_setting_no_claim_is_taken_for_a_tenant(library: Library, trusted: Authority):
    app = protected(library, trusted, tenant_claim=None)
    assert loaded(app, of(trusted, tenant="acme", tenant_id="acme")) == ["notes"]


@pytest.mark.parametrize("tenant", ["ACME", "acme ", "acme-plans", "%", "acme\x00", "a*"])
def test_a_tenant_that_is_only_like_another_sees_nothing_of_it(library: Library, trusted: Authority, tenant: str):
    assert loaded(protected(library, trusted), of(trusted, tenant=tenant)) == ["notes"]


@pytest.mark.parametrize(
    ("databases", "seen"),
    [
        (["acme-plans"], ["acme-plans"]),
        (["acme-plans", "notes"], ALL),
        ("acme-plans", ["acme-plans"]),
        ("acme-plans  notes", ALL),
        ("notes globex-plans", ["notes"]),
        (["globex-plans"], []),
        (["*"], []),
        ("", []),
        ([], []),
    ],
    ids=str,
)
def test_a_token_opens_the_databases_that_it_lists_and_no_others(
    library: Library, trusted: Authority, databases: object, seen: list[str]
):
    app = protected(library, trusted, databases_claim="databases")
    token = of(trusted, databases=databases)
    assert loaded(app, token) == seen
    for name in ("acme-plans", "globex-plans", "notes"):
        found = called(app, token, "search_rag", db=name, q="plan", mode="keyword").json()["result"]
        assert found["isError"] is (name not in seen)


@pytest.mark.parametrize("claims", [{}, {"databases": None}], ids=str)
def test_a_token_that_lists_no_databases_opens_none(library: Library, trusted: Authority, claims: dict[str, Any]):
    app = protected(library, trusted, databases_claim="databases")
    assert loaded(app, trusted.sign(trusted.claims(RESOURCE) | claims)) == []


@pytest.mark.parametrize("databases", [{"notes": True}, [["notes"]], ["notes", 7], 7, True], ids=str)
def test_a_list_of_databases_that_is_none_is_refused(library: Library, trusted: Authority, databases: object):
    app = protected(library, trusted, databases_claim="databases")
    assert listed(app, of(trusted, databases=databases)).status_code == 401


def test_without_the_setting_a_token_is_limited_to_no_databases(library: Library, trusted: Authority):
    assert loaded(protected(library, trusted), of(trusted, databases=["notes"])) == ALL


def test_databases_may_stand_below_a_path(library: Library, trusted: Authority):
    app = protected(library, trusted, databases_claim="kura.databases")
    assert loaded(app, of(trusted, kura={"databases": ["notes"]})) == ["notes"]


def statuses(library: Library, trusted: Authority, prefix: str, claims: dict[str, Any]) -> tuple[int, int]:
    """How searching is answered, and how SQL is."""
    app = protected(library, trusted, scope_prefix=prefix)
    token = trusted.sign(trusted.claims(RESOURCE, scope=None) | claims)
    found = called(app, token, "search_rag", db="notes", q="passages", mode="keyword")
    return found.status_code, called(app, token, "query", db="notes", sql="select 1").status_code


@pytest.mark.parametrize(
    ("prefix", "claims", "expected"),
    [
        ("", {"scope": "search sql"}, (200, 200)),
        ("", {"scope": "search"}, (200, 403)),
        ("", {"scope": "sql"}, (403, 200)),
        ("", {"scope": "openid profile  search"}, (200, 403)),
        ("", {"scope": ["search", "sql"]}, (200, 200)),
        ("", {"scp": ["search", "sql"]}, (200, 200)),
        ("", {"scp": "search sql"}, (200, 200)),
        ("", {"permissions": ["sql"]}, (403, 200)),
        ("", {"scope": "search", "scp": ["sql"]}, (200, 200)),
        ("", {"scope": ""}, (403, 403)),
        ("", {}, (403, 403)),
        ("", {"scope": "SEARCH Sql searching sql:write"}, (403, 403)),
        ("", {"scope": "search,sql"}, (403, 403)),
        ("kura:", {"scope": "kura:search kura:sql"}, (200, 200)),
        ("kura:", {"scope": "search kura:sql"}, (403, 200)),
        ("kura:", {"scope": "search sql"}, (403, 403)),
        ("api://kura/", {"scp": ["api://kura/search"]}, (200, 403)),
    ],
    ids=str,
)
def test_a_token_is_good_for_its_scopes_and_for_nothing_else(
    library: Library, trusted: Authority, prefix: str, claims: dict[str, Any], expected: tuple[int, int]
):
    assert statuses(library, trusted, prefix, claims) == expected


def test_a_challenge_names_scopes_as_the_issuer_does(library: Library, trusted: Authority):
    app = protected(library, trusted, scope_prefix="kura:")
    assert 'scope="kura:search kura:sql"' in listed(app, "nonsense").headers["www-authenticate"]
    token = of(trusted, scope="kura:search")
    refused = called(app, token, "query", db="notes", sql="select 1").headers["www-authenticate"]
    assert refused.startswith('Bearer error="insufficient_scope", scope="kura:sql", resource_metadata="')


def test_searching_by_rest_needs_its_scope_too(library: Library, trusted: Authority):
    app = protected(library, trusted)
    response = listed(app, of(trusted, scope="sql:write"))
    assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")
    assert 'scope="search"' in response.headers["www-authenticate"]
