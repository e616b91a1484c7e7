"""One step back, after a push of either kind, and what comes after it."""

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import Conflict, StoreError
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.publish import plan as planning
from kura.store.publish.published import publication
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.store.segments import load
from kura.store.sources import attach, pending, remove_sources, sources
from tests.store.publish.publishing import index, listed, publish, require_alike, require_equal, texts
from tests.store.writing import embedded, put, writing


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_a_rollback_answers_exactly_as_before_the_push(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, rows: int
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, [f"{n}.md" for n in range(20)], 45)
    with writing(catalog, entry) as local:
        put(local, "late.md", *texts("late", 9))
    publish(catalog, entry, remote)
    before, known = listed(remote), load(remote)
    with writing(catalog, entry) as local:
        attach(local, embedded(embedder, [text for _, text in pending(local, 5)]))
        remove_sources(local, [source.id for source in sources(local, 1).values()][3:6])
        put(local, "0.md", embedder=embedder)
    index(catalog, entry, embedder, [f"new-{n}.md" for n in range(8)], 45)
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    assert publish(catalog, entry, remote).how == ("rows" if rows else "tables")
    between = require_alike(catalog, entry, remote, known)
    back = rollback(remote)
    assert listed(remote) == before
    require_equal(load(remote, between), load(remote))
    assert load(remote).state.version > between.state.version
    assert (back.parent, back.undo) == (None, None)
    assert publication(remote) == back


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_a_rollback_leaves_no_table_of_the_push_behind(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, ["a.md"], 5)
    publish(catalog, entry, remote)
    index(catalog, entry, embedder, ["b.md"], 5)
    publish(catalog, entry, remote)
    rollback(remote)
    assert remote.rows("select name from sqlite_schema where name like 'former%' or name like 'next%'") == []


def test_there_is_one_step_back_and_no_second(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    for name in ("a.md", "b.md", "c.md"):
        index(catalog, entry, embedder, [name], 5)
        publish(catalog, entry, remote)
    rollback(remote)
    before = listed(remote)
    with pytest.raises(Conflict, match="one step back"):
        rollback(remote)
    assert listed(remote) == before


def test_a_first_push_has_nothing_to_return_to(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    with pytest.raises(StoreError, match="nothing is published"):
        rollback(remote)
    index(catalog, entry, embedder, ["a.md"], 5)
    publish(catalog, entry, remote)
    with pytest.raises(Conflict, match="one step back"):
        rollback(remote)
    require_alike(catalog, entry, remote)


def test_ids_of_a_push_that_was_rolled_back_are_not_given_again(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, ["a.md"], 5)
    publish(catalog, first, remote)
    index(catalog, first, embedder, ["b.md"], 7)
    publish(catalog, first, remote)
    (highest,) = remote.one("select max(id) from chunks")
    rollback(remote)
    with writing(catalog, second) as local:
        pull(remote, local, "http://there", lambda _done, _all: None)
        put(local, "c.md", *texts("c", 3), embedder=embedder)
        assert local.one("select min(id) from chunks where content like 'c passage%'")[0] > highest


def test_a_rollback_of_another_embedder_brings_the_former_one_back(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, ["a.md"], 5)
    publish(catalog, first, remote)
    before = load(remote)
    index(catalog, second, HashingEmbedder(32), ["a.md"], 5)
    publish(catalog, second, remote, force=True, upgrade=True)
    known = require_alike(catalog, second, remote, before)
    rollback(remote)
    require_equal(load(remote, known), before)
    require_alike(catalog, first, remote)
    assert publish(catalog, first, remote).how == "nothing"
