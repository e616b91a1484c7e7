"""Whatever arrives where a message should: over HTTP the answer is JSON or empty, over stdio the process lives on."""

import itertools
import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from starlette.types import ASGIApp

from kura.access.credentials import open_gate
from kura.library.library import Library
from kura.serve.app import build_app
from kura.types import Principal
from tests import anything
from tests.serve.running import JSON, META, MODERN, asked, message, talking


@pytest.fixture(scope="module")
def app(library: Library) -> ASGIApp:
    return build_app(library, open_gate(Principal()), version="0")


def as_modern(body: bytes) -> tuple[bytes, dict[str, str]]:
    """The body with what belongs to a request of 2026-07-28, where it is one, and the headers that go with it."""
    try:
        decoded: Any = json.loads(body)
        params = {**decoded.get("params", {}), "_meta": META}
        named = {"mcp-method": decoded["method"], "mcp-name": params.get("name", params.get("uri"))}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return body, {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "ping"}
    sendable = {name: value for name, value in named.items() if isinstance(value, str) and value.isascii()}
    printable = {name: value for name, value in sendable.items() if value.isprintable()}
    return anything.dumped({**decoded, "params": params}), {**JSON, "mcp-protocol-version": MODERN, **printable}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@settings(max_examples=120)
@given(body=anything.bodies)
def test_any_body_is_answered_in_json_and_never_as_a_failure_of_ours(app: ASGIApp, era: str, body: bytes):
    sent, headers = (body, JSON) if era == "legacy" else as_modern(body)
    response = asked(app, "POST", "/mcp", content=sent, headers=headers)
    assert response.status_code < 500
    if not response.content:
        assert response.status_code == 202
        return
    answer = response.json()
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) is (response.status_code == 200 and "error" not in answer)
    assert "Traceback" not in response.text
    assert "internal" not in response.text.lower()


@pytest.fixture(scope="module")
def server(data_dir: Path) -> "Generator[subprocess.Popen[bytes]]":
    with talking(data_dir) as started:
        yield started
        assert started.stdin is not None
        assert started.stderr is not None
        started.stdin.close()
        assert started.wait(timeout=60) == 0
        assert b"Traceback" not in started.stderr.read()


numbers = itertools.count()


@settings(max_examples=60)
@given(line=anything.bodies)
def test_any_line_is_survived(server: "subprocess.Popen[bytes]", line: bytes):
    assert server.stdin is not None
    assert server.stdout is not None
    last = f"after {next(numbers)}"
    server.stdin.write(line + b"\n" + json.dumps({**message("ping"), "id": last}).encode() + b"\n")
    server.stdin.flush()
    answer: dict[str, Any] = {}
    while answer.get("id") != last:
        answer = json.loads(server.stdout.readline())
        assert answer["jsonrpc"] == "2.0"
