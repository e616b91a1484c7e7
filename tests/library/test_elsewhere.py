"""A library of databases on servers: whose they are, what a catalog says of them, and what is wrong with either."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kura.chosen import elsewhere_of
from kura.embed.hashing import HashingEmbedder
from kura.errors import ConfigurationError, NotReady, Unavailable, UnknownDatabase
from kura.library.library import Library
from kura.search.keyword import keyword
from kura.search.search import search
from kura.search.semantic import semantic
from kura.settings import read_settings
from kura.store.address import Patience
from kura.store.catalog import Catalog, Entry
from kura.store.elsewhere import Elsewhere, enter, named
from kura.store.remote import open_remote
from kura.store.segments import seal
from kura.store.tokens import Tokens
from kura.types import Mode, SearchResult, Session
from local.sqld import Key, Server, libsql_server
from tests.hosted.hosting import published
from tests.hosted.relay import relayed
from tests.serve.knowledge import fill
from tests.store.writing import add, put, writing

ANYONE = Session(None, None)
QUICK = Patience(connect=2.0, total=5.0, attempts=1)
EMBEDDER = HashingEmbedder()


@pytest.fixture(scope="session")
def key() -> Key:
    return Key()


@pytest.fixture
def server(tmp_path: Path, key: Key) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        yield server


@pytest.fixture
def names(tmp_path: Path) -> Generator[Server]:
    """The server of a catalog."""
    with libsql_server(tmp_path / "names") as server:
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here")
    return tmp_path / "here"


@contextmanager
def reading(tmp_path: Path, databases: Mapping[str, str], key: Key, catalog: str | None = None) -> Generator[Library]:
    there = Elsewhere(
        named(databases), Tokens(key.token(read_only=True)), catalog=catalog, refresh_seconds=0.0, patience=QUICK
    )
    with closing(
        Library(Catalog(tmp_path / "there"), lambda: EMBEDDER, elsewhere=there, refresh_seconds=0.0, patience=5.0)
    ) as library:
        yield library


def found(library: Library, name: str, q: str, mode: Mode | None = None, who: Session = ANYONE) -> SearchResult:
    return asyncio.run(search(library, who, name, q, mode, 5))


def visible(library: Library, who: Session = ANYONE) -> list[str]:
    return [entry.name for entry in asyncio.run(library.registered(who))]


@pytest.mark.parametrize("mode", [None, "keyword", "semantic"])
def test_a_database_that_is_swapped_for_a_tenants_while_it_is_open_is_shown_to_nobody_else(
    tmp_path: Path, here: Path, server: Server, key: Key, mode: Mode | None
):
    published(here, "notes", server.url, key)
    with reading(tmp_path, {"notes": server.url}, key) as library:
        assert found(library, "notes", "passage", mode)
        published(here, "acme-plans", server.url, key, force=True)
        with pytest.raises(Unavailable, match=r'"notes" unavailable: .*another owner'):
            found(library, "notes", "secret plan", mode)
        assert asyncio.run(library.loaded(ANYONE)) == []
        published(here, "notes", server.url, key, force=True)
        assert "Retrieval" in str(found(library, "notes", "Retrieval finds passages", mode))
        assert asyncio.run(library.loaded(ANYONE)) == ["notes"]


def test_rows_of_a_catalog_that_cannot_be_databases_leave_the_others_alone(
    tmp_path: Path, here: Path, server: Server, names: Server, key: Key
):
    published(here, "notes", server.url, key)
    with closing(open_remote(names.url)) as remote:
        enter(remote, Catalog(here).find("notes"), server.url)
        remote.run("drop table databases")
        remote.run("create table databases (name, url, tenant, created_at)")
        for row in (
            ("notes", server.url, None, "2026-01-01T00:00:00Z"),
            (None, server.url, None, None),
            (7, server.url, None, None),
            (b"blob", server.url, None, None),
            ("nowhere", None, None, None),
            ("number", 8, None, None),
            ("bytes", b"http://127.0.0.1", None, None),
            ("whose", server.url, 5, None),
            ("blank", server.url, " ", None),
            ("when", server.url, None, 2026),
            ("no/name", server.url, None, None),
            ("wrong", "ftp://x.example", None, None),
        ):
            remote.run("insert into databases values (?, ?, ?, ?)", row)
    with reading(tmp_path, {}, key, names.url) as library:
        assert visible(library) == ["notes"]
        assert found(library, "notes", "passage").semantic


def test_a_name_that_a_catalog_has_twice_is_taken_once(tmp_path: Path, server: Server, names: Server, key: Key):
    with closing(open_remote(names.url)) as remote:
        for name in ("café", "cafe\u0301"):
            enter(remote, Entry(name, "", None, "2026-01-01T00:00:00Z"), server.url)
    with reading(tmp_path, {}, key, names.url) as library:
        assert visible(library) == ["café"]


def test_a_catalog_that_hangs_does_not_hold_up_the_start(tmp_path: Path, names: Server):
    with relayed(names.url) as relay:
        relay.flowing.clear()
        there = Elsewhere([], Tokens(), catalog=relay.url, patience=QUICK)
        with closing(Library(Catalog(tmp_path / "there"), lambda: EMBEDDER, elsewhere=there)) as library:
            library.start(within=0.1)
            # It has neither answered nor been given up.
            assert there.fault is None
            relay.flowing.set()


def test_what_a_catalog_names_and_forgets_is_seen_while_serving(
    tmp_path: Path, here: Path, server: Server, names: Server, key: Key
):
    published(here, "notes", server.url, key)
    entry = Catalog(here).find("notes")
    with closing(open_remote(names.url)) as remote, reading(tmp_path, {}, key, names.url) as library:
        with pytest.raises(Unavailable, match=r'"notes" unavailable: the catalog .* cannot be read: 127\.0\.0\.1'):
            found(library, "notes", "passage")  # nobody has made its table yet
        enter(remote, entry, server.url)
        assert found(library, "notes", "passage").keyword
        remote.run("delete from databases")
        with pytest.raises(UnknownDatabase):
            found(library, "notes", "passage")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no URL": ({"databases": "notes=a-secret-place"}, "KURA_DATABASES"),
    "token in URL": ({"databases": "notes=libsql://x.example?authToken=a-secret"}, "KURA_DATABASES"),
    "user in URL": ({"databases": "notes=https://a-secret@x.example"}, "KURA_DATABASES"),
    "URL alone": ({"databases": "https://a-secret.example"}, "KURA_DATABASES"),
    "blank tenant": ({"databases": "notes@ =https://a-secret.example"}, "KURA_DATABASES"),
    "twice": ({"databases": "notes=https://a-secret.example,notes=https://a-secret.example"}, "KURA_DATABASES"),
    "twice for tenants": (
        {"databases": "notes=https://a-secret.example,notes@acme=https://a-secret.example"},
        "KURA_DATABASES",
    ),
    "twice by accents": (
        {"databases": "café=https://a-secret.example,cafe\u0301=https://a-secret.example"},
        "KURA_DATABASES",
    ),
    "catalog no URL": ({"catalog": "a-secret-place"}, "KURA_CATALOG"),
    "token in catalog's URL": ({"catalog": "libsql://x.example?authToken=a-secret"}, "KURA_CATALOG"),
    "tokens": ({"databases": "notes=https://x.example", "database_tokens": "a secret"}, "KURA_DATABASE_TOKENS"),
}


@pytest.mark.parametrize(("given", "variable"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_told_by_its_name_and_never_by_its_value(
    tmp_path: Path, given: dict[str, Any], variable: str
):
    with pytest.raises(ConfigurationError, match=variable) as caught:
        elsewhere_of(read_settings(data_dir=tmp_path, **given))
    assert "secret" not in str(caught.value)


def test_many_databases_that_hang_do_not_keep_another_from_being_opened(
    tmp_path: Path, here: Path, server: Server, key: Key
):
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        relay.flowing.clear()
        dead = {f"dead-{n}": f"{relay.url}/{n}" for n in range(100)}
        patience = Patience(total=60.0, attempts=1)
        there = Elsewhere(named({**dead, "notes": server.url}), Tokens(key.token(read_only=True)), patience=patience)
        catalog = Catalog(tmp_path / "there")
        with closing(Library(catalog, lambda: EMBEDDER, elsewhere=there, refresh_seconds=0.0, patience=0.5)) as library:
            library.start()
            assert found(library, "notes", "passage", "keyword").keyword
            assert found(library, "notes", "passage", "semantic").semantic
            assert asyncio.run(library.loaded(ANYONE)) == ["notes"]
            relay.flowing.set()


def test_a_database_that_leaves_the_catalog_while_it_is_searched_still_answers(
    tmp_path: Path, here: Path, server: Server, names: Server, key: Key
):
    published(here, "notes", server.url, key)
    entry = Catalog(here).find("notes")
    with (
        closing(open_remote(names.url)) as remote,
        relayed(server.url) as relay,
        reading(tmp_path, {}, key, names.url) as library,
    ):
        enter(remote, entry, relay.url)

        async def ask() -> None:
            base = await library.open(ANYONE, "notes")
            by_word, by_meaning = await keyword(base, "passage", 5), await semantic(library, base, "passage", 5)
            relay.flowing.clear()
            # More than there are threads, so that some of them have yet to begin.
            asking = [asyncio.ensure_future(keyword(base, "passage", 5)) for _ in range(20)]
            meaning = [asyncio.ensure_future(semantic(library, base, "passage", 5)) for _ in range(20)]
            await asyncio.sleep(0)
            remote.run("delete from databases")
            assert await library.registered(ANYONE) == []
            relay.flowing.set()
            assert await asyncio.gather(*asking) == [by_word] * 20
            assert await asyncio.gather(*meaning) == [by_meaning] * 20

        asyncio.run(ask())


@pytest.mark.parametrize("forced", [True, False], ids=["another database by force", "a difference"])
def test_an_answer_of_both_modes_is_of_one_push(tmp_path: Path, server: Server, key: Key, forced: bool):
    here = tmp_path / "one", tmp_path / "two"
    for data_dir, edition in zip(here, EDITIONS, strict=True):
        add(Catalog(data_dir), "notes", files(25 if forced else 3, edition), EMBEDDER)
    published(here[0], "notes", server.url, key)
    over, seen = threading.Event(), set[frozenset[str]]()
    with reading(tmp_path, {"notes": server.url}, key) as library, ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(ask_until, over, library, seen) for _ in range(3)]
        try:
            for turn in range(1, 5 if forced else 13):
                if forced:
                    published(here[turn % 2], "notes", server.url, key, force=True)
                    continue
                catalog = Catalog(here[0])
                with writing(catalog, catalog.find("notes")) as connection:
                    for path, texts in files(3, EDITIONS[turn % 2]).items():
                        put(connection, path, *texts, embedder=EMBEDDER)
                    seal(connection)
                published(here[0], "notes", server.url, key)
        finally:
            over.set()
        for each in asking:
            each.result()
    assert seen == {frozenset({edition}) for edition in EDITIONS}


EDITIONS = ("oldest", "younger")


def files(count: int, edition: str) -> dict[str, list[str]]:
    return {f"{n}.md": [f"{edition} passage {k} of file {n} about the tide" for k in range(100)] for n in range(count)}


def ask_until(over: threading.Event, library: Library, seen: set[frozenset[str]]) -> None:
    """Ask by both modes, and note of which editions each answer is."""
    while not over.is_set():
        # A database that was just replaced is loaded anew, which may take longer than a search waits.
        with suppress(NotReady):
            answer = found(library, "notes", "passage 7 about the tide")
            groups = [*(answer.keyword or ()), *(answer.semantic or ())]
            seen.add(frozenset(match.content.split()[0] for group in groups for match in group.matches))
