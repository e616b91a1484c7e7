"""The bridge makes of HTTP what AWS makes of it, and the other way round."""

import asyncio
import base64
import json
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator
from typing import cast

import httpx2
import pytest

from local.bridge import MAX_PAYLOAD, Context, Event, FunctionUrl, load_function, main, serve
from tests.serve.running import EVENTS, sends_at_once


class Function:
    """Remembers events and answers with what it is told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answer: object = {"statusCode": 204}

    def __call__(self, event: Event) -> object:
        json.dumps(event)
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def function() -> Function:
    return Function()


@pytest.fixture
async def client(function: Function) -> AsyncGenerator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(FunctionUrl(function), raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:9000") as opened:
        yield opened


pytestmark = pytest.mark.anyio


def shape(value: object) -> object:
    """The names in a value and the types of what they stand for."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in cast(dict[str, object], value).items()}
    return type(value)


async def test_an_event_has_the_shape_of_a_recorded_one(function: Function, client: httpx2.AsyncClient):
    recorded = json.loads((EVENTS / "function_url.json").read_text(encoding="utf-8"))
    await client.post("/mcp", content=recorded["body"], headers={"Content-Type": "application/json"})
    [event] = function.events
    assert shape({**event, "headers": None}) == shape({**recorded, "headers": None})
    assert event["body"] == recorded["body"]
    assert event["requestContext"]["http"] | {"userAgent": ""} == {
        "method": "POST",
        "path": "/mcp",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "",
    }
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", event["requestContext"]["time"])
    assert abs(event["requestContext"]["timeEpoch"] / 1000 - time.time()) < 60


async def test_headers_come_in_lower_case_joined_and_without_those_of_the_connection(
    function: Function, client: httpx2.AsyncClient
):
    sent = [("X-Twice", "one"), ("x-twice", "two"), ("Connection", "keep-alive"), ("Cookie", "a=1; b=2")]
    await client.get("/", headers=sent)
    headers = function.events[0]["headers"]
    assert headers["x-twice"] == "one,two"
    assert headers["host"] == "127.0.0.1:9000"
    assert (headers["x-forwarded-proto"], headers["x-forwarded-for"]) == ("http", "127.0.0.1")
    assert {"connection", "cookie", "Cookie"}.isdisjoint(headers)
    assert function.events[0]["cookies"] == ["a=1", "b=2"]


async def test_a_request_without_cookies_query_or_body_has_no_such_keys(function: Function, client: httpx2.AsyncClient):
    await client.get("/api/list")
    assert {"cookies", "queryStringParameters", "body"}.isdisjoint(function.events[0])
    assert function.events[0]["isBase64Encoded"] is False


async def test_path_and_query_are_handed_on_as_they_were_sent(function: Function, client: httpx2.AsyncClient):
    await client.get("/a%20b/%E6%AE%B5?q=%E6%AE%B5+x&q=y&empty=")
    event = function.events[0]
    assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/a%20b/%E6%AE%B5"
    assert event["rawQueryString"] == "q=%E6%AE%B5+x&q=y&empty="
    assert event["queryStringParameters"] == {"q": "段 x,y", "empty": ""}


@pytest.mark.parametrize(
    ("body", "headers", "encoded"),
    [
        ("段落".encode(), {"content-type": "application/json; charset=utf-8"}, False),
        (b"plain", {"content-type": "text/plain"}, False),
        (b"plain", {}, True),
        (b"\x89PNG\r\n", {"content-type": "image/png"}, True),
        (b"\x1f\x8b", {"content-type": "application/json", "content-encoding": "gzip"}, True),
        (b'{"q": "\xff"}', {"content-type": "application/json"}, True),
    ],
    ids=["json", "text", "untold", "image", "compressed", "json that is no utf-8"],
)
async def test_what_is_not_text_comes_as_base64(
    function: Function, client: httpx2.AsyncClient, body: bytes, headers: dict[str, str], encoded: bool
):
    await client.post("/", content=body, headers=headers)
    event = function.events[0]
    assert event["isBase64Encoded"] is encoded
    assert (base64.b64decode(event["body"]) if encoded else event["body"].encode()) == body


async def test_an_answer_becomes_a_response(function: Function, client: httpx2.AsyncClient):
    function.answer = {
        "statusCode": 201,
        "headers": {"Content-Type": "text/plain", "X-Many": "a, b", "Content-Length": "999", "Connection": "close"},
        "cookies": ["a=1; Path=/", "b=2"],
        "body": "段落",
    }
    response = await client.get("/")
    assert (response.status_code, response.text) == (201, "段落")
    assert response.headers.get_list("set-cookie") == ["a=1; Path=/", "b=2"]
    assert (response.headers["x-many"], response.headers["content-length"]) == ("a, b", "6")
    assert "connection" not in response.headers


async def test_a_body_in_base64_is_decoded(function: Function, client: httpx2.AsyncClient):
    body = base64.b64encode(b"\x00\xff").decode()
    function.answer = {
        "statusCode": 200,
        "headers": {"content-type": "image/png"},
        "body": body,
        "isBase64Encoded": True,
    }
    assert (await client.get("/")).content == b"\x00\xff"


async def test_an_answer_without_a_status_is_the_body_itself(function: Function, client: httpx2.AsyncClient):
    for answer in ({"hello": "段落"}, "text", [1]):
        function.answer = answer
        response = await client.get("/")
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        assert response.json() == answer


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("boom"),
        {"errorMessage": "Task timed out", "errorType": "Sandbox.Timedout"},
        {"statusCode": "many"},
        {"statusCode": 200, "body": "not base64!", "isBase64Encoded": True},
        {"statusCode": 200, "body": "x" * MAX_PAYLOAD},
        {"statusCode": 200, "body": object()},
    ],
    ids=["raises", "runtime error", "no status", "no base64", "too large", "no json"],
)
async def test_a_function_that_fails_is_a_502_that_tells_nothing(
    function: Function, client: httpx2.AsyncClient, answer: object, caplog: pytest.LogCaptureFixture
):
    function.answer = answer
    response = await client.get("/")
    assert (response.status_code, response.json()) == (502, {"Message": "Internal Server Error"})
    assert "the function failed" in caplog.text
    function.answer = {"statusCode": 204}
    assert (await client.get("/")).status_code == 204


async def test_a_body_that_lambda_does_not_take_never_reaches_the_function(
    function: Function, client: httpx2.AsyncClient
):
    assert (await client.post("/", content=b"x" * (MAX_PAYLOAD + 1))).status_code == 413
    assert function.events == []


async def test_one_event_is_answered_at_a_time_and_in_one_thread():
    inside: list[int] = []
    most: list[int] = []
    threads: set[int] = set()

    def slow(_event: Event) -> object:
        inside.append(1)
        most.append(len(inside))
        threads.add(threading.get_ident())
        time.sleep(0.02)
        inside.pop()
        return {"statusCode": 204}

    transport = httpx2.ASGITransport(FunctionUrl(slow))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answers = await asyncio.gather(*(client.get("/") for _ in range(8)))
    assert [answer.status_code for answer in answers] == [204] * 8
    assert max(most) == 1
    assert len(threads) == 1


async def test_a_function_is_found_by_its_name_and_called_with_a_context():
    invoke = load_function("tests.local.test_bridge.told")
    assert invoke({"requestContext": {"requestId": "r-1"}}) == ("r-1", True)


def told(_event: Event, context: Context) -> object:
    return context.aws_request_id, 0 < context.get_remaining_time_in_millis() <= 30_000


def test_the_bridge_sends_an_answer_at_once(function: Function, monkeypatch: pytest.MonkeyPatch):
    assert sends_at_once(lambda: serve(FunctionUrl(function), 0, lambda _url: None), monkeypatch)


def test_a_port_that_is_taken_is_said_in_words(capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as ended:
            main(["--port", port, "--handler", "json.dumps"])
    assert str(ended.value).startswith(f"port {port} is in use")
    assert capsys.readouterr().out == ""
