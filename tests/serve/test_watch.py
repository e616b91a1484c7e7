"""What stands around every request: ids, headers, limits, and what the operator is told."""

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from kura.access.credentials import key_gate, open_gate
from kura.access.keys import hash_key
from kura.access.trust import Trust
from kura.errors import StoreError
from kura.events import fields_of
from kura.library.library import Library
from kura.serve.app import build_app
from kura.types import Principal
from tests.serve.running import JSON, call, message, reaching

pytestmark = pytest.mark.anyio

KEY = {"authorization": "Bearer right"}
SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def keyed(library: Library, **options: Any) -> ASGIApp:
    return build_app(library, key_gate(hash_key("right"), Principal("acme", name="key:a")), version="0", **options)


async def test_every_answer_has_an_id_and_headers_for_browsers(library: Library):
    app = keyed(library, allowed_origins=["https://app.example"])
    preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
    async with reaching(httpx2.ASGITransport(app)) as client:
        answers = [
            await client.get("/api/list"),
            await client.get("/api/list", headers=KEY),
            await client.get("/api/health"),
            await client.get("/nowhere"),
            await client.get("/mcp"),
            await client.get("/api/list", headers={"host": "evil.example"}),
            await client.get("/api/list", headers={"origin": "https://evil.example"}),
            await client.options("/mcp", headers=preflight),
            await client.post("/mcp", json=message("ping"), headers=JSON | KEY),
            await client.post("/mcp", content=b"{", headers=JSON | KEY),
        ]
    assert [answer.status_code for answer in answers] == [401, 200, 200, 404, 405, 421, 403, 200, 200, 400]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY
        assert "strict-transport-security" not in answer.headers
        assert "server" not in answer.headers
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


async def test_only_over_tls_browsers_are_told_to_stay_with_it(library: Library):
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(keyed(library)), base_url="https://localhost"
    ) as client:
        assert "max-age=" in (await client.get("/api/health")).headers["strict-transport-security"]


async def test_a_caller_that_sends_too_much_is_told_when_to_go_on(library: Library):
    async with reaching(httpx2.ASGITransport(keyed(library, requests_a_minute=3))) as client:
        for _ in range(3):
            assert (await client.get("/api/list", headers=KEY)).status_code == 200
        for refused in (
            await client.get("/api/list", headers=KEY),
            await client.post("/mcp", json=call("list_rag"), headers=JSON | KEY),
            await client.get("/api/health", headers=KEY),
        ):
            assert refused.status_code == 429
            assert refused.json()["code"] == "too_many_requests"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
        # Another caller is not held up by it; one that guesses is counted as well.
        for _ in range(3):
            assert (await client.get("/api/list", headers={"authorization": "Bearer guess"})).status_code == 401
        assert (await client.get("/api/list", headers={"authorization": "Bearer guess"})).status_code == 429


async def test_a_request_that_takes_too_long_is_ended_with_an_answer(
    library: Library, caplog: pytest.LogCaptureFixture
):
    async def slow(_authorization: str | None) -> Principal:
        await asyncio.sleep(30)
        return Principal()

    async with reaching(httpx2.ASGITransport(build_app(library, slow, version="0", seconds=0.05))) as client:
        for answered in (
            await client.get("/api/list"),
            await client.post("/mcp", json=call("list_rag"), headers=JSON),
        ):
            assert answered.status_code == 504
            assert answered.json()["code"] == "out_of_time"
            assert answered.headers["x-request-id"] in caplog.text


async def test_a_tool_that_takes_too_long_is_ended_too(library: Library, monkeypatch: pytest.MonkeyPatch):
    async def slow(*_given: object) -> list[object]:
        await asyncio.sleep(30)
        return []

    monkeypatch.setattr(Library, "loaded", slow)
    app, before = build_app(library, open_gate(Principal()), version="0", seconds=0.05), asyncio.all_tasks()
    async with reaching(httpx2.ASGITransport(app)) as client:
        answered = await client.post("/mcp", json=call("list_rag"), headers=JSON)
        assert (answered.status_code, answered.json()["code"]) == (504, "out_of_time")
        # The process goes on.
        assert (await client.post("/mcp", json=message("ping"), headers=JSON)).status_code == 200
    assert asyncio.all_tasks() == before


async def test_the_platform_s_own_limit_counts_where_it_is_nearer(library: Library):
    async def slow(_authorization: str | None) -> Principal:
        await asyncio.sleep(30)
        return Principal()

    app = build_app(library, slow, version="0", seconds=30, time_left=lambda _scope: 0.55)
    async with reaching(httpx2.ASGITransport(app)) as client:
        assert (await client.get("/api/list")).status_code == 504


async def test_an_answer_that_cannot_be_carried_is_refused_with_a_reason(library: Library):
    app = build_app(library, open_gate(Principal()), version="0", max_answer_bytes=4500)
    async with reaching(httpx2.ASGITransport(app)) as client:
        by_rest = await client.get("/api/search?db=notes&q=passage&limit=10")
        assert (by_rest.status_code, by_rest.json()["code"]) == (422, "answer_too_long")
        posted = await client.post("/mcp", json=call("search_rag", db="notes", q="passage"), headers=JSON)
        result = posted.json()["result"]
        assert result["isError"]
        assert "4,500" in result["content"][0]["text"]
        assert (await client.get("/api/list")).status_code == 200


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    found = [fields_of(record) for record in caplog.records if record.name == "kura.events"]
    return [dict(fields) for fields in found if fields is not None and fields["event"] == name]


async def test_the_operator_is_told_what_each_call_and_each_request_came_to(
    library: Library, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "kura.events")
    async with reaching(httpx2.ASGITransport(keyed(library))) as client:
        found = await client.post("/mcp", json=call("search_rag", db="notes", q="passage"), headers=JSON | KEY)
        await client.post("/mcp", json=call("search_rag", db="secret-name", q="passage"), headers=JSON | KEY)
        await client.get("/api/search?db=notes&q=passage", headers=KEY)
        await client.get("/secret-path", headers=KEY)
        await client.get("/api/list")
    calls = told(caplog, "call")
    assert [(each["tool"], each["outcome"], each.get("code"), each.get("database")) for each in calls] == [
        ("search_rag", "ok", None, "notes"),
        ("search_rag", "refused", "unknown_database", None),
        ("search_rag", "ok", None, "notes"),
    ]
    assert calls[0]["hits"] > 0
    assert all(each["caller"] == "key:a" and each["seconds"] >= 0 for each in calls)
    requests = told(caplog, "request")
    assert [(each["route"], each["status"], each.get("code")) for each in requests] == [
        ("/mcp", 200, None),
        ("/mcp", 200, None),
        ("/api/search", 200, None),
        ("other", 404, "not_found"),
        ("/api/list", 401, "unauthorized"),
    ]
    assert requests[0]["request_id"] == calls[0]["request_id"] == found.headers["x-request-id"]
    assert "secret" not in json.dumps(calls + requests)


@pytest.mark.parametrize("log_queries", [False, True])
async def test_the_words_of_a_query_are_logged_only_where_that_was_said(
    library: Library, caplog: pytest.LogCaptureFixture, log_queries: bool
):
    caplog.set_level(logging.INFO, "kura.events")
    async with reaching(httpx2.ASGITransport(keyed(library, log_queries=log_queries))) as client:
        await client.post("/mcp", json=call("search_rag", db="notes", q="zanzibar"), headers=JSON | KEY)
        await client.post("/mcp", json=call("query", db="notes", sql="select 'zanzibar'"), headers=JSON | KEY)
    assert [each.get("query") for each in told(caplog, "call")] == (
        ["zanzibar", "select 'zanzibar'"] if log_queries else [None, None]
    )


async def test_health_says_more_to_those_who_are_let_in_about_what_is_theirs(library: Library):
    async with reaching(httpx2.ASGITransport(keyed(library))) as client:
        stranger = (await client.get("/api/health")).json()
        known = (await client.get("/api/health", headers=KEY)).json()
    assert stranger == {"status": "ok"}
    assert known["embedder"].startswith("hashing")
    assert {each["db"] for each in known["databases"]} == {"acme-plans", "notes"}
    assert all(each["vectors"] > 0 for each in known["databases"])


async def test_who_cannot_be_judged_now_is_not_let_in(library: Library):
    async def unreachable(_authorization: str | None) -> Principal:
        raise StoreError("the catalog cannot be read")

    async with reaching(httpx2.ASGITransport(build_app(library, unreachable, version="0"))) as client:
        assert (await client.get("/api/list")).status_code == 500
        assert (await client.post("/mcp", json=call("list_rag"), headers=JSON)).status_code == 500


async def test_metadata_are_where_the_challenge_says(library: Library):
    for resource in ("https://kura.example/mcp", "https://kura.example/prod/mcp", "https://kura.example"):
        trust = Trust(resource=resource, issuers=("https://login.example",), audiences=(resource,))
        async with reaching(httpx2.ASGITransport(keyed(library, trust=trust))) as client:
            challenge = (await client.get("/api/list")).headers["www-authenticate"]
            named = challenge.partition('resource_metadata="https://kura.example')[2].rstrip('"')
            assert (await client.get(named)).json()["resource"] == resource
