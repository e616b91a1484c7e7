"""What AWS Lambda is told: lines of JSON, and metrics that CloudWatch reads from them."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handler.telemetry import set_up
from kura.events import EVENTS, tell
from tests.serve.knowledge import fill
from tests.serve.running import ROOT, event


@pytest.fixture
def left_as_it_was() -> Generator[None]:
    root, events = logging.getLogger(), logging.getLogger(EVENTS)
    formatters = [(handler, handler.formatter) for handler in root.handlers]
    before = root.level, events.level, list(events.handlers), events.propagate
    yield
    for handler, formatter in formatters:
        handler.setFormatter(formatter)
    root.setLevel(before[0])
    events.setLevel(before[1])
    events.handlers[:], events.propagate = before[2], before[3]


def metrics(line: dict[str, Any]) -> dict[str, tuple[str, list[float]]]:
    """Unit and value of each metric, as CloudWatch finds them."""
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Kura"
    return {metric["Name"]: (metric["Unit"], line[metric["Name"]]) for metric in directive["Metrics"]}


@pytest.mark.usefixtures("left_as_it_was")
def test_an_event_is_one_line_of_fields_and_metrics(capsys: pytest.CaptureFixture[str]):
    set_up("warning")
    tell("call", tool="search_rag", outcome="refused", code="unknown_database", seconds=0.25, hits=None, caller="key:a")
    [line] = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert {name: line[name] for name in ("event", "tool", "outcome", "code", "caller", "service")} == {
        "event": "call",
        "tool": "search_rag",
        "outcome": "refused",
        "code": "unknown_database",
        "caller": "key:a",
        "service": "kura",
    }
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["tool", "service"]]
    assert metrics(line) == {
        "Call": ("Count", [1.0]),
        "Latency": ("Milliseconds", [250.0]),
        "Errors": ("Count", [0.0]),
        "Refusals": ("Count", [1.0]),
    }


@pytest.mark.usefixtures("left_as_it_was")
def test_a_line_of_the_log_is_json_and_names_the_invocation(monkeypatch: pytest.MonkeyPatch):
    root = logging.getLogger()
    lines: list[str] = []
    stream = SimpleNamespace(write=lines.append, flush=lambda: None)
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler(cast(Any, stream))])
    begins = set_up("warning")
    begins(cast(Any, SimpleNamespace(aws_request_id="one")))
    logging.getLogger("kura.anything").warning("the database %s is away", "notes")
    logging.getLogger("kura.anything").info("not so loud")
    [line] = [json.loads(text) for text in "".join(lines).splitlines()]
    assert (line["level"], line["message"]) == ("WARNING", "the database notes is away")
    assert line["function_request_id"] == "one"


def test_the_deployed_entry_point_tells_cloudwatch_of_its_start_and_of_each_call(tmp_path: Path):
    fill(tmp_path)
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
         "params": {"name": "search_rag", "arguments": {"db": "notes", "q": "zanzibar"}}}
    )  # fmt: skip
    headers = {"content-type": "application/json", "accept": "application/json"}
    sent = json.dumps(event("function_url", "POST", "/mcp", headers=headers, body=body.encode()))
    program = """
import json, sys, types
import handler.app
context = types.SimpleNamespace(aws_request_id="invocation-1", get_remaining_time_in_millis=lambda: 20000)
answer = handler.app.handler(json.loads(sys.argv[1]), context)
print(json.dumps({"event": "answer", "headers": answer["headers"], "status": answer["statusCode"]}))
"""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_")}
    mine |= {"PYTHONPATH": str(ROOT), "KURA_DATA_DIR": str(tmp_path), "KURA_PUBLIC": "true", "KURA_EMBEDDER": "hashing"}
    ran = subprocess.run(
        [sys.executable, "-c", program, sent], env=mine, capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(text) for text in ran.stdout.splitlines()]
    told = {line["event"]: line for line in lines}
    assert {"cold_start", "opened", "embedder", "loaded", "call", "request"} <= set(told)
    assert metrics(told["cold_start"])["InitTime"][1][0] > 0
    assert metrics(told["loaded"])["Vectors"][1][0] > 0
    assert told["call"]["request_id"] == told["request"]["request_id"] == "invocation-1"
    assert told["answer"]["headers"]["x-request-id"] == "invocation-1"
    assert told["answer"]["status"] == 200
    assert "zanzibar" not in ran.stdout + ran.stderr
    assert str(tmp_path) not in ran.stdout + ran.stderr
