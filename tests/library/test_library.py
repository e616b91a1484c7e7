import asyncio
import logging
import shutil
import sqlite3
import threading
import unicodedata
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from kura.embed import Embedder
from kura.embed.hashing import HashingEmbedder
from kura.errors import Damaged, Unavailable, UnknownDatabase
from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.sources import remove_sources
from kura.store.sqlite import open_for_writing
from kura.types import Mode, SearchResult, Session
from tests.conftest import MakeLibrary
from tests.store.writing import add, put, writing

EVERYBODY = Session()


def ask(
    library: Library, db: str, q: str, mode: Mode | None = None, session: Session = EVERYBODY, limit: int = 10
) -> SearchResult:
    return asyncio.run(search(library, session, db, q, mode, limit))


def found(result: SearchResult) -> tuple[list[str], list[str]]:
    by_word, by_meaning = (
        [match.content for group in groups or () for match in group.matches]
        for groups in (result.keyword, result.semantic)
    )
    return by_word, by_meaning


def loaded(library: Library, session: Session = EVERYBODY) -> list[str]:
    return asyncio.run(library.loaded(session))


def registered(library: Library, session: Session = EVERYBODY) -> list[str]:
    return [entry.name for entry in asyncio.run(library.registered(session))]


@pytest.fixture
def library(embedder: HashingEmbedder, make_library: MakeLibrary) -> Library:
    return make_library(lambda: embedder)


def test_a_running_process_sees_what_is_indexed_later(catalog: Catalog, embedder: HashingEmbedder, library: Library):
    entry = add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    assert found(ask(library, "notes", "fox")) == (["red fox"], ["red fox"])
    with writing(catalog, entry) as connection:
        source = put(connection, "b.md", "blue fox", embedder=embedder)
        assert [sorted(side) for side in found(ask(library, "notes", "fox"))] == [["blue fox", "red fox"]] * 2
        put(connection, "b.md", "green fox", embedder=embedder)
        assert [sorted(side) for side in found(ask(library, "notes", "fox"))] == [["green fox", "red fox"]] * 2
        remove_sources(connection, [source])
        assert found(ask(library, "notes", "fox")) == (["red fox"], ["red fox"])


def test_a_running_process_sees_databases_come_and_go_and_change_their_names(
    catalog: Catalog, embedder: HashingEmbedder, library: Library
):
    library.start()
    assert (registered(library), loaded(library)) == ([], [])
    add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    assert (registered(library), loaded(library)) == (["notes"], ["notes"])
    before = asyncio.run(library.open(EVERYBODY, "notes"))
    catalog.rename("notes", "journal")
    assert found(ask(library, "journal", "fox")) == (["red fox"], ["red fox"])
    assert asyncio.run(library.open(EVERYBODY, "journal")) is before
    with pytest.raises(UnknownDatabase, match='"notes" not exist; available: "journal"'):
        ask(library, "notes", "fox")
    catalog.remove("journal")
    with pytest.raises(UnknownDatabase, match="no database is available"):
        ask(library, "journal", "fox")
    add(catalog, "journal", {"a.md": ["blue fox"]}, embedder)
    assert found(ask(library, "journal", "fox")) == (["blue fox"], ["blue fox"])


def test_within_the_interval_a_search_answers_from_what_it_has(catalog: Catalog, embedder: HashingEmbedder):
    library = Library(catalog, lambda: embedder, refresh_seconds=3600)
    entry = add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    assert found(ask(library, "notes", "fox")) == (["red fox"], ["red fox"])
    with writing(catalog, entry) as connection:
        put(connection, "b.md", "blue fox", embedder=embedder)
    by_word, by_meaning = found(ask(library, "notes", "fox"))
    assert (sorted(by_word), by_meaning) == (["blue fox", "red fox"], ["red fox"])
    library.close()


def test_a_name_is_found_however_its_accents_are_typed(catalog: Catalog, library: Library):
    add(catalog, "café", {"a.md": ["red fox"]})
    assert found(ask(library, unicodedata.normalize("NFD", "café"), "fox", "keyword"))[0] == ["red fox"]


def test_start_loads_everything_and_waits_as_long_as_it_may(
    catalog: Catalog, embedder: HashingEmbedder, library: Library
):
    for name in ("a", "b", "c"):
        add(catalog, name, {"a.md": ["red fox"]}, embedder)
    library.start(within=60)
    assert library.embedder().done()
    for name in ("a", "b", "c"):
        base = asyncio.run(library.open(EVERYBODY, name))
        assert base.vectors is not None
        assert base.vectors.matrix is not None
        assert len(base.vectors.matrix) == 1


def test_without_an_embedder_no_vectors_are_loaded(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    library = make_library()
    library.embedder().result(60)
    library.start(within=60)
    assert asyncio.run(library.open(EVERYBODY, "notes")).vectors is None


def test_the_embedder_is_loaded_once(catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary):
    add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    calls: list[int] = []

    def load() -> Embedder:
        calls.append(1)
        return embedder

    library = make_library(load)
    library.start(within=60)

    async def many() -> None:
        await asyncio.gather(*(search(library, EVERYBODY, "notes", "fox") for _ in range(20)))

    asyncio.run(many())
    assert calls == [1]


TENANTS = {"a": Session(tenant_id="a"), "b": Session(tenant_id="b"), "nobody": EVERYBODY}


@pytest.mark.parametrize(
    ("session", "visible"), [("a", ["of-a", "shared"]), ("b", ["of-b", "shared"]), ("nobody", ["shared"])]
)
def test_a_session_sees_the_databases_of_nobody_and_of_its_tenant(
    catalog: Catalog, library: Library, session: str, visible: list[str]
):
    catalog.add("of-a", tenant="a")
    catalog.add("of-b", tenant="b")
    catalog.add("shared")
    assert registered(library, TENANTS[session]) == visible
    assert loaded(library, TENANTS[session]) == visible
    for name in ("of-a", "of-b", "shared"):
        if name in visible:
            ask(library, name, "fox", "keyword", TENANTS[session])
        else:
            with pytest.raises(UnknownDatabase):
                ask(library, name, "fox", "keyword", TENANTS[session])


def test_a_database_of_another_tenant_reads_exactly_like_one_that_does_not_exist(catalog: Catalog, library: Library):
    catalog.add("secret", tenant="a")
    catalog.add("shared")
    texts: list[str] = []
    for name in ("secret", "absent"):
        with pytest.raises(UnknownDatabase) as caught:
            ask(library, name, "fox", session=TENANTS["b"])
        texts.append(str(caught.value).replace(name, "X"))
    assert texts[0] == texts[1]
    assert loaded(library, TENANTS["b"]) == ["shared"]


def test_a_session_limited_to_some_databases_sees_no_other(catalog: Catalog, library: Library):
    catalog.add("notes")
    catalog.add("other")
    session = Session(databases=frozenset({"notes"}))
    assert registered(library, session) == ["notes"]
    with pytest.raises(UnknownDatabase, match='available: "notes"'):
        ask(library, "other", "fox", session=session)


def test_a_file_of_another_owner_than_the_catalog_says_is_not_served(catalog: Catalog, library: Library):
    of_a, of_b = catalog.add("of-a", tenant="a"), catalog.add("of-b", tenant="b")
    shutil.copy(catalog.path(of_a), catalog.path(of_b))
    with pytest.raises(Unavailable, match=r'database "of-b" unavailable: .* another owner'):
        ask(library, "of-b", "fox", session=TENANTS["b"])
    assert loaded(library, TENANTS["b"]) == []


def missing(path: Path) -> None:
    path.unlink()


def junk(path: Path) -> None:
    path.write_bytes(b"junk " * 1000)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6000])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.unlink()
    raw = sqlite3.connect(path)
    raw.execute("create table migrations (id integer)")
    raw.commit()
    raw.close()


def newer(path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("insert into kura_migrations values (99, 'later', '')")
    raw.commit()
    raw.close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (missing, "does not exist"),
        (junk, "not a SQLite database"),
        (half, "damaged"),
        (folder, "folder"),
        (empty, "never finished"),
        (foreign, "not one of Kura's"),
        (newer, "newer Kura"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_one_broken_database_does_not_take_the_others_with_it(
    catalog: Catalog, embedder: HashingEmbedder, library: Library, harm: object, reason: str, tmp_path: Path
):
    assert callable(harm)
    add(catalog, "good", {"a.md": ["red fox"]}, embedder)
    broken = catalog.add("broken")
    for suffix in ("-wal", "-shm"):
        catalog.path(broken).with_name(catalog.path(broken).name + suffix).unlink(missing_ok=True)
    harm(catalog.path(broken))
    library.start(within=60)
    assert registered(library) == ["broken", "good"]
    assert loaded(library) == ["good"]
    with pytest.raises(Unavailable, match=f'database "broken" unavailable: .*{reason}') as caught:
        ask(library, "broken", "fox")
    assert str(tmp_path) not in str(caught.value)
    assert found(ask(library, "good", "fox")) == (["red fox"], ["red fox"])


def test_a_database_that_is_repaired_is_served_without_a_restart(catalog: Catalog, library: Library):
    entry = add(catalog, "notes", {"a.md": ["red fox"]})
    aside = catalog.path(entry).rename(catalog.data_dir / "aside.db")
    with pytest.raises(Unavailable):
        ask(library, "notes", "fox", "keyword")
    aside.rename(catalog.path(entry))
    assert found(ask(library, "notes", "fox", "keyword"))[0] == ["red fox"]


def test_a_copy_put_back_in_place_is_what_is_served(catalog: Catalog, embedder: HashingEmbedder, library: Library):
    entry = add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    copy = catalog.data_dir / "copy.db"
    shutil.copy(catalog.path(entry), copy)
    with writing(catalog, entry) as connection:
        put(connection, "a.md", "blue fox", embedder=embedder)
    assert found(ask(library, "notes", "fox")) == (["blue fox"], ["blue fox"])
    for suffix in ("-wal", "-shm"):
        catalog.path(entry).with_name(catalog.path(entry).name + suffix).unlink(missing_ok=True)
    copy.replace(catalog.path(entry))
    assert found(ask(library, "notes", "fox")) == (["red fox"], ["red fox"])


def test_a_broken_catalog_is_an_error_that_says_so(catalog: Catalog, library: Library):
    catalog.data_dir.mkdir()
    catalog.file.write_bytes(b"junk " * 1000)
    with pytest.raises(Damaged, match="catalog of databases"):
        registered(library)


def test_a_load_that_was_asked_for_at_once_sees_what_was_committed_before(
    catalog: Catalog, embedder: HashingEmbedder, library: Library
):
    entry = add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    base = asyncio.run(library.open(EVERYBODY, "notes"))
    for n in range(20):
        under_way = base.catch_up()
        with writing(catalog, entry) as connection:
            put(connection, "b.md", f"fox {n}", embedder=embedder)
            version = connection.one("select version from state")[0]
        assert base.catch_up(at_once=True).result(60).state.version == version
        under_way.result(60)
        assert base.vectors is not None
        assert base.vectors.state.version == version


def test_many_loads_at_once_leave_the_newest(catalog: Catalog, embedder: HashingEmbedder, library: Library):
    entry = add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    base = asyncio.run(library.open(EVERYBODY, "notes"))
    threads = [threading.Thread(target=base.load) for _ in range(8)]
    with writing(catalog, entry) as connection:
        for n, thread in enumerate(threads):
            put(connection, f"{n}.md", f"fox {n}", embedder=embedder)
            thread.start()
        for thread in threads:
            thread.join()
        vectors = base.load()
        assert vectors.matrix is not None
        assert len(vectors.matrix) == 9


def test_a_closed_library_has_let_go_of_its_files(catalog: Catalog, embedder: HashingEmbedder):
    add(catalog, "notes", {"a.md": ["red fox"]}, embedder)
    before = {thread.name for thread in threading.enumerate()}
    library = Library(catalog, lambda: embedder)
    library.start(within=60)
    ask(library, "notes", "fox")
    library.close()
    library.close()
    assert {thread.name for thread in threading.enumerate()} <= before
    with pytest.raises((RuntimeError, CancelledError)):
        ask(library, "notes", "fox")


def test_a_broken_database_is_logged_by_its_name_and_without_its_path(
    catalog: Catalog, library: Library, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    junk(catalog.path(catalog.add("broken")))
    with caplog.at_level(logging.WARNING):
        library.start(within=60)
    assert 'database "broken" unavailable' in caplog.text
    assert str(tmp_path) not in caplog.text


def test_a_database_whose_table_was_dropped_is_unavailable_and_the_others_are_not(catalog: Catalog):
    broken = catalog.add("broken")
    catalog.add("whole")
    connection = open_for_writing(catalog.path(broken))
    connection.run("drop table segments")
    connection.close()
    library = Library(catalog, lambda: None)
    try:
        library.start(within=30.0)
        assert loaded(library) == ["whole"]
        with pytest.raises(Unavailable, match='"broken" unavailable: the database lacks its table segments'):
            ask(library, "broken", "anything")
    finally:
        library.close()


def test_a_database_whose_file_is_gone_is_no_longer_among_the_loaded(catalog: Catalog):
    entry = catalog.add("notes")
    library = Library(catalog, lambda: None)
    try:
        assert loaded(library) == ["notes"]
        catalog.path(entry).unlink()
        assert loaded(library) == []
    finally:
        library.close()
