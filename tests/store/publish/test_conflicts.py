"""Several who publish to one server: one wins, what is read is always one's whole push."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import Busy, Conflict, StoreError
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection, Statement
from kura.store.publish import plan as planning
from kura.store.publish.published import STAGING_SECONDS, remove
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.store.segments import load
from local.sqld import Server
from tests.store.publish.publishing import Counted, connected, index, listed, publish, require_alike
from tests.store.writing import writing


@pytest.fixture
def three(catalog: Catalog, embedder: HashingEmbedder, remote: Connection) -> list[Entry]:
    """Databases that all have what is published, and two of them something more, each something else."""
    entries = [catalog.add(name) for name in ("first", "second", "third")]
    index(catalog, entries[0], embedder, [f"{n}.md" for n in range(30)], 30)
    publish(catalog, entries[0], remote)
    for number, entry in enumerate(entries[1:]):
        with writing(catalog, entry) as local:
            pull(remote, local, "http://there", lambda _done, _all: None)
        index(catalog, entry, embedder, [f"{number}.md", "more.md"], 10 + number, edition=2 + number)
    return entries


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_of_two_pushes_at_once_one_wins_and_is_whole(
    catalog: Catalog, server: Server, three: list[Entry], monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    require_one_winner(catalog, server, three[1:])


def test_of_two_first_pushes_at_once_one_wins_and_is_whole(catalog: Catalog, embedder: HashingEmbedder, server: Server):
    entries = [catalog.add("first"), catalog.add("second")]
    for number, entry in enumerate(entries):
        index(catalog, entry, embedder, [f"{number}-{n}.md" for n in range(10)], 20 + number)
    require_one_winner(catalog, server, entries)


def require_one_winner(catalog: Catalog, server: Server, entries: Sequence[Entry]) -> None:
    # All have planned before anyone begins.
    barrier = threading.Barrier(len(entries))

    def attempt(entry: Entry) -> Entry | None:
        with connected(server.url) as remote:
            try:
                publish(catalog, entry, Counted(remote, before=Once(barrier.wait)))
            except (Conflict, Busy):
                return None
            return entry

    with ThreadPoolExecutor(len(entries)) as executor:
        won = [entry for entry in executor.map(attempt, entries) if entry is not None]
    assert len(won) == 1
    with connected(server.url) as remote:
        require_alike(catalog, won[0], remote)


class Once:
    """Does something before the first batch alone."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work: Callable[[], object] | None = work

    def __call__(self, _statements: Sequence[Statement]) -> None:
        work, self.work = self.work, None
        if work is not None:
            work()


def test_a_push_over_somebody_elses_is_refused_and_replaces_it_with_force(
    catalog: Catalog, remote: Connection, three: list[Entry]
):
    _, second, third = three
    publish(catalog, second, remote)
    known = require_alike(catalog, second, remote)
    before = listed(remote)
    with pytest.raises(Conflict, match="does not descend from; run `kura pull` first"):
        publish(catalog, third, remote)
    assert listed(remote) == before
    publish(catalog, third, remote, force=True)
    known = require_alike(catalog, third, remote, known)
    rollback(remote)
    assert listed(remote) == before
    require_alike(catalog, second, remote, known)
    assert publish(catalog, second, remote).how == "nothing"


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_a_push_that_another_came_before_is_refused_at_its_last_step(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch, rows: int
):
    _, second, third = three
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)

    def come_before(statements: Sequence[Statement]) -> None:
        if any("into publication " in sql for sql, _ in statements):
            monkeypatch.setattr(planning, "DIRECT_ROWS", 2_000)
            assert publish(catalog, third, remote).how == "rows"

    with pytest.raises(Conflict, match="another push was published meanwhile"):
        publish(catalog, second, Counted(remote, before=come_before))
    require_alike(catalog, third, remote)


def test_of_two_rollbacks_at_once_one_takes_place(
    catalog: Catalog, remote: Connection, three: list[Entry], server: Server
):
    publish(catalog, three[1], remote)
    barrier = threading.Barrier(2)

    def attempt(_number: int) -> bool:
        with connected(server.url) as mine:
            try:
                rollback(Counted(mine, before=Once(barrier.wait)))
            except Conflict:
                return False
            return True

    with ThreadPoolExecutor(2) as executor:
        assert sorted(executor.map(attempt, range(2))) == [False, True]
    require_alike(catalog, three[0], remote)


def test_a_dead_push_is_waited_for_and_then_taken_over_and_its_late_requests_do_no_harm(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch
):
    _, second, third = three
    monkeypatch.setattr(planning, "DIRECT_ROWS", 0)
    dying = Dying(remote)
    with pytest.raises(Dead):
        publish(catalog, second, dying)
    with pytest.raises(Busy, match=r"another push is being staged there, last seen \d+ seconds ago"):
        publish(catalog, third, remote)
    remote.run("update staging set seen = seen - ?", (STAGING_SECONDS,))
    publish(catalog, third, remote)
    before = listed(remote)
    with pytest.raises(StoreError):
        remote.atomically(dying.last)
    assert listed(remote) == before
    require_alike(catalog, third, remote)


def test_a_push_that_is_taken_over_while_it_pauses_is_refused(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch
):
    _, second, third = three
    monkeypatch.setattr(planning, "DIRECT_ROWS", 0)

    def take_over(statements: Sequence[Statement]) -> None:
        if any("into next_chunks " in sql for sql, _ in statements) and pauses:
            pauses.clear()
            remote.run("update staging set seen = seen - ?", (STAGING_SECONDS,))
            with pytest.raises(Dead):
                publish(catalog, third, Dying(remote))

    pauses = [1]
    with pytest.raises(Conflict, match="took over while this one had paused"):
        publish(catalog, second, Counted(remote, before=take_over))
    require_alike(catalog, three[0], remote)
    publish(catalog, third, remote)
    require_alike(catalog, third, remote)


def test_a_push_that_is_taken_over_before_its_last_step_is_refused(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", 0)

    def take_over(statements: Sequence[Statement]) -> None:
        if any("into publication " in sql for sql, _ in statements):
            remote.run("update staging set owner = 'another'")

    with pytest.raises(Conflict, match="took over while this one had paused"):
        publish(catalog, three[1], Counted(remote, before=take_over))
    require_alike(catalog, three[0], remote)


def test_what_a_killed_run_of_the_same_database_sent_does_no_harm_when_it_comes_late(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", 0)
    dying = Dying(remote)
    with pytest.raises(Dead):
        publish(catalog, three[1], dying)

    def come_late(statements: Sequence[Statement]) -> None:
        if any("into next_chunks " in sql for sql, _ in statements) and dying.last:
            with pytest.raises(StoreError):
                remote.atomically(dying.last)
            dying.last = []

    publish(catalog, three[1], Counted(remote, before=come_late))
    require_alike(catalog, three[1], remote)


def test_a_push_that_died_goes_on_where_it_was(catalog: Catalog, embedder: HashingEmbedder, remote: Connection):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, [f"{n}.md" for n in range(50)], 40)
    dying, counted = Dying(remote, whole=2), Counted(remote)
    with pytest.raises(Dead):
        publish(catalog, entry, dying)
    publish(catalog, entry, counted)
    require_alike(catalog, entry, remote)
    assert dying.sent > 500_000
    remove(remote)
    again = Counted(remote)
    publish(catalog, entry, again)
    assert counted.sent < again.sent - dying.sent + 50_000


def test_a_push_that_wakes_up_as_it_is_about_to_be_taken_over_goes_on(
    catalog: Catalog, remote: Connection, three: list[Entry], monkeypatch: pytest.MonkeyPatch
):
    _, second, third = three
    monkeypatch.setattr(planning, "DIRECT_ROWS", 0)
    with pytest.raises(Dead):
        publish(catalog, second, Dying(remote))
    remote.run("update staging set seen = seen - ?", (STAGING_SECONDS,))

    def wake_up(statements: Sequence[Statement]) -> None:
        if any("update staging set owner" in sql for sql, _ in statements):
            remote.run("update staging set seen = unixepoch()")

    with pytest.raises(Busy, match="at the same moment"):
        publish(catalog, third, Counted(remote, before=wake_up))
    publish(catalog, second, remote)
    require_alike(catalog, second, remote)


class Dead(Exception):
    """What ends a push as a kill would: nothing is told to the server."""


class Dying(Counted):
    """A connection whose push dies as it is about to send passages, after so many batches of them that arrived whole.

    `last` is what it was about to send.
    """

    def __init__(self, connection: Connection, *, whole: int = 0) -> None:
        super().__init__(connection, before=self._die)
        self.last: Sequence[Statement] = []
        self.whole = whole

    def _die(self, statements: Sequence[Statement]) -> None:
        if any("into next_chunks " in sql for sql, _ in statements):
            self.whole -= 1
            if self.whole < 0:
                self.last = statements
                raise Dead


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_readers_see_whole_pushes_while_others_follow_each_other(
    catalog: Catalog,
    embedder: HashingEmbedder,
    server: Server,
    remote: Connection,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, [f"{n}.md" for n in range(30)], 30)
    publish(catalog, entry, remote)
    whole = {fingerprint(remote)}
    seen: set[tuple[object, ...]] = set()
    done = threading.Event()

    def read() -> int:
        times = 0
        with connected(server.url) as mine:
            known = None
            while not done.is_set():
                with mine.transaction(write=False):
                    seen.add(fingerprint(mine))
                    known = load(mine, known)
                    assert known.matrix is not None
                    assert (len(known.matrix), known.state.version) == (known.counts.vectors, fingerprint(mine)[0])
                times += 1
            mine.rows("select 1")  # so that the last transaction has ended there
        return times

    with ThreadPoolExecutor(2) as executor:
        readers = [executor.submit(read) for _ in range(2)]
        try:
            for edition in range(2, 9):
                index(catalog, entry, embedder, [f"{edition}.md", f"new-{edition}.md"], 15, edition=edition)
                assert publish(catalog, entry, remote).how == ("rows" if rows else "tables")
                whole.add(fingerprint(remote))
            rollback(remote)
            whole.add(fingerprint(remote))
        finally:
            done.set()
        assert all(reader.result() > 5 for reader in readers)
    assert len(seen) > 3
    assert seen <= whole


def fingerprint(remote: Connection) -> tuple[object, ...]:
    """Version, token and keyword scores, read in one round trip or inside one transaction."""
    scores = "select rowid, bm25(chunks_fts) from chunks_fts where chunks_fts match 'tide' order by rowid"
    version = "select (select version from state), (select token from publication), (select count(*) from chunks)"
    [about], found = remote.together([(version, ()), (scores, ())])
    return *about, tuple(found)
