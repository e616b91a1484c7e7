"""`kura mcp`, `kura serve` and `kura index --watch` as the processes that people and clients start."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

Kura = Callable[..., "subprocess.CompletedProcess[str]"]
LONGEST = 60.0


@contextmanager
def started(environment: dict[str, str], *arguments: str) -> Generator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kura", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(stream: Any, text: str) -> str:
    for line in stream:
        if text in line:
            return line
    pytest.fail(f"the process ended without a line with {text!r}")


@pytest.fixture
def notes(kura: Kura, docs: Path) -> None:
    assert kura("add", "notes").returncode == 0
    assert kura("index", "notes", str(docs)).returncode == 0


@pytest.mark.usefixtures("notes")
@pytest.mark.anyio
async def test_a_client_that_starts_kura_mcp_lists_and_searches(environment: dict[str, str]):
    server = StdioServerParameters(command=sys.executable, args=["-m", "kura", "mcp"], env=environment)
    async with Client(stdio_client(server)) as client:
        listed = await client.call_tool("list_rag", {})
        assert (listed.structured_content or {})["loaded"] == ["notes"]
        found = await client.call_tool("search_rag", {"db": "notes", "q": "茶汤", "mode": "keyword"})
        assert found.structured_content is not None
        assert found.structured_content["keyword"][0]["source"] == "茶.txt"


@pytest.mark.usefixtures("notes")
def test_kura_mcp_ends_well_when_its_input_is_closed(kura: Kura):
    done = kura("mcp", stdin="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("notes")
def test_kura_serve_announces_its_url_answers_and_cleans_up(environment: dict[str, str], tmp_path: Path):
    endpoint = tmp_path / "data" / "endpoint"
    with started(environment, "serve", "--port", "0") as process:
        line_with(process.stderr, "serving http://127.0.0.1:")
        url = endpoint.read_text(encoding="utf-8").strip()
        found = httpx2.get(f"{url}/api/search", params={"db": "notes", "q": "water", "mode": "keyword"})
        assert found.json()["keyword"][0]["source"] == "tides.md"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST) == 0
    assert not endpoint.exists()


def test_kura_serve_takes_the_pinned_port_and_says_when_it_is_taken(environment: dict[str, str], kura: Kura):
    with started(environment, "serve", "--port", "0") as process:
        port = line_with(process.stderr, "serving").split("/mcp")[0].rsplit(":", 1)[1]
        assert kura("port", "set", port).returncode == 0
        second = kura("serve")
        assert second.returncode == 1
        assert f"port {port} is in use" in second.stderr


def test_kura_serve_refuses_to_be_reached_from_elsewhere_without_a_word_on_who_may_come(kura: Kura):
    refused = kura("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - that is what must be refused
    assert refused.returncode == 1
    assert "KURA_KEY_HASH" in refused.stderr
    assert "KURA_PUBLIC=true" in refused.stderr


@pytest.mark.usefixtures("notes")
def test_a_watching_index_follows_new_changed_and_deleted_files(environment: dict[str, str], kura: Kura, docs: Path):
    def sources(q: str) -> set[str]:
        found = kura("search", "notes", q, "--mode", "keyword", "--json")
        return {group["source"] for group in json.loads(found.stdout)["keyword"]}

    def becomes(q: str, expected: set[str]) -> bool:
        deadline = time.monotonic() + LONGEST
        while sources(q) != expected:
            if time.monotonic() > deadline:
                return False
        return True

    with started(environment, "index", "notes", "--watch") as process:
        line_with(process.stderr, "watching for changes")
        (docs / "moon.md").write_text("a lunar eclipse", encoding="utf-8")
        assert becomes("eclipse", {"moon.md"})
        (docs / "moon.md").write_text("an occultation", encoding="utf-8")
        assert becomes("eclipse", set())
        assert becomes("occultation", {"moon.md"})
        (docs / "moon.md").unlink()
        assert becomes("occultation", set())
        process.send_signal(signal.SIGINT)
        assert process.wait(LONGEST) == 0
