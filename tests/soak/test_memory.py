"""A process that has answered ten thousand requests, no two of them alike, holds no more than before: `make soak`."""

import asyncio
import gc
import http.client
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from handler.adapter import Handler
from kura.embed.hashing import HashingEmbedder
from kura.settings import Settings
from kura.text.tokens import tokens
from tests.serve.knowledge import fill
from tests.serve.running import CONTEXT, JSON, call, event, initialize, message, modern, process

WARM = 2_000
"""Requests before it is looked at: until then SQLite's page caches, for one, still grow to their bound."""

REQUESTS = 10_000
MEGABYTE = 2**20

STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, and the status that its answer must have."""

    status: int
    method: str = "POST"
    path: str = "/mcp"
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


def posted(sent: dict[str, Any], headers: dict[str, str] = JSON, status: int = 200) -> Request:
    return Request(status, headers=headers, body=json.dumps(sent).encode())


def request(turn: int) -> Request:
    """The request of that turn: of each kind one after the other, and each with something that no other has."""
    word = f"w{turn:x}q"
    search = {"db": "notes", "q": f"passage {word}"}
    kinds: tuple[Callable[[], Request], ...] = (
        lambda: posted(call("search_rag", **search)),
        lambda: posted(*modern("tools/call", {"name": "search_rag", "arguments": search})),
        lambda: Request(200, "GET", "/api/search", f"db=notes&q={word}+passage&limit={turn % 100 + 1}"),
        lambda: posted(call("search_rag", **search, mode="semantic"), {**JSON, "mcp-session-id": word}),
        lambda: posted(initialize(), {**JSON, "user-agent": word}),
        lambda: posted(message("tools/list", id=word)),
        lambda: posted({**message(f"notifications/{word}", id=None)}, status=202),
        lambda: posted(call("search_rag", **search, **{word: word}, limit=word)),
        lambda: posted(call("search_rag", db=word, q=word)),
        lambda: posted(call("list_rag", tenant_id=word, user_id=word)),
        lambda: posted(call(word)),
        lambda: posted(message(f"{word}/{word}")),
        lambda: posted(message("resources/read", {"uri": f"kura://{word}"})),
        lambda: Request(400, headers=JSON, body=b"{" + word.encode()),
        lambda: Request(404, "GET", f"/{word}/{word}"),
        lambda: Request(404, "GET", "/api/search", f"db={word}&q={word}"),
        lambda: Request(403, "GET", "/api/list", f"tenant_id={word}"),
        lambda: Request(421, "GET", "/api/list", headers={"host": f"{word}.example"}),
        lambda: Request(405, "GET", "/mcp", headers={"accept": "text/event-stream", word: word}),
        lambda: Request(200, "GET", "/api/health"),
    )
    return kinds[turn % len(kinds)]()


def fill_caches() -> None:
    """Fill what remembers up to so many words, and no more, whatever is asked, so that it does not look like a leak.

    The tokens of words, the features of the hashing embedder, and the short strings that pydantic's JSON parser shares.
    """
    embedder = HashingEmbedder()
    for start in range(0, 400_000, 1_000):
        words = [f"filled{number:x}" for number in range(start, start + 1_000)]
        from_json(json.dumps(words))
        if start < 40_000:
            tokens(" ".join(words))
            embedder.embed(words, "query")


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def blocks() -> int:
    """Pieces of memory that Python has given out: each object has at least one."""
    gc.collect()
    return sys.getallocatedblocks()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    fill(directory)
    return directory


@pytest.fixture
def handler(data_dir: Path) -> Generator[Handler]:
    with closing(Handler(Settings(data_dir=data_dir, embedder="hashing", public=True))) as built:
        yield built


@pytest.mark.skipif(not STATM.exists(), reason="reads how much memory a process has from /proc")
def test_a_lambda_process_keeps_nothing_of_the_requests_that_it_answered(handler: Handler):
    def ask(turns: range) -> None:
        for turn in turns:
            sent = request(turn)
            built = event(
                "function_url", sent.method, sent.path, query=sent.query, headers=sent.headers, body=sent.body
            )
            assert handler(built, CONTEXT)["statusCode"] == sent.status, sent
        assert asyncio.all_tasks(handler.loop) == set()

    fill_caches()
    ask(range(WARM))
    held, occupied = blocks(), resident()
    ask(range(WARM, WARM + REQUESTS))
    # One object kept of every fifth request would be more.
    assert blocks() - held < REQUESTS / 5
    assert resident() - occupied < 5 * MEGABYTE


@pytest.mark.skipif(not STATM.exists(), reason="reads how much memory a process has from /proc")
def test_a_server_process_occupies_no_more_after_many_requests(data_dir: Path):
    def ask(connection: http.client.HTTPConnection, turns: range) -> None:
        for turn in turns:
            sent = request(turn)
            connection.request(sent.method, f"{sent.path}?{sent.query}".rstrip("?"), sent.body, sent.headers)
            response = connection.getresponse()
            response.read()
            assert response.status == sent.status, sent

    with process(data_dir) as (url, started):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        with closing(connection):
            ask(connection, range(WARM))
            occupied = resident(started.pid)
            ask(connection, range(WARM, WARM + REQUESTS))
            # Words that it remembers, 32,768 at most, are among what it keeps.
            assert resident(started.pid) - occupied < 5 * MEGABYTE
