"""After a push, of whatever kind, a server answers as the local database does."""

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.publish import plan as planning
from kura.store.publish.push import rollback
from kura.store.segments import load, seal
from kura.store.sources import attach, clear_vectors, pending, remove_root, remove_sources, roots, set_embedder, sources
from tests.store.publish.publishing import Counted, index, publish, require_alike, texts
from tests.store.writing import embedded, put, reading, writing


def names(count: int, first: int = 0) -> list[str]:
    return [f"{n}.md" for n in range(first, first + count)]


def test_a_first_push_answers_as_the_local_database(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    assert publish(catalog, entry, remote).how == "tables"
    require_alike(catalog, entry, remote)


def test_an_empty_database_can_be_published_and_filled_later(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    assert publish(catalog, entry, remote).how == "tables"
    known = require_alike(catalog, entry, remote)
    index(catalog, entry, embedder, ["a.md"], 3)
    publish(catalog, entry, remote)
    require_alike(catalog, entry, remote, known)


def test_what_has_not_changed_is_not_pushed_again(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(3), 5)
    publish(catalog, entry, remote)
    assert publish(catalog, entry, remote).how == "nothing"


def test_a_small_change_is_one_batch_that_readers_follow(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    publish(catalog, entry, remote)
    known = require_alike(catalog, entry, remote)
    index(catalog, entry, embedder, ["3.md", "new.md"], 20, edition=2)
    assert publish(catalog, entry, remote).how == "rows"
    known = require_alike(catalog, entry, remote, known)
    assert load(remote, known) is known


def test_vectors_that_came_one_by_one_stay_the_same_once_they_are_in_a_segment(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(20), 45)  # 900 vectors, which fill no segment
    publish(catalog, entry, remote)
    known = require_alike(catalog, entry, remote)
    index(catalog, entry, embedder, names(5, 20), 45)
    planned = publish(catalog, entry, remote)
    assert planned.how == "rows"
    assert len(planned.changes["segments"].added) == 1
    require_alike(catalog, entry, remote, known)
    assert remote.one("select count(*) from chunk_vectors where embedding = x''") == (1024,)


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_what_is_removed_is_gone_there_too(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    publish(catalog, entry, remote)
    known = require_alike(catalog, entry, remote)
    with writing(catalog, entry) as local:
        remove_sources(local, [source.id for source in sources(local, 1).values()][3:9])
        seal(local)
    assert publish(catalog, entry, remote).how == ("rows" if rows else "tables")
    require_alike(catalog, entry, remote, known)


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_a_source_that_became_empty_is_known_to_be_empty_there(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(3), 4)
    publish(catalog, entry, remote)
    with writing(catalog, entry) as local:
        put(local, "1.md", embedder=embedder)
    publish(catalog, entry, remote)
    require_alike(catalog, entry, remote)


def test_a_folder_that_is_forgotten_is_gone_there_too(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    with writing(catalog, entry) as local:
        for root in ("/one/files", "/two/files", "/other"):
            put(local, "a.md", *texts(root, 5), embedder=embedder, root=root)
    publish(catalog, entry, remote)
    with writing(catalog, entry) as local:
        remove_root(local, roots(local)[1].id)
    assert publish(catalog, entry, remote).how == "rows"
    require_alike(catalog, entry, remote)
    assert remote.rows("select label from roots order by id") == [("files",), ("other",)]


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_passages_that_waited_for_their_vectors_get_them(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(3), 5)
    with writing(catalog, entry) as local:
        put(local, "late.md", *texts("late", 9))
        put(local, "later.md", *texts("late", 9))
    publish(catalog, entry, remote)
    known = require_alike(catalog, entry, remote)
    assert known.counts.pending == 18
    with writing(catalog, entry) as local:
        attach(local, embedded(embedder, [text for _, text in pending(local, 5)]))
    publish(catalog, entry, remote)
    assert require_alike(catalog, entry, remote, known).counts.pending == 8


def test_another_embedder_replaces_every_vector_and_sends_no_passage_again(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    counted = Counted(remote)
    publish(catalog, entry, counted)
    first, counted.sent = counted.sent, 0
    known = require_alike(catalog, entry, remote)
    other = HashingEmbedder(32)
    with writing(catalog, entry) as local:
        clear_vectors(local)
        set_embedder(local, "other", other.dimension)
        while waiting := pending(local, 500):
            attach(local, embedded(other, [text for _, text in waiting]))
        seal(local)
    assert publish(catalog, entry, counted, upgrade=True).how == "tables"
    require_alike(catalog, entry, remote, known)
    assert counted.sent < first / 2


def test_vectors_are_sent_unpacked_where_they_are_wanted_and_then_always(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    publish(catalog, entry, remote)
    assert publish(catalog, entry, remote, all_vectors=True).how == "tables"
    known = require_alike(catalog, entry, remote)
    assert publish(catalog, entry, remote).how == "nothing"
    index(catalog, entry, embedder, names(24, 30), 45)
    assert publish(catalog, entry, remote).all_vectors
    require_alike(catalog, entry, remote, known)
    with reading(catalog, entry) as local:
        everything = "select id, text_hash, embedding from chunk_vectors order by id"
        assert remote.rows(everything) == local.rows(everything)


def test_a_small_change_sends_a_small_part_of_what_the_first_push_sent(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(50), 40)
    counted = Counted(remote)
    publish(catalog, entry, counted)
    first, counted.sent, counted.requests = counted.sent, 0, 0
    index(catalog, entry, embedder, ["7.md"], 40, edition=2)
    publish(catalog, entry, counted)
    assert counted.sent < first / 20
    assert counted.requests < 20
    require_alike(catalog, entry, remote)


def test_a_large_change_sends_no_passage_that_is_there(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", 10)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(50), 40)
    counted = Counted(remote)
    publish(catalog, entry, counted)
    first, counted.sent = counted.sent, 0
    known = require_alike(catalog, entry, remote)
    index(catalog, entry, embedder, ["7.md"], 40, edition=2)
    assert publish(catalog, entry, counted).how == "tables"
    assert counted.sent < first / 10
    require_alike(catalog, entry, remote, known)


def test_a_rollback_brings_the_push_before_back_and_the_next_push_goes_on(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, names(30), 45)
    publish(catalog, entry, remote)
    known = require_alike(catalog, entry, remote)
    index(catalog, entry, embedder, ["3.md"], 20, edition=2)
    publish(catalog, entry, remote)
    rollback(remote)
    assert publish(catalog, entry, remote).how == "rows"
    require_alike(catalog, entry, remote, known)
