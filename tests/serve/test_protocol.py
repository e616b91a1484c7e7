"""What raw messages get back, over every way to reach the application."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Message

from handler.adapter import Handler
from kura.access.credentials import key_gate, open_gate
from kura.access.keys import hash_key
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings
from kura.types import Principal
from tests.serve.running import (
    JSON,
    KINDS,
    EventTransport,
    call,
    initialize,
    message,
    modern,
    reaching,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def handler(data_dir: Path) -> Generator[Handler]:
    with closing(Handler(Settings(data_dir=data_dir, embedder="hashing", public=True, refresh_seconds=0))) as built:
        yield built


@pytest.fixture(params=["asgi", "uvicorn", *KINDS])
def transport(
    request: pytest.FixtureRequest, library: Library, url: str, handler: Handler
) -> httpx2.AsyncBaseTransport | str:
    if request.param == "uvicorn":
        return url
    if request.param == "asgi":
        return httpx2.ASGITransport(build_app(library, open_gate(Principal()), version="0"))
    return EventTransport(handler, request.param)


Transport = httpx2.AsyncBaseTransport | str


async def post(
    transport: Transport, body: object, headers: dict[str, str] = JSON, path: str = "/mcp"
) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with reaching(transport) as reached:
        response = await reached.post(path, content=content, headers=headers)
    assert "mcp-session-id" not in response.headers
    return response


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_the_handshake_needs_no_session(transport: Transport, version: str, path: str):
    response = await post(transport, initialize(version), path=path)
    assert response.status_code == 200
    result = response.json()["result"]
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "kura"
    assert "not a memory" in result["instructions"]
    headers = {**JSON, "mcp-protocol-version": version, "mcp-session-id": "made-up"}
    answered = await post(transport, call("list_rag"), headers)
    assert answered.json()["result"]["structuredContent"]["registered"][0]["db"] == "notes"


async def test_the_stateless_revision_is_discovered_and_served(transport: Transport):
    discovered = (await post(transport, *modern("server/discover"))).json()["result"]
    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert "list_rag first" in discovered["instructions"]
    answered = await post(transport, *modern("tools/call", {"name": "list_rag", "arguments": {}}))
    assert answered.json()["result"]["structuredContent"]["loaded"] == ["notes"]


@pytest.mark.parametrize("headers", [JSON, {**JSON, "mcp-protocol-version": "2026-07-28"}], ids=["legacy", "modern"])
async def test_a_notification_is_accepted_with_an_empty_body(transport: Transport, headers: dict[str, str]):
    response = await post(transport, message("notifications/initialized", id=None), headers)
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_only_post_is_allowed(transport: Transport, method: str, path: str):
    async with reaching(transport) as reached:
        response = await reached.request(method, path, headers={"accept": "text/event-stream"})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


BAD_BODIES: dict[str, tuple[bytes, int]] = {
    "not json": (b"{", -32700),
    "lone surrogate": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"q":"\\ud800"}}', -32700),
    "empty": (b"", -32700),
    "deep": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, -32700),
}


@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_body_that_is_not_json_is_a_protocol_error_and_the_next_one_works(
    transport: Transport, name: str, era: str
):
    body, code = BAD_BODIES[name]
    headers = JSON if era == "legacy" else modern("ping")[1]
    response = await post(transport, body, headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    assert (await post(transport, call("list_rag"))).status_code == 200


NO_MESSAGES: dict[str, bytes] = {
    name: json.dumps(body).encode()
    for name, body in {
        "a batch": [message("ping", {"q": "MYPASSWORD"})],
        "an empty batch": [],
        "a number": 1,
        "text": "MYPASSWORD",
        "null": None,
        "an empty object": {},
        "an id alone": {"id": 1},
        "another version": {"jsonrpc": "1.0", "id": 1, "method": "MYPASSWORD"},
        "no version": {"id": 1, "method": "MYPASSWORD"},
        "a method that is a number": {"jsonrpc": "2.0", "id": 1, "method": 5, "params": {"q": "MYPASSWORD"}},
        "no method": {"jsonrpc": "2.0", "id": 1, "params": {"q": "MYPASSWORD"}},
        "parameters by position": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ["MYPASSWORD"]},
        "a notification with parameters by position": {"jsonrpc": "2.0", "method": "ping", "params": ["MYPASSWORD"]},
        "a result that is text": {"jsonrpc": "2.0", "id": 1, "result": "MYPASSWORD"},
        "an error that is text": {"jsonrpc": "2.0", "id": 1, "error": "MYPASSWORD"},
        "a result to nothing": {"jsonrpc": "2.0", "id": None, "result": {"q": "MYPASSWORD"}},
        "a request that is an error": {**message("ping"), "id": None, "error": {"code": 1, "message": "MYPASSWORD"}},
        **{
            f"id {json.dumps(id)}": {**message("ping", {"q": "MYPASSWORD"}), "id": id}
            for id in (1.5, 1.0, None, True, float("nan"), float("inf"), ["MYPASSWORD"], {"MYPASSWORD": 1})  # noqa: A001
        },
    }.items()
}


@pytest.mark.parametrize("name", NO_MESSAGES)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_json_that_is_no_single_message_is_refused_without_quoting_it(transport: Transport, name: str, era: str):
    response = await post(transport, NO_MESSAGES[name], JSON if era == "legacy" else modern("ping")[1])
    assert (response.status_code, response.headers["content-type"]) == (400, "application/json")
    error = {"code": -32600, "message": "Invalid request: the body is not one JSON-RPC message"}
    assert response.json() == {"jsonrpc": "2.0", "id": None, "error": error}


@pytest.mark.parametrize("id", [0, -1, 2**63, "", "1.5", "null"], ids=repr)
async def test_whatever_may_be_an_id_comes_back_as_it_was(transport: Transport, id: int | str):  # noqa: A002
    body, headers = modern("tools/list")
    for sent, era in [(message("ping", id=id), JSON), ({**body, "id": id}, headers)]:
        answered = (await post(transport, sent, era)).json()
        assert answered["id"] == id
        assert "result" in answered


@pytest.mark.parametrize(
    "body",
    [{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}},
     {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}}, {"jsonrpc": "2.0", "method": "no/such"},
     {**message("notifications/initialized", id=None), "further": 1}],
    ids=["result", "error", "error to nothing", "notification", "with a key of its own"],
)  # fmt: skip
async def test_what_needs_no_answer_is_accepted(transport: Transport, body: object):
    response = await post(transport, body)
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("arguments", ['{"db": "notes", "q": "x"}', [1], 5, True], ids=repr)
async def test_arguments_that_are_no_object_are_a_protocol_error(transport: Transport, arguments: object):
    response = await post(transport, message("tools/call", {"name": "search_rag", "arguments": arguments}))
    assert response.json()["error"]["code"] == -32602


async def test_an_unknown_version_is_refused_with_those_that_are_served(transport: Transport):
    body, headers = modern("tools/list")
    response = await post(transport, body, {**headers, "mcp-protocol-version": "1999-01-01"})
    assert response.status_code == 400
    assert "error" in response.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content-type": "application/json"}, 200), ({**JSON, "accept": "text/html"}, 406),
     ({**JSON, "accept": "application/json"}, 200), ({**JSON, "content-type": "text/plain"}, 400)],
    ids=["no accept", "html", "json alone", "text"],
)  # fmt: skip
async def test_media_types_are_negotiated(transport: Transport, headers: dict[str, str], status: int):
    assert (await post(transport, call("list_rag"), headers)).status_code == status


async def test_a_client_that_names_no_media_type_takes_any(transport: Transport):
    async with reaching(transport) as reached:
        sent = reached.build_request("POST", "/mcp", json=call("list_rag"))
        del sent.headers["accept"]
        response = await reached.send(sent)
    assert response.json()["result"]["structuredContent"]["loaded"] == ["notes"]


async def test_an_unknown_tool_is_a_protocol_error_that_names_those_that_there_are(transport: Transport):
    for body, headers in [(call("drop_tables"), JSON), modern("tools/call", {"name": "drop_tables", "arguments": {}})]:
        error = (await post(transport, body, headers)).json()["error"]
        assert error == {
            "code": -32602,
            "message": "unknown tool; known are list_rag, search_rag, query, vector_search, schema_inspect",
        }


async def test_an_unknown_method_is_a_protocol_error(transport: Transport):
    assert (await post(transport, message("no/such"))).json()["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["subscriptions/listen", "resources/subscribe", "completion/complete"])
async def test_what_would_keep_a_request_open_is_not_served(transport: Transport, method: str):
    response = await post(transport, *modern(method, {"uri": "kura://x", "subscriptions": []}))
    assert response.json()["error"]["code"] in {-32601, -32602}


async def test_a_resource_that_is_not_there_is_a_protocol_error(transport: Transport):
    body, headers = modern("resources/read", {"uri": "kura://nothing"})
    error = (await post(transport, body, {**headers, "mcp-name": "kura://nothing"})).json()["error"]
    assert error["code"] == -32602


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_prompt_that_is_not_there_is_the_callers_error(
    transport: Transport, era: str, caplog: pytest.LogCaptureFixture
):
    asked = ("prompts/get", {"name": "secret-name"})
    response = await (post(transport, message(*asked)) if era == "legacy" else post(transport, *modern(*asked)))
    assert response.json()["error"] == {"code": -32602, "message": "unknown prompt; this server has none"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_body_that_is_too_long_is_refused(transport: Transport):
    response = await post(transport, call("search_rag", db="notes", q="x" * 1_000_000))
    assert_problem(response, 413, "body_too_long")


@pytest.mark.parametrize("announced", [None, "0", "x", "9" * 5000], ids=["chunked", "too little", "nonsense", "huge"])
async def test_a_body_is_measured_as_it_arrives(library: Library, announced: str | None):
    app = build_app(library, open_gate(Principal()), version="0", max_body_bytes=100)
    headers = JSON if announced is None else {**JSON, "content-length": announced}

    async def pieces(number: int) -> AsyncGenerator[bytes]:
        yield json.dumps(message("ping")).encode()
        for _ in range(number):
            yield b" "

    async with reaching(httpx2.ASGITransport(app)) as reached:
        assert_problem(await reached.post("/mcp", content=pieces(100), headers=headers), 413, "body_too_long")
        assert (await reached.post("/mcp", content=pieces(5), headers=headers)).status_code == 200


async def test_a_client_that_leaves_before_its_body_is_there_gets_no_answer(
    library: Library, caplog: pytest.LogCaptureFixture
):
    app = build_app(library, open_gate(Principal()), version="0")
    received: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"{", "more_body": True},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return received.pop()

    async def send(answered: Message) -> None:
        sent.append(answered)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    assert sent == []
    assert caplog.records == []


@pytest.mark.parametrize("media_type", ["text/plain", "application/jsonl", ""])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_another_type_of_content_is_refused(transport: Transport, media_type: str, era: str):
    body, headers = (call("list_rag"), JSON) if era == "legacy" else modern("tools/list")
    assert_problem(await post(transport, body, {**headers, "content-type": media_type}), 400, "wrong_content_type")


def assert_problem(response: httpx2.Response, status: int, code: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.json()["status"], response.json()["code"]) == (status, code)


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "a flag for a number": ({"limit": True}, '"limit" must be a whole number from 1 to 100'),
    "too many": ({"limit": 101}, '"limit" must be a whole number from 1 to 100'),
    "an unknown mode": ({"mode": "both"}, '"mode" must be left out or one of keyword, semantic'),
    "an unknown argument": ({"top_k": 5}, 'unknown argument "top_k"'),
    "a blank query": ({"q": " \n"}, '"q" must be text of 1 to 10,000 characters'),
    "a long query": ({"q": "x" * 10_001}, '"q" must be text of 1 to 10,000 characters'),
    "an unknown database": ({"db": "nothing"}, 'invalid argument: "nothing" not exist; available: "notes"'),
    "another tenant's": ({"db": "acme-plans"}, 'invalid argument: "acme-plans" not exist; available: "notes"'),
    "another tenant": ({"tenant_id": "acme"}, '"tenant_id" comes from the caller'),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_what_is_wrong_with_a_call_is_said_in_text_alone(transport: Transport, name: str):
    arguments, text = FAILURES[name]
    result = (await post(transport, call("search_rag", **{"db": "notes", "q": "x", **arguments}))).json()["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    [block] = result["content"]
    assert text in block["text"]


@pytest.mark.parametrize("arguments", [{"limit": "2"}, {"mode": ""}, {"mode": "null"}, {"tenant_id": {}}], ids=repr)
async def test_what_clients_really_send_is_understood(transport: Transport, arguments: dict[str, object]):
    response = await post(transport, call("search_rag", db="notes", q="passage", **arguments))
    assert response.json()["result"]["structuredContent"]["keyword"]


async def test_the_tools_are_described_for_models_and_machines(transport: Transport):
    tools = (await post(transport, message("tools/list"))).json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["list_rag", "search_rag", "query", "vector_search", "schema_inspect"]
    for tool in tools:
        assert tool["title"]
        assert len(tool["description"]) > 100
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["outputSchema"]["type"] == "object"
        assert tool["annotations"] == {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }


async def test_a_key_is_asked_for_after_the_method_and_before_the_body(library: Library):
    app = build_app(library, key_gate(hash_key("right"), Principal("acme")), version="0", max_body_bytes=100)
    async with reaching(httpx2.ASGITransport(app)) as reached:
        assert (await reached.get("/mcp")).status_code == 405
        wrong = 'Bearer error="invalid_token"'
        for headers, challenge in (
            (JSON, "Bearer"),
            ({**JSON, "authorization": "Bearer wrong"}, wrong),
            ({**JSON, "authorization": "Basic right"}, wrong),
        ):
            refused = await reached.post("/mcp", content=b"x" * 1000, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == challenge
            assert refused.headers["content-type"] == "application/problem+json"
            assert "right" not in refused.text
        admitted = {**JSON, "authorization": "Bearer right"}
        assert (await reached.post("/mcp", content=b"x" * 1000, headers=admitted)).status_code == 413
        twice = [*JSON.items(), ("authorization", "Bearer right"), ("authorization", "Bearer wrong")]
        assert (await reached.post("/mcp", json=message("ping"), headers=twice)).status_code == 401
        listed = (await reached.post("/mcp", json=call("list_rag"), headers=admitted)).json()["result"]
        assert [entry["db"] for entry in listed["structuredContent"]["registered"]] == ["acme-plans", "notes"]
