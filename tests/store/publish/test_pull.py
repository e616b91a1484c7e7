"""What is published comes back into a local database, which then is as good as the one that it was indexed in."""

from collections.abc import Callable, Sequence

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import Conflict, RemoteError, StoreError, WrongSchema
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection, Statement
from kura.store.publish.descent import changed_since
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.store.segments import load, seal
from kura.store.sources import remove_sources, roots, sources, state
from tests.store.publish.publishing import Counted, index, listed, publish, require_alike, text_columns, texts
from tests.store.writing import put, reading, writing


def fetch(catalog: Catalog, entry: Entry, remote: Connection) -> None:
    with writing(catalog, entry) as local:
        pull(remote, local, "http://there", lambda _done, _all: None)


def names(count: int, first: int = 0) -> list[str]:
    return [f"{n}.md" for n in range(first, first + count)]


def test_a_pulled_database_answers_as_the_server_and_has_nothing_to_push(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(30), 45)
    with writing(catalog, first) as local:
        remove_sources(local, [2, 5])
        put(local, "late.md", *texts("late", 4))
    publish(catalog, first, remote)
    fetch(catalog, second, remote)
    require_alike(catalog, second, remote)
    assert publish(catalog, second, remote).how == "nothing"
    with reading(catalog, second) as local:
        assert local.rows("pragma foreign_key_check") == []
        assert not changed_since(local)


def test_a_reader_of_the_local_database_sees_what_was_pulled(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(3), 5)
    publish(catalog, first, remote)
    index(catalog, second, embedder, ["other.md"], 9)
    with reading(catalog, second) as local:
        known = load(local)
        fetch(catalog, second, remote)
        assert load(local, known).counts == load(remote).counts
    require_alike(catalog, second, remote)


def test_a_small_change_on_a_second_machine_is_pushed_as_one_batch(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(30), 45)
    publish(catalog, first, remote)
    known = require_alike(catalog, first, remote)
    fetch(catalog, second, remote)
    with writing(catalog, second) as local:
        put(local, "elsewhere.md", *texts("elsewhere", 20), embedder=embedder, root="/elsewhere")
        seal(local)
    assert publish(catalog, second, remote).how == "rows"
    require_alike(catalog, second, remote, known)
    with pytest.raises(Conflict, match="does not descend"):
        publish(catalog, first, remote)
    fetch(catalog, first, remote)
    require_alike(catalog, first, remote)


def test_ids_given_after_a_pull_are_above_all_that_were_ever_published(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(4), 5)
    with writing(catalog, first) as local:
        remove_sources(local, [3, 4])
    publish(catalog, first, remote)
    fetch(catalog, second, remote)
    with writing(catalog, second) as local:
        source = put(local, "new.md", *texts("new", 3), embedder=embedder)
        (chunk,) = local.one("select min(id) from chunks where source_id = ?", (source,))
        (vector,) = local.one("select min(vector_id) from chunks where source_id = ?", (source,))
    assert (source, chunk, vector) == (5, 21, 21)


def test_ids_that_a_local_database_gave_before_a_pull_are_not_given_again(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, ["a.md"], 5)
    publish(catalog, first, remote)
    index(catalog, second, embedder, names(4), 10)
    fetch(catalog, second, remote)
    with writing(catalog, second) as local:
        source = put(local, "new.md", *texts("new", 3), embedder=embedder)
        assert local.one("select min(id) from chunks where source_id = ?", (source,)) == (41,)


def test_no_path_of_a_machine_is_published(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    with writing(catalog, entry) as local:
        put(local, "a.md", *texts("a", 3), embedder=embedder, root="/home/me/private/docs")
    publish(catalog, entry, remote)
    with writing(catalog, entry) as local:
        put(local, "b.md", *texts("b", 3), embedder=embedder, root="/home/me/secret/papers")
    assert publish(catalog, entry, remote).how == "rows"
    found = text_columns(remote)
    assert "docs" in found
    assert "papers" in found
    assert not any(part in found for part in ("/home", "private", "secret", str(catalog.path(entry).parent)))


def test_a_folder_that_was_fetched_is_known_by_its_label_alone(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, ["a.md"], 5)
    publish(catalog, first, remote)
    fetch(catalog, second, remote)
    with reading(catalog, second) as local:
        assert [(root.label, root.path) for root in roots(local)] == [("files", "files")]


def test_a_pull_that_fails_leaves_the_local_database_as_it_was(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(30), 45)
    publish(catalog, first, remote)
    index(catalog, second, embedder, ["mine.md"], 9)
    with reading(catalog, second) as local:
        before, whole = state(local), listed(local)
    counted = Counted(remote)
    fetch(catalog, catalog.add("third"), counted)
    for number in range(1, counted.requests):
        with pytest.raises(RemoteError, match="gone"):
            fetch(catalog, second, Failing(remote, number))
        with reading(catalog, second) as local:
            assert (state(local), listed(local)) == (before, whole)


class Failing(Counted):
    """A server that is gone after some answers."""

    def __init__(self, connection: Connection, answers: int) -> None:
        super().__init__(connection)
        self.answers = answers

    def count(self, statements: Sequence[Statement]) -> None:
        super().count(statements)
        if self.requests > self.answers:
            raise RemoteError("the server is gone")


def test_a_pull_that_a_push_came_into_begins_again(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(5), 9)
    publish(catalog, first, remote)

    def push_another() -> None:
        index(catalog, first, embedder, ["1.md"], 9, edition=2)
        publish(catalog, first, remote)

    fetch(catalog, second, Interrupted(remote, [push_another]))
    require_alike(catalog, second, remote)


def test_a_pull_that_a_push_and_a_rollback_came_into_begins_again(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(5), 9)
    publish(catalog, first, remote)
    index(catalog, first, embedder, ["1.md"], 9, edition=2)

    def push_another() -> None:
        publish(catalog, first, remote)

    def take_back() -> None:
        rollback(remote)

    fetch(catalog, second, Interrupted(remote, [push_another, take_back]))
    require_alike(catalog, second, remote)
    with reading(catalog, second) as local:
        assert local.rows("pragma foreign_key_check") == []


def test_a_pull_gives_up_where_pushes_keep_coming(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    first, second = catalog.add("first"), catalog.add("second")
    index(catalog, first, embedder, names(5), 9)
    publish(catalog, first, remote)
    editions = iter(range(2, 100))

    def push_another() -> None:
        index(catalog, first, embedder, ["1.md"], 9, edition=next(editions))
        publish(catalog, first, remote)

    with pytest.raises(Conflict, match="pushes kept coming"):
        fetch(catalog, second, Interrupted(remote, [push_another] * 3))
    with reading(catalog, second) as local:
        assert sources(local, 1) == {}


class Interrupted(Counted):
    """A server where others do something each time that sources or passages are about to be fetched."""

    def __init__(self, connection: Connection, happenings: Sequence[Callable[[], None]]) -> None:
        super().__init__(connection)
        self.happenings = list(happenings)

    def count(self, statements: Sequence[Statement]) -> None:
        super().count(statements)
        for sql, _ in statements:
            if self.happenings and (" from sources where" in sql or " from chunks where" in sql):
                self.happenings.pop(0)()


def test_nothing_is_pulled_where_nothing_is_published(catalog: Catalog, remote: Connection):
    with pytest.raises(StoreError, match="nothing is published"):
        fetch(catalog, catalog.add("notes"), remote)


def test_another_schema_is_not_taken_over(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, ["a.md"], 5)
    publish(catalog, entry, remote)
    remote.run("delete from kura_migrations where version > 1")
    with pytest.raises(WrongSchema, match="published with schema 1"):
        fetch(catalog, catalog.add("second"), remote)


def test_after_a_pull_a_database_descends_from_that_push_alone(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    first, other = catalog.add("first"), catalog.add("other")
    index(catalog, first, embedder, names(3), 5)
    publish(catalog, first, remote)
    index(catalog, other, embedder, names(3, 10), 5)
    publish(catalog, other, remote, force=True)
    fetch(catalog, first, remote)
    rollback(remote)  # to the push that `first` made, of which it has nothing any more
    with pytest.raises(Conflict, match="does not descend"):
        publish(catalog, first, remote)
    publish(catalog, first, remote, force=True)
    require_alike(catalog, first, remote)


def test_what_a_failed_push_left_counts_as_not_published(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, ["a.md"], 5)

    def fail(_statements: object) -> None:
        raise RemoteError("the server is gone")

    with pytest.raises(RemoteError, match="gone"):
        publish(catalog, entry, Counted(remote, before=fail))
    with reading(catalog, entry) as local:
        assert changed_since(local)
    publish(catalog, entry, remote)
    with reading(catalog, entry) as local:
        assert not changed_since(local)
