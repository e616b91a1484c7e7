import asyncio
import logging

import httpx2
import pytest

from kura.access.credentials import Gate, key_gate, open_gate
from kura.access.keys import hash_key
from kura.errors import CredentialError, StoreError
from kura.library.library import Library
from kura.serve.app import build_app
from kura.types import Principal
from tests.serve.running import JSON, call, reaching

pytestmark = pytest.mark.anyio


async def get(library: Library, path: str, gate: Gate | None = None, **headers: str) -> httpx2.Response:
    app = build_app(library, gate or open_gate(Principal()), version="1.2.3")
    async with reaching(httpx2.ASGITransport(app)) as reached:
        response = await reached.get(path, headers=headers)
    assert response.headers["cache-control"] == "no-store"
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        body = response.json()
        assert set(body) == {"type", "title", "status", "detail", "code"}
        assert body["status"] == response.status_code
    return response


@pytest.mark.parametrize("parameters", ["", "&mode=keyword", "&target=semantic", "&limit=1", "&mode=&limit="])
async def test_rest_gives_the_same_answers_as_the_tools(library: Library, parameters: str):
    response = await get(library, f"/api/search?db=notes&q=passage{parameters}")
    sent = {"mode" if name == "target" else name: value for name, value in httpx2.QueryParams(parameters).items()}
    app = build_app(library, open_gate(Principal()), version="0")
    async with reaching(httpx2.ASGITransport(app)) as reached:
        tool = await reached.post("/mcp", json=call("search_rag", db="notes", q="passage", **sent), headers=JSON)
    assert response.json() == tool.json()["result"]["structuredContent"]


async def test_the_list_shows_what_the_caller_may_see(library: Library):
    assert (await get(library, "/api/list")).json()["loaded"] == ["notes"]
    gate = open_gate(Principal(tenant="acme"))
    assert (await get(library, "/api/list", gate)).json()["loaded"] == ["acme-plans", "notes"]


@pytest.mark.parametrize(
    ("path", "status", "code", "detail"),
    [
        ("/api/search", 400, "invalid_argument", '"db"'),
        ("/api/search?db=notes", 400, "invalid_argument", 'missing argument: "q"'),
        ("/api/search?db=notes&q=%20", 400, "invalid_argument", '"q" must be'),
        ("/api/search?db=notes&q=x&limit=0", 400, "invalid_argument", '"limit" must be a whole number from 1 to 100'),
        ("/api/search?db=notes&q=x&limit=true", 400, "invalid_argument", '"limit"'),
        ("/api/search?db=notes&q=x&mode=both", 400, "invalid_argument", '"mode"'),
        ("/api/search?db=notes&q=x&k=5", 400, "invalid_argument", 'unknown argument "k"'),
        ("/api/search?db=notes&q=x&q=y", 400, "invalid_argument", 'parameter "q" is given more than once'),
        ("/api/search?db=notes&q=x&mode=keyword&target=keyword", 400, "invalid_argument", '"mode" is given more'),
        ("/api/search?" + "&".join(f"a{n}=1" for n in range(60)), 400, "invalid_argument", "too many"),
        ("/api/search?db=nothing&q=x", 404, "unknown_database", '"nothing" not exist'),
        ("/api/search?db=acme-plans&q=x", 404, "unknown_database", '"acme-plans" not exist'),
        ("/api/list?tenant_id=acme", 403, "forbidden", "tenant_id"),
        ("/api/list?x=1", 400, "invalid_argument", 'unknown argument "x"'),
        ("/api/nothing", 404, "not_found", "Not Found"),
        ("/api/list/", 404, "not_found", "Not Found"),
        ("/", 404, "not_found", "Not Found"),
    ],
)
async def test_errors_have_one_shape(library: Library, path: str, status: int, code: str, detail: str):
    response = await get(library, path)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert detail in response.json()["detail"]


async def test_another_tenants_database_reads_like_one_that_does_not_exist(library: Library):
    gate = open_gate(Principal(tenant="acme"))
    foreign = await get(library, "/api/search?db=globex-plans&q=x", gate)
    unknown = await get(library, "/api/search?db=globex-plana&q=x", gate)
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.json()["detail"].replace("plans", "plana") == unknown.json()["detail"].replace("plans", "plana")


@pytest.mark.parametrize("query", ["%ff%fe", "%ED%A0%80", "%", "%zz", "%00", "\u202e", "a%26b%3Dc", "+"], ids=ascii)
async def test_whatever_a_query_string_holds_is_a_query(library: Library, query: str):
    response = await get(library, f"/api/search?db=notes&mode=keyword&q=x{query}")
    assert response.status_code == 200
    assert response.json() == {"keyword": []}


async def test_another_method_is_refused(library: Library):
    app = build_app(library, open_gate(Principal()), version="0")
    async with reaching(httpx2.ASGITransport(app)) as reached:
        response = await reached.post("/api/list")
    assert response.status_code == 405
    assert "GET" in response.headers["allow"]
    assert response.json()["code"] == "method_not_allowed"


async def test_health_tells_strangers_only_that_it_is_up(library: Library):
    gate = key_gate(hash_key("right"), Principal("acme"))
    assert (await get(library, "/api/health", gate)).json() == {"status": "ok"}
    known = await get(library, "/api/health", gate, authorization="Bearer right")
    assert known.json()["version"] == "1.2.3"
    assert known.json()["loaded"] == ["acme-plans", "notes"]
    assert [(each["db"], each["state"]) for each in known.json()["databases"]] == [
        ("acme-plans", "open"),
        ("notes", "open"),
    ]


async def test_health_is_told_while_nobody_can_say_who_asks(library: Library):
    async def unreachable(_authorization: str | None) -> Principal:
        raise StoreError("the catalog cannot be reached")

    answered = await get(library, "/api/health", unreachable)
    assert (answered.status_code, answered.json()) == (200, {"status": "ok"})


async def test_a_credential_is_asked_for(library: Library):
    gate = key_gate(hash_key("right"), Principal())
    for headers, challenge in (
        ({}, "Bearer"),
        ({"authorization": "Bearer wrong"}, 'Bearer error="invalid_token"'),
    ):
        response = await get(library, "/api/list", gate, **headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == challenge


async def test_what_nobody_foresaw_is_masked_and_logged(library: Library, caplog: pytest.LogCaptureFixture):
    async def broken(_authorization: str | None) -> Principal:
        raise RuntimeError("/srv/secret/path")

    with caplog.at_level(logging.ERROR):
        response = await get(library, "/api/list", broken)
    assert response.status_code == 500
    assert "secret" not in response.text
    _, _, request_id = response.json()["detail"].rpartition(" ")
    assert request_id in caplog.text
    assert "RuntimeError" in caplog.text


async def test_a_hundred_callers_at_once_each_see_only_what_is_theirs(library: Library):
    async def by_name(authorization: str | None) -> Principal:
        await asyncio.sleep(0)
        if authorization is None:
            raise CredentialError("who are you?")
        return Principal(tenant=authorization)

    app = build_app(library, by_name, version="0")

    async def ask(client: httpx2.AsyncClient, number: int) -> None:
        tenant, other = ("acme", "globex") if number % 2 else ("globex", "acme")
        headers = {**JSON, "authorization": tenant}
        listed, found, foreign = await asyncio.gather(
            client.post("/mcp", json=call("list_rag"), headers=headers),
            client.get(f"/api/search?db={tenant}-plans&q=plan&mode=keyword", headers=headers),
            client.post("/mcp", json=call("search_rag", db=f"{other}-plans", q="plan"), headers=headers),
        )
        names = [entry["db"] for entry in listed.json()["result"]["structuredContent"]["registered"]]
        assert names == sorted([f"{tenant}-plans", "notes"])
        assert found.json()["keyword"][0]["matches"][0]["content"] == f"The plan of {tenant} is secret."
        assert foreign.json()["result"]["isError"] is True
        assert f"The plan of {other}" not in foreign.text

    async with reaching(httpx2.ASGITransport(app)) as client:
        await asyncio.gather(*(ask(client, number) for number in range(100)))
