"""Servers of databases that are down, slow or wrong: a clear error, or the right answer, never a wrong or empty one."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from kura.chosen import elsewhere_of
from kura.embed.hashing import HashingEmbedder
from kura.errors import BranchFailed, KuraError, StoreError, Unavailable
from kura.library.library import Library
from kura.search.search import search
from kura.store.address import Patience
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere, enter, named
from kura.store.remote import open_remote
from kura.store.tokens import Tokens
from kura.types import SearchResult, Session
from local.sqld import Key, Server, libsql_server
from tests.clients.servers import HTTP, serving
from tests.embed.endpoints import Answer, Scripted
from tests.hosted.hosting import published, reading_from, settings
from tests.hosted.relay import relayed
from tests.serve.knowledge import fill

ANYONE = Session(None, None)
QUICK = Patience(connect=1.0, total=1.0, attempts=2, pause=0.01)
Q = "Which file and lines?"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here")
    return tmp_path / "here"


@contextmanager
def reading(tmp_path: Path, databases: dict[str, str], token: str, **more: Any) -> Generator[Library]:
    there = Elsewhere(named(databases), Tokens(token), patience=QUICK, **more)
    catalog = Catalog(tmp_path / "there")
    with closing(Library(catalog, HashingEmbedder, elsewhere=there, refresh_seconds=0.0, patience=5.0)) as library:
        yield library


def found(library: Library, mode: Any = None, name: str = "notes") -> SearchResult:
    return asyncio.run(search(library, ANYONE, name, Q, mode, 5))


def test_a_server_that_was_killed_between_two_searches_and_is_up_again_answers(tmp_path: Path, here: Path, key: Key):
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        published(here, "notes", server.url, key)
        port = int(server.url.rpartition(":")[2])
        with reading(tmp_path, {"notes": server.url}, key.token(read_only=True)) as library:
            before = found(library)
            server.process.kill()
            server.process.wait()
            for mode in (None, "keyword", "semantic"):
                with pytest.raises(KuraError, match=r"127\.0\.0\.1") as caught:
                    found(library, mode)
                assert isinstance(caught.value, StoreError | BranchFailed | Unavailable)
            with libsql_server(tmp_path / "server", jwt_key=key.public, port=port):
                assert found(library) == before


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
def test_a_cold_load_that_breaks_off_is_begun_anew(
    tmp_path: Path, here: Path, server: Server, key: Key, share: float, monkeypatch: pytest.MonkeyPatch
):
    # A database that could not be opened is left alone for a moment otherwise.
    monkeypatch.setattr("kura.library.library.RETRY_SECONDS", 0.0)
    published(here, "notes", server.url, key)
    token = key.token(read_only=True)
    with relayed(server.url) as whole, reading(tmp_path, {"notes": whole.url}, token) as library:
        expected = found(library)
        size = len(whole.received)
    with relayed(server.url) as relay, reading(tmp_path, {"notes": relay.url}, token) as library:
        relay.cut_after = int(size * share)
        with pytest.raises(KuraError, match=r"127\.0\.0\.1"):
            found(library)
        relay.cut_after = None
        assert found(library) == expected


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_a_server_that_is_killed_during_a_cold_load_and_is_up_again_answers(
    tmp_path: Path, here: Path, key: Key, share: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kura.library.library.RETRY_SECONDS", 0.0)
    token = key.token(read_only=True)
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server, relayed(server.url) as relay:
        published(here, "notes", server.url, key)
        with reading(tmp_path, {"notes": relay.url}, token) as library:
            expected = found(library)
            size = len(relay.received)
        relay.received.clear()
        relay.cut_after, relay.on_cut = int(size * share), server.process.kill
        with reading(tmp_path, {"notes": relay.url}, token) as library:
            with pytest.raises(KuraError, match=r"127\.0\.0\.1"):
                found(library)
            assert server.process.wait(timeout=30) != 0
            relay.cut_after = None
            port = int(server.url.rpartition(":")[2])
            with libsql_server(tmp_path / "server", jwt_key=key.public, port=port):
                assert found(library) == expected


WRONG: dict[str, Answer] = {
    "401": Answer(b'{"error":"expired"}', 401),
    "403": Answer(b'{"error":"no"}', 403),
    "404": Answer(b"nothing here", 404),
    "500": Answer(b'{"error":"oh"}', 500),
    "503": Answer(b"later", 503),
    "half a body": Answer(b'{"results":[' + b" " * 100, cut=50),
    "not JSON": Answer(b"<html>"),
    "another shape": Answer(b'{"results":[{"type":"ok","response":{"type":"execute","result":{"rows":[]}}}]}'),
    "never": Answer(b"", hang=True),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_a_server_that_answers_wrongly_makes_the_database_unavailable(tmp_path: Path, answer: Answer):
    token = "a-token-that-nobody-shall-see"
    with Scripted(answer) as server, reading(tmp_path, {"notes": server.url}, token) as library:
        with pytest.raises(Unavailable, match=r'database "notes" unavailable: .*127\.0\.0\.1') as caught:
            found(library)
        assert token not in repr(caught.value)
        assert asyncio.run(library.loaded(ANYONE)) == []
        assert [entry.name for entry in asyncio.run(library.registered(ANYONE))] == ["notes"]


def test_one_that_is_down_does_not_take_the_others_along(tmp_path: Path, here: Path, server: Server, key: Key):
    published(here, "notes", server.url, key)
    with Scripted(Answer(b"", hang=True)) as dead:
        databases = {"notes": server.url, "dead": dead.url}
        with reading(tmp_path, databases, key.token(read_only=True)) as library:
            library.start()
            assert found(library).semantic
            entries = {entry.name: entry.created_at for entry in asyncio.run(library.registered(ANYONE))}
            assert entries["dead"] is None
            assert entries["notes"] is not None
            assert asyncio.run(library.loaded(ANYONE)) == ["notes"]
            asked = len(dead.requests)
            with pytest.raises(Unavailable, match='"dead" unavailable'):
                found(library, name="dead")
            # It was tried a moment ago, and is not asked again by everyone.
            assert len(dead.requests) <= asked + 2


def test_requests_that_wait_for_a_server_that_hangs_hold_nobody_else_up(
    tmp_path: Path, here: Path, server: Server, key: Key
):
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        there = Elsewhere(
            named({"notes": server.url, "slow": relay.url}),
            Tokens(key.token(read_only=True)),
            patience=Patience(total=60.0, attempts=1),
        )
        catalog = Catalog(tmp_path / "there")
        with closing(Library(catalog, HashingEmbedder, elsewhere=there, refresh_seconds=3600, patience=60)) as library:

            async def ask() -> None:
                expected = await search(library, ANYONE, "slow", Q, None, 5)
                relay.flowing.clear()
                waiting = [asyncio.create_task(search(library, ANYONE, "slow", Q, None, 5)) for _ in range(20)]
                async with asyncio.timeout(20):
                    assert await search(library, ANYONE, "notes", Q, None, 5) == expected
                assert not any(task.done() for task in waiting)
                relay.flowing.set()
                assert await asyncio.gather(*waiting) == [expected] * 20

            asyncio.run(ask())


def test_over_every_edge_the_error_names_the_database(tmp_path: Path, here: Path, server: Server, key: Key):
    published(here, "notes", server.url, key)
    environ = reading_from(tmp_path / "there", f"notes={server.url}", key)
    server.process.kill()
    server.process.wait()
    with serving(HTTP["uvicorn"], environ) as url:
        base = url.removesuffix("/mcp").rstrip("/")

        async def ask() -> Any:
            async with Client(f"{base}/mcp") as client:
                return await client.call_tool("search_rag", {"db": "notes", "q": Q})

        result = asyncio.run(ask())
        assert result.is_error
        assert result.content[0].text.startswith('database "notes" unavailable: 127.0.0.1')
        problem = httpx2.get(f"{base}/api/search", params={"db": "notes", "q": Q}, timeout=60)
        assert problem.status_code == 503
        assert problem.json()["detail"].startswith('database "notes" unavailable: 127.0.0.1')
        assert environ["KURA_DATABASE_TOKENS"] not in problem.text


def test_a_token_that_expires_is_replaced_without_a_restart(tmp_path: Path, here: Path, server: Server, key: Key):
    published(here, "notes", server.url, key)
    file = tmp_path / "tokens"
    file.write_text(f"notes={key.token(read_only=True)}\n", encoding="utf-8")
    chosen = settings(tmp_path / "there", {"notes": server.url}, "unused=x", database_tokens_file=file)
    there = elsewhere_of(chosen)
    with closing(
        Library(Catalog(chosen.data_dir), HashingEmbedder, elsewhere=there, refresh_seconds=0.0, patience=5.0)
    ) as library:
        before = found(library)
        expired = key.token(read_only=True, seconds=-3600)
        file.write_text(f"# expired\nnotes={expired}\n", encoding="utf-8")
        with pytest.raises(KuraError, match="refused access") as caught:
            found(library, "keyword")
        assert expired not in str(caught.value)
        file.write_text(f"# and again a good one\nnotes={key.token(read_only=True)}\n", encoding="utf-8")
        assert found(library) == before


@pytest.fixture
def catalog_server(tmp_path: Path) -> Generator[Callable[[str], Server]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(libsql_server(tmp_path / name))


def test_a_catalog_on_a_server_names_databases_and_their_owners(
    tmp_path: Path, here: Path, key: Key, server: Server, catalog_server: Callable[[str], Server]
):
    published(here, "acme-plans", server.url, key)
    names = catalog_server("names")
    local = Catalog(here)
    with closing(open_remote(names.url)) as remote:
        enter(remote, local.find("acme-plans"), server.url)
        remote.run("insert into databases values ('no/name', 'https://x.example', null, '2026-01-01T00:00:00Z')")
        remote.run("insert into databases values ('wrong', 'ftp://x.example', null, '2026-01-01T00:00:00Z')")
    with reading(tmp_path, {}, key.token(read_only=True), catalog=names.url, refresh_seconds=0.0) as library:
        acme = Session("acme", None)
        assert [entry.name for entry in asyncio.run(library.registered(acme))] == ["acme-plans"]
        assert asyncio.run(library.loaded(acme)) == ["acme-plans"]
        assert asyncio.run(library.registered(Session("globex", None))) == []
        names.process.kill()
        names.process.wait()
        # What it said last goes on to be true, as far as anybody knows.
        assert asyncio.run(library.loaded(acme)) == ["acme-plans"]
        with pytest.raises(Unavailable, match="catalog that may name it cannot be read"):
            asyncio.run(library.open(acme, "something-else"))


def test_a_catalog_that_is_down_from_the_start_is_said_to_be(tmp_path: Path, key: Key):
    with (
        Scripted(Answer(b"no", 500)) as names,
        reading(tmp_path, {}, key.token(read_only=True), catalog=names.url) as library,
    ):
        assert asyncio.run(library.registered(ANYONE)) == []
        with pytest.raises(Unavailable, match=r'"notes" unavailable: the catalog .*127\.0\.0\.1:\d+ failed'):
            found(library)
