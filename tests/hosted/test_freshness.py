"""A process that serves from a server sees what is published, having loaded what changed and no more."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from handler.adapter import Handler
from kura.chosen import elsewhere_of
from kura.embed.hashing import HashingEmbedder
from kura.errors import NotReady
from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.publish.push import rollback
from kura.store.remote import open_remote
from kura.store.segments import seal
from kura.store.sources import remove_sources, roots, sources
from kura.types import SearchResult, Session
from local.sqld import Key, Server
from tests.hosted.hosting import published, settings
from tests.hosted.relay import Relay, relayed
from tests.serve.running import CONTEXT, JSON, answer, call, event
from tests.store.writing import put, writing

EMBEDDER = HashingEmbedder()
PASSAGES = 3_000


def fill(data_dir: Path, name: str, edition: str) -> None:
    """A database of three thousand passages, each of which says of which edition it is."""
    catalog = Catalog(data_dir)
    with writing(catalog, catalog.add(name)) as connection:
        for n in range(PASSAGES // 100):
            put(connection, f"{n}.md", *texts(n, edition), embedder=EMBEDDER)
        seal(connection)


def texts(n: int, edition: str) -> list[str]:
    return [f"{edition} passage {k} of file {n}, about tide {n * k % 97} and moon" for k in range(100)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    data_dir = tmp_path / "here"
    fill(data_dir, "notes", "oldest")
    return data_dir


@pytest.fixture
def relay(server: Server, here: Path, key: Key) -> Generator[Relay]:
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        yield relay


@pytest.fixture
def library(tmp_path: Path, relay: Relay, key: Key) -> Generator[Library]:
    chosen = settings(tmp_path / "there", {"notes": relay.url}, key.token(read_only=True))
    with closing(
        Library(
            Catalog(chosen.data_dir),
            lambda: EMBEDDER,
            elsewhere=elsewhere_of(chosen),
            refresh_seconds=0.0,
            patience=30.0,
        )
    ) as library:
        yield library


def found(library: Library, q: str, mode: Any = None, limit: int = 5) -> SearchResult:
    return asyncio.run(search(library, Session(None, None), "notes", q, mode, limit))


def contents(result: SearchResult) -> list[str]:
    groups = [*(result.keyword or ()), *(result.semantic or ())]
    return [match.content for group in groups for match in group.matches]


def test_a_new_push_is_seen_having_loaded_the_difference_alone(library: Library, relay: Relay, here: Path, key: Key):
    found(library, "tide")
    cold = len(relay.received)
    catalog = Catalog(here)
    entry = catalog.find("notes")
    with writing(catalog, entry) as connection:
        put(connection, "new.md", "newest of all, about the harbour", embedder=EMBEDDER)
        seal(connection)
    published(here, "notes", relay.url, key)
    before = len(relay.received)
    seen = found(library, "harbour")
    assert contents(seen)[0] == "newest of all, about the harbour"
    assert seen.semantic
    assert seen.semantic[0].source == "new.md"
    assert len(relay.received) - before < cold / 10
    with writing(catalog, entry) as connection:
        root = roots(connection)[0].id
        remove_sources(connection, [sources(connection, root)["new.md"].id])
        seal(connection)
    published(here, "notes", relay.url, key)
    before = len(relay.received)
    assert "newest of all, about the harbour" not in contents(found(library, "harbour"))
    assert len(relay.received) - before < cold / 10


def test_nothing_is_loaded_where_nothing_is_new(library: Library, relay: Relay):
    found(library, "tide")
    cold = len(relay.received)
    found(library, "tide", "semantic")
    # The version, and the passages that are shown.
    assert len(relay.received) - cold < cold / 50


def test_a_handler_sees_a_new_push_in_the_next_invocation(tmp_path: Path, relay: Relay, here: Path, key: Key):
    chosen = settings(tmp_path / "there", {"notes": relay.url}, key.token(read_only=True))

    def invoked(handler: Handler, q: str) -> dict[str, Any]:
        body = json.dumps(call("search_rag", db="notes", q=q, limit=1)).encode()
        result = handler(event("function_url", "POST", "/mcp", headers=JSON, body=body), CONTEXT)
        return answer(result).json()["result"]["structuredContent"]

    with closing(Handler(chosen)) as handler:
        cold = len(relay.received)
        assert "harbour" not in str(invoked(handler, "harbour"))
        catalog = Catalog(here)
        with writing(catalog, catalog.find("notes")) as connection:
            put(connection, "new.md", "newest of all, about the harbour", embedder=EMBEDDER)
            seal(connection)
        published(here, "notes", relay.url, key)
        before = len(relay.received)
        seen = invoked(handler, "harbour")
        assert len(relay.received) - before < cold / 10
    assert [seen[mode][0]["source"] for mode in ("keyword", "semantic")] == ["new.md", "new.md"]


def test_whatever_is_published_no_answer_mixes_two_pushes(tmp_path: Path, library: Library, relay: Relay, key: Key):
    """Another database with the same ids and other texts is put in the place of the first one, and taken back."""
    other = tmp_path / "other"
    fill(other, "notes", "younger")
    over, wrong, seen = threading.Event(), list[str](), set[str]()

    def ask() -> None:
        while not over.is_set():
            for mode in ("keyword", "semantic"):
                try:
                    result = found(library, "passage 7 about tide and moon", mode, 20)
                except NotReady:
                    continue
                editions = {content.split()[0] for content in contents(result)}
                seen.update(editions)
                if len(editions) != 1:
                    wrong.append(f"{mode}: {editions}")

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for each in asking:
        each.start()
    try:
        for _ in range(3):
            published(other, "notes", relay.url, key, force=True)
            with closing(open_remote(relay.url, key.token)) as remote:
                rollback(remote)
        published(other, "notes", relay.url, key, force=True)
    finally:
        over.set()
        for each in asking:
            each.join()
    assert wrong == []
    assert "oldest" in seen
    assert {content.split()[0] for content in contents(found(library, "tide moon", "semantic"))} == {"younger"}
