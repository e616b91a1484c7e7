"""The handler with databases on servers: down, wrong, gone to another owner, and with a token that is replaced."""

import asyncio
import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handler.adapter import Handler
from local.sqld import Key, Server, libsql_server
from tests.embed.endpoints import Answer, Scripted
from tests.hosted.hosting import published, settings
from tests.hosted.relay import relayed
from tests.serve.knowledge import fill
from tests.serve.running import CONTEXT, JSON, KINDS, EventKind, answer, call, event

Q = "Which file and lines?"
MODES: tuple[dict[str, Any], ...] = ({}, {"mode": "keyword"}, {"mode": "semantic"})


@pytest.fixture(scope="session")
def key() -> Key:
    return Key()


@pytest.fixture
def server(tmp_path: Path, key: Key) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here")
    return tmp_path / "here"


def invoked(handler: Handler, built: dict[str, Any]) -> httpx2.Response:
    result = handler(built, CONTEXT)
    assert asyncio.all_tasks(handler.loop) == set()
    return answer(result)


def called(handler: Handler, tool: str, kind: EventKind = "function_url", **arguments: object) -> dict[str, Any]:
    body = json.dumps(call(tool, **arguments)).encode()
    return invoked(handler, event(kind, "POST", "/mcp", headers=JSON, body=body)).json()["result"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_is_answered_from_a_server_as_from_files(
    tmp_path: Path, here: Path, server: Server, key: Key, kind: EventKind
):
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        there = settings(tmp_path / "there", {"notes": relay.url}, key.token(read_only=True))
        files = settings(here, {}, "unused=x")
        with closing(Handler(there)) as remote, closing(Handler(files)) as local:
            for q in (Q, "模型怎麼根據段落回答？"):
                for mode in MODES:
                    got, wanted = (
                        called(handler, "search_rag", kind, db="notes", q=q, **mode) for handler in (remote, local)
                    )
                    assert got == wanted
                    assert got["structuredContent"]
            listed, wanted = (
                called(handler, "list_rag", kind)["structuredContent"]["registered"] for handler in (remote, local)
            )
            assert listed == [entry for entry in wanted if entry["db"] == "notes"]
        assert relay.statuses == {200}


@pytest.mark.parametrize(
    "wrong",
    [Answer(b"no", 401), Answer(b"no", 403), Answer(b"no", 404), Answer(b"no", 500), Answer(b"<html>")],
    ids=["401", "403", "404", "500", "not JSON"],
)
def test_a_server_that_answers_wrongly_is_an_error_that_names_the_database(
    tmp_path: Path, wrong: Answer, caplog: pytest.LogCaptureFixture
):
    token = "a-token-that-nobody-shall-see"
    with (
        Scripted(wrong) as there,
        closing(Handler(settings(tmp_path / "there", {"notes": there.url}, token))) as handler,
    ):
        said = called(handler, "search_rag", db="notes", q=Q)
        assert said["isError"] is True
        assert said["content"][0]["text"].startswith('database "notes" unavailable: ')
        problem = invoked(handler, event("function_url", "GET", "/api/search", query="db=notes&q=x"))
        assert problem.status_code == 503
        assert problem.json()["detail"].startswith('database "notes" unavailable: ')
        listed = called(handler, "list_rag")["structuredContent"]
        assert listed == {"loaded": [], "registered": [{"db": "notes"}]}
        assert token not in str((said, problem.text, listed)) + caplog.text


def test_a_server_that_hangs_does_not_keep_the_handler_from_being_built(
    tmp_path: Path, here: Path, server: Server, key: Key, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("handler.adapter.INIT_SECONDS", 0.2)
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        relay.flowing.clear()
        chosen = settings(
            tmp_path / "there",
            {"dead": relay.url, "notes": server.url},
            key.token(read_only=True),
            catalog=f"{relay.url}/names",
        )
        handler = Handler(chosen)
        # Nobody has answered until now.
        assert not relay.received
        relay.flowing.set()
        with closing(handler):
            assert called(handler, "search_rag", db="notes", q=Q)["structuredContent"]["semantic"]


def test_a_database_that_went_to_another_owner_is_not_shown_by_the_next_invocation(
    tmp_path: Path, here: Path, server: Server, key: Key
):
    published(here, "notes", server.url, key)
    chosen = settings(tmp_path / "there", {"notes": server.url}, key.token(read_only=True))
    with closing(Handler(chosen)) as handler:
        assert called(handler, "search_rag", db="notes", q=Q)["structuredContent"]["semantic"]
        published(here, "acme-plans", server.url, key, force=True)
        for mode in MODES:
            said = called(handler, "search_rag", db="notes", q="The secret plan", **mode)
            assert said["content"][0]["text"].startswith(
                'database "notes" unavailable: the database belongs to another'
            )
            assert "acme" not in str(said)


def test_a_token_is_replaced_between_two_invocations(tmp_path: Path, here: Path, server: Server, key: Key):
    published(here, "notes", server.url, key)
    good, bad, file = key.token(read_only=True), key.token(read_only=True, seconds=-3600), tmp_path / "tokens"
    file.write_text(f"notes={good}\n", encoding="utf-8")
    chosen = settings(tmp_path / "there", {"notes": server.url}, "unused=x", database_tokens_file=file)
    with closing(Handler(chosen)) as handler:
        expected = called(handler, "search_rag", db="notes", q=Q)
        file.write_text(f"# expired\nnotes={bad}\n", encoding="utf-8")
        said = called(handler, "search_rag", db="notes", q=Q)
        assert said["content"][0]["text"].startswith('database "notes" unavailable: ')
        assert bad not in str(said)
        file.write_text(f"# and a good one again\nnotes={good}\n", encoding="utf-8")
        assert called(handler, "search_rag", db="notes", q=Q) == expected
