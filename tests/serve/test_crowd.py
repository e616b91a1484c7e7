"""Many at once, over HTTP, while another process indexes into what they search."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kura.embed.hashing import HashingEmbedder
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.roots import register, writing
from kura.store.catalog import Catalog
from tests.serve.running import JSON, call, modern

FILES = 40
CROWD = 200

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what a process holds in /proc")


def text_of(number: int, edition: str) -> str:
    marker = f"marker{number}x "
    return f"# Part {number}\n\nThe {edition} edition: {marker * 8} is here and nowhere else.\n"


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"KURA_REFRESH_SECONDS": "0"}


@pytest.fixture
def docs(tmp_path: Path, environment: dict[str, str]) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.md").write_text(text_of(number, "first"), encoding="utf-8")
    catalog = Catalog(Path(environment["KURA_DATA_DIR"]))
    with writing(catalog.path(catalog.add("parts"))) as connection:
        reconcile(connection, [register(connection, folder)], model=Model.of(HashingEmbedder()), max_file_bytes=1000)
    return folder


@pytest.fixture
def server(docs: Path, environment: dict[str, str]) -> "Generator[tuple[str, subprocess.Popen[str]]]":
    assert docs.exists()
    command = [sys.executable, "-m", "kura", "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stderr is not None
            yield started.stderr.readline().split()[1].removesuffix("/mcp"), started
            started.send_signal(signal.SIGTERM)
            assert started.wait(timeout=20) == 0
            assert started.stderr.read() == ""
        finally:
            started.kill()


async def asked(client: httpx2.AsyncClient, turn: int) -> None:
    """Ask for one part, in one of the ways to ask, and check that the answer is about that part."""
    number, way, mode = turn % FILES, turn % 3, (None, "keyword", "semantic")[turn // 3 % 3]
    arguments: dict[str, Any] = {"db": "parts", "q": f"marker{number}x", "limit": 3} | ({"mode": mode} if mode else {})
    if mode != "keyword":
        arguments["q"] = text_of(number, "first")
    if way == 0:
        response = await client.get("/api/search", params=arguments)
        found = response.json()
    else:
        body, headers = (call("search_rag", **arguments), JSON)
        if way == 1:
            body, headers = modern("tools/call", {"name": "search_rag", "arguments": arguments})
        response = await client.post("/mcp", json={**body, "id": f"turn {turn}"}, headers=headers)
        assert response.json()["id"] == f"turn {turn}"
        found = response.json()["result"]["structuredContent"]
    assert response.status_code == 200
    assert set(found) - {"notices"} == ({mode} if mode else {"keyword", "semantic"})
    for groups in (found[key] for key in ("keyword", "semantic") if key in found):
        assert groups[0]["source"] == f"{number}.md"
        assert f"marker{number}x" in groups[0]["matches"][0]["content"]


def crowd(url: str, turns: range) -> None:
    async def all_at_once() -> None:
        limits = httpx2.Limits(max_connections=CROWD)
        async with httpx2.AsyncClient(base_url=url, verify=False, limits=limits, timeout=60) as client:
            await asyncio.gather(*(asked(client, turn) for turn in turns))

    asyncio.run(all_at_once())


def held(server: "subprocess.Popen[str]") -> tuple[int, int, int]:
    """Sockets, files and threads of a process."""
    own = Path(f"/proc/{server.pid}")
    links: list[str] = []
    for descriptor in (own / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    sockets = sum(link.startswith("socket:") for link in links)
    return sockets, len(links) - sockets, len(list((own / "task").iterdir()))


def test_two_hundred_at_once_get_each_its_own_answer_while_another_process_indexes(
    server: "tuple[str, subprocess.Popen[str]]", docs: Path, environment: dict[str, str]
):
    url, started = server
    crowd(url, range(CROWD))
    before = held(started)
    for number in range(FILES):
        (docs / f"{number}.md").write_text(text_of(number, "second"), encoding="utf-8")
    command = [sys.executable, "-m", "kura", "index", "parts"]
    turns = 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as indexing:
        while indexing.poll() is None:
            crowd(url, range(turns, turns + CROWD))
            turns += CROWD
        assert (indexing.returncode, indexing.communicate()[1]) == (0, b"")
    found = httpx2.get(f"{url}/api/search?db=parts&q=edition&mode=keyword", verify=False, timeout=20).json()
    assert found["keyword"]
    assert all("second edition" in match["content"] for group in found["keyword"] for match in group["matches"])
    give_up = time.monotonic() + 20
    while (now := held(started))[0] > before[0] and time.monotonic() < give_up:
        os.sched_yield()
    # Worker threads, and connections to the database, are kept for the next rush, up to a bound; sockets are not.
    assert now[0] <= before[0]
    assert (now[1] - before[1] <= 12, now[2] - before[2] <= 4) == (True, True), (before, now)
