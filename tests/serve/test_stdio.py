import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.serve.running import META, call, command, environment, initialize, message

READY = [initialize(), message("notifications/initialized", id=None)]


def exchanged(data_dir: Path, lines: list[bytes | dict[str, Any]], **options: object) -> tuple[list[Any], str]:
    """What a process writes that gets these lines, and then the end of its input."""
    sent = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    ended = subprocess.run(
        command("stdio", data_dir, **options),
        input=sent,
        capture_output=True,
        timeout=60,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr.decode()


def test_nothing_but_messages_is_written_and_the_end_of_input_ends_the_process(data_dir: Path):
    lines: list[bytes | dict[str, Any]] = [
        *READY,
        b"no json at all\n",
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search_rag","arguments":{"q":"\\ud800"}}}\n',
        b'{"jsonrpc":"2.0","id":8,"method":"ping","params":{"q":"\xff\xed\xa0\x80"}}\n',
        b'[{"jsonrpc":"2.0","id":9,"method":"ping"}]\n',
        {**call("search_rag", db="notes", q="段落"), "id": "last"},
        b'{"jsonrpc":"2.0","id":10,"method":"pi',
    ]
    answers, diagnostics = exchanged(data_dir, lines)
    by_id: dict[object, list[Any]] = {}
    for answer in answers:
        by_id.setdefault(answer["id"], []).append(answer)
    assert by_id[1][0]["result"]["protocolVersion"] == "2025-11-25"
    assert sorted(answer["error"]["code"] for answer in by_id[None]) == [-32700, -32700, -32700, -32600]
    assert by_id[8][0]["result"] == {}
    found = by_id["last"][0]["result"]
    assert found["structuredContent"]["keyword"][0]["source"] == "指南/檢索.md"
    assert "a banner" in diagnostics
    assert "C code" in diagnostics
    assert "Traceback" not in diagnostics


def test_nothing_is_left_open_at_the_end(data_dir: Path):
    _, diagnostics = exchanged(data_dir, [*READY])
    assert "ResourceWarning" not in diagnostics


@pytest.mark.parametrize("sent", [1.5, 1.0, None, True, float("nan"), float("-inf"), [1], {"a": 1}], ids=repr)
def test_an_id_that_cannot_be_one_is_refused(data_dir: Path, sent: object):
    lines: list[bytes | dict[str, Any]] = [*READY, {**message("ping"), "id": sent}, {**message("ping"), "id": "next"}]
    answers, _ = exchanged(data_dir, lines)
    error = {"code": -32600, "message": "Invalid request: the line is not one JSON-RPC message"}
    assert {"jsonrpc": "2.0", "id": None, "error": error} in answers
    assert {"jsonrpc": "2.0", "id": "next", "result": {}} in answers
    assert len(answers) == 3


def test_a_session_that_the_start_leaves_open_believes_its_client(data_dir: Path):
    lines: list[bytes | dict[str, Any]] = []
    for tenant in ("acme", "globex"):
        params = {**call("list_rag", tenant_id=tenant)["params"], "_meta": META}
        lines.append(message("tools/call", params, id=tenant))
    answers, _ = exchanged(data_dir, lines)
    seen = {
        answer["id"]: [entry["db"] for entry in answer["result"]["structuredContent"]["registered"]]
        for answer in answers
    }
    assert seen == {"acme": ["acme-plans", "notes"], "globex": ["globex-plans", "notes"]}


def test_a_client_that_goes_away_ends_the_process(data_dir: Path):
    with subprocess.Popen(
        command("stdio", data_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdout.close()
        server.stdin.write(json.dumps(initialize()) + "\n")
        server.stdin.close()
        assert server.wait(timeout=30) == 0
        assert "Traceback" not in server.stderr.read()


def test_ctrl_c_ends_the_process_though_its_input_is_open(data_dir: Path):
    with subprocess.Popen(
        command("stdio", data_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(initialize()) + "\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == -signal.SIGINT
