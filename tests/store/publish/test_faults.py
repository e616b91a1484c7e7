"""Answers that are lost, servers that others use too, and pushes that must be refused."""

from collections.abc import Sequence

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import EmbedderMismatch, RemoteError, StoreError, TokenRefused, Unreachable, WrongSchema
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection, Statement
from kura.store.publish import plan as planning
from kura.store.publish.published import remove
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.store.sources import clear_vectors, set_embedder
from local.sqld import Key, libsql_server
from tests.store.publish.publishing import Counted, connected, index, listed, planned, publish, require_alike
from tests.store.writing import put, reading, writing


@pytest.fixture
def entry(catalog: Catalog, embedder: HashingEmbedder, remote: Connection) -> Entry:
    """A database that is published and has something new since."""
    entry = catalog.add("notes")
    index(catalog, entry, embedder, [f"{n}.md" for n in range(30)], 30)
    publish(catalog, entry, remote)
    index(catalog, entry, embedder, ["1.md", "new.md"], 12, edition=2)
    return entry


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
def test_a_push_whose_last_answer_is_lost_is_done(
    catalog: Catalog, remote: Connection, entry: Entry, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)

    def lose(statements: Sequence[Statement]) -> None:
        if any("into publication " in sql for sql, _ in statements):
            raise Unreachable("the answer was lost")

    assert publish(catalog, entry, Counted(remote, after=lose)).how == ("rows" if rows else "tables")
    require_alike(catalog, entry, remote)
    assert publish(catalog, entry, remote).how == "nothing"


@pytest.mark.parametrize("rows", [0, 2_000], ids=["tables", "rows"])
@pytest.mark.parametrize("lost", [False, True], ids=["request", "answer"])
def test_a_push_that_is_cut_anywhere_goes_on_with_the_next(
    catalog: Catalog, remote: Connection, entry: Entry, monkeypatch: pytest.MonkeyPatch, rows: int, *, lost: bool
):
    monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
    monkeypatch.setattr("kura.store.publish.difference.MOST_ROWS", 100)
    monkeypatch.setattr("kura.store.publish.staging.MOST_ROWS", 100)
    before, cuts = listed(remote), 0
    while True:
        cut = Cut(remote, cuts + 3, answer=lost)
        try:
            publish(catalog, entry, cut)
            break
        except Unreachable:
            cuts += 1
        assert listed(remote) == before
    assert cuts >= (0 if rows else 3)
    require_alike(catalog, entry, remote)


class Cut(Counted):
    """A connection that is cut at the nth batch, before or after the server has got it; then at all of them."""

    def __init__(self, connection: Connection, at: int, *, answer: bool) -> None:
        super().__init__(connection, before=self._ask, after=self._answer)
        self.at, self.answer, self.batches = at, answer, 0

    def _ask(self, _statements: object) -> None:
        self.batches += 1
        if self.batches == self.at and not self.answer:
            raise Unreachable("cut")

    def _answer(self, _statements: object) -> None:
        if self.batches == self.at:
            raise Unreachable("cut")


def test_another_embedder_is_refused_unless_the_servers_are_upgraded(
    catalog: Catalog, remote: Connection, entry: Entry
):
    before = listed(remote)
    with writing(catalog, entry) as local:
        clear_vectors(local)
        set_embedder(local, "another", 32)
    with pytest.raises(EmbedderMismatch, match=r"hashing.*64 dimensions.*another.*--upgrade"):
        publish(catalog, entry, remote)
    assert listed(remote) == before
    publish(catalog, entry, remote, upgrade=True)
    require_alike(catalog, entry, remote)


def test_another_tokeniser_is_refused_unless_the_servers_are_upgraded(
    catalog: Catalog, remote: Connection, entry: Entry
):
    remote.run("update state set tokenizer = tokenizer - 1")
    before = listed(remote)
    with pytest.raises(WrongSchema, match=r"tokeniser.*--upgrade"):
        publish(catalog, entry, remote)
    assert listed(remote) == before
    assert publish(catalog, entry, remote, upgrade=True).how == "tables"
    require_alike(catalog, entry, remote)


def test_another_schema_is_refused_unless_the_servers_are_upgraded(catalog: Catalog, remote: Connection, entry: Entry):
    remote.run("delete from kura_migrations where version > 1")
    before = listed(remote)
    with pytest.raises(WrongSchema, match=r"published with schema 1.*--upgrade"):
        publish(catalog, entry, remote)
    assert listed(remote) == before
    assert publish(catalog, entry, remote, upgrade=True).how == "tables"
    require_alike(catalog, entry, remote)
    assert publish(catalog, entry, remote).how == "nothing"


def test_a_local_database_with_old_keywords_is_not_published(catalog: Catalog, remote: Connection, entry: Entry):
    with writing(catalog, entry) as local:
        local.run("update state set tokenizer = tokenizer - 1")
    with pytest.raises(WrongSchema, match="run `kura index` before publishing"):
        publish(catalog, entry, remote, upgrade=True)


def test_what_a_newer_kura_published_is_left_alone(catalog: Catalog, remote: Connection, entry: Entry):
    remote.run("insert into kura_migrations (version, name, applied_at) values (999, 'later', '')")
    before = listed(remote)
    for attempt in (
        lambda: publish(catalog, entry, remote, upgrade=True, force=True),
        lambda: rollback(remote),
        lambda: remove(remote),
    ):
        with pytest.raises(WrongSchema, match="published by a newer Kura"):
            attempt()
    assert listed(remote) == before


@pytest.mark.parametrize(
    "statement",
    [
        "create table sources (url text)",
        "create table next_chunks (n integer)",
        "create table publication (title text)",
        "create table staging (host text)",
        "create view chunks as select 1 as id",
    ],
)
def test_tables_of_others_that_are_in_the_way_are_left_alone(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, statement: str
):
    remote.run(statement)
    entry = catalog.add("notes")
    index(catalog, entry, embedder, ["a.md"], 3)
    before = remote.rows("select name, sql from sqlite_schema")
    with pytest.raises(WrongSchema, match="that no push of Kura's made; publish into another database"):
        publish(catalog, entry, remote, force=True, upgrade=True)
    with pytest.raises(StoreError):
        remove(remote)
    assert remote.rows("select name, sql from sqlite_schema") == before


def test_tables_of_others_beside_what_is_published_stay_as_they_are(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch
):
    others = ("touched", "users", "next_steps", "former_users", "publications")
    for table in others:
        remote.run(f"create table {table} (name text)")
        remote.run(f"insert into {table} values ('mine')")
    entry = catalog.add("notes")
    for rows in (2_000, 0, 2_000):
        monkeypatch.setattr(planning, "DIRECT_ROWS", rows)
        index(catalog, entry, embedder, [f"{rows}.md"], 20)
        publish(catalog, entry, remote)
    for _ in range(2):
        rollback(remote)
        publish(catalog, entry, remote)
    remove(remote)
    assert [remote.rows(f"select name from {table}") for table in others] == [[("mine",)]] * len(others)
    assert sorted(remote.rows("select name from sqlite_schema")) == sorted((table,) for table in others)


def test_what_an_interrupted_first_push_left_can_be_removed(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection
):
    entry = catalog.add("notes")
    index(catalog, entry, embedder, ["a.md"], 9)
    with pytest.raises(Unreachable):
        publish(catalog, entry, Cut(remote, 4, answer=False))
    remove(remote)
    assert remote.rows("select name from sqlite_schema") == []
    with pytest.raises(StoreError, match="nothing is published"):
        remove(remote)
    publish(catalog, entry, remote)
    require_alike(catalog, entry, remote)


def test_a_token_to_read_with_changes_nothing_and_serves_for_plan_and_pull(
    catalog: Catalog, embedder: HashingEmbedder, tmp_path_factory: pytest.TempPathFactory
):
    key = Key()
    entry, second = catalog.add("notes"), catalog.add("second")
    with libsql_server(tmp_path_factory.mktemp("guarded"), jwt_key=key.public) as server:
        with connected(server.url, key.token()) as remote:
            index(catalog, entry, embedder, ["a.md"], 9)
            publish(catalog, entry, remote)
            index(catalog, entry, embedder, ["b.md"], 9)
            publish(catalog, entry, remote)
            before = listed(remote)
        index(catalog, entry, embedder, ["c.md"], 9)
        with connected(server.url, key.token(read_only=True)) as remote:
            assert planned(catalog, entry, remote).how == "rows"
            for attempt in (
                lambda: publish(catalog, entry, remote),
                lambda: publish(catalog, entry, remote, all_vectors=True),
                lambda: rollback(remote),
                lambda: remove(remote),
            ):
                with pytest.raises(TokenRefused):
                    attempt()
            assert listed(remote) == before
            with writing(catalog, second) as local:
                pull(remote, local, server.url, lambda _done, _all: None)
            require_alike(catalog, second, remote)
        for token in (None, "nonsense", Key().token()):
            with connected(server.url, token) as remote, pytest.raises(TokenRefused):
                planned(catalog, entry, remote)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [4_096, 6_000])
def test_large_vectors_and_passages_travel_both_ways(catalog: Catalog, remote: Connection, dimension: int):
    embedder = HashingEmbedder(dimension)
    entry, second = catalog.add("notes"), catalog.add("second")
    index(catalog, entry, embedder, [f"{n}.md" for n in range(11)], 100)
    with writing(catalog, entry) as local:
        for number in range(60):
            put_large(local, number)
    publish(catalog, entry, remote)
    require_alike(catalog, entry, remote)
    assert remote.one("select count(*) from segments") == (1 if dimension == 4_096 else 0,)
    with writing(catalog, second) as local:
        pull(remote, local, "http://there", lambda _done, _all: None)
    require_alike(catalog, second, remote)


def put_large(local: Connection, number: int) -> None:

    put(local, f"large-{number}.md", f"{number} tide " + "water level " * 17_000)


def test_a_server_that_says_no_is_named_as_such(catalog: Catalog, entry: Entry, remote: Connection):
    remote.run("drop table chunks")
    with pytest.raises(RemoteError):
        publish(catalog, entry, remote)
    with reading(catalog, entry) as local:
        assert local.rows("pragma integrity_check") == [("ok",)]
