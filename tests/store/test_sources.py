import json

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kura.embed.hashing import HashingEmbedder
from kura.errors import ArgumentError, EmbedderError, EmbedderMismatch, StoreError
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.segments import seal
from kura.store.sources import (
    add_root,
    attach,
    clear_vectors,
    find_root,
    pending,
    remove_root,
    remove_sources,
    replace_source,
    roots,
    set_embedder,
    set_tokenizer,
    sources,
    state,
    statistics,
    stored_hashes,
    text_hash,
    touch_source,
)
from kura.store.statements import matching
from kura.text.tokens import TOKENIZER_VERSION, match_expression
from kura.types import Chunk
from tests.store.writing import chunks_of, embedded, put, writing


def version(connection: Connection) -> int:
    return state(connection).version


def all_rows(connection: Connection) -> list[object]:
    tables = ("state", "roots", "sources", "chunks", "chunk_vectors", "segments", "removed_vectors")
    return [connection.rows(f"select * from {table}") for table in tables]


def require_sound(connection: Connection) -> None:
    connection.run("insert into chunks_fts (chunks_fts, rank) values ('integrity-check', 1)")
    assert connection.rows("pragma integrity_check") == [("ok",)]
    assert connection.rows("pragma foreign_key_check") == []


def found(connection: Connection, q: str) -> list[str]:
    expression = match_expression(q)
    assert expression is not None
    return [passage.content for passage, _ in matching(connection, expression, 10)[0]]


def test_an_edited_source_keeps_its_id_and_gets_new_chunks(connection: Connection):
    first = put(connection, "a.md", "the old words", "that stay")
    before = connection.rows("select id from chunks")
    assert put(connection, "a.md", "the new words", "that stay") == first
    after = connection.rows("select id from chunks")
    assert min(after) > max(before)
    assert found(connection, "new") == ["the new words"]
    assert found(connection, "old") == []
    require_sound(connection)


def test_the_heading_trail_comes_back_as_it_was_and_is_found(connection: Connection):
    heading = ("安装", 'A "quoted" title', "C:\\path")
    put(connection, "a.md", "content", heading=heading)
    ((passage, _),) = matching(connection, match_expression("安装") or "", 10)[0]
    assert passage.heading == heading
    assert passage.content == "content"


def test_lines_and_ordinals_come_back_as_they_were(connection: Connection):
    root = add_root(connection, "/files", "files")
    chunk = Chunk(7, "content", (), 3, 99)
    replace_source(connection, root.id, "a", content_hash="x", size=1, mtime_ns=1, chunks=[chunk], vectors={})
    ((passage, _),) = matching(connection, '"content"', 10)[0]
    assert (passage.ordinal, passage.first_line, passage.last_line) == (7, 3, 99)


def test_a_path_is_told_with_its_label_once_there_are_several_roots(connection: Connection):
    put(connection, "a.md", "one", root="/files/docs")
    assert [passage.source for passage, _ in matching(connection, '"one"', 10)[0]] == ["a.md"]
    put(connection, "a.md", "one", root="/other/docs")
    assert [passage.source for passage, _ in matching(connection, '"one"', 10)[0]] == ["docs/a.md", "docs-2/a.md"]


def test_registering_a_folder_again_gives_the_same_root(connection: Connection):
    first = add_root(connection, "/files", "files")
    before = version(connection)
    assert add_root(connection, "/files", "another label") == first
    assert (roots(connection), version(connection)) == ([first], before)


def test_a_root_is_found_by_label_or_path(connection: Connection):
    root = add_root(connection, "/some/files", "files")
    assert find_root(connection, "files") == find_root(connection, "/some/files") == root
    with pytest.raises(ArgumentError, match='registered: "files"'):
        find_root(connection, "none")


def test_removing_a_root_takes_its_sources_along(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "alpha", "shared", embedder=embedder, root="/one")
    put(connection, "b.md", "beta", "shared", embedder=embedder, root="/two")
    (first, second) = roots(connection)
    assert remove_root(connection, first.id) == 1
    assert (found(connection, "alpha"), found(connection, "shared")) == ([], ["shared"])
    assert roots(connection) == [second]
    assert statistics(connection).vectors == 2
    require_sound(connection)


def test_equal_texts_share_one_vector(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "same", "other", "same", embedder=embedder)
    put(connection, "b.md", "same", embedder=embedder)
    assert connection.one("select count(*), count(distinct vector_id) from chunks") == (4, 2)
    assert statistics(connection).vectors == 2


def test_a_vector_goes_with_the_last_text_that_has_it(connection: Connection, embedder: HashingEmbedder):
    first = put(connection, "a.md", "same", embedder=embedder)
    second = put(connection, "b.md", "same", embedder=embedder)
    (vector_id,) = connection.one("select id from chunk_vectors")
    remove_sources(connection, [first])
    assert connection.rows("select * from removed_vectors") == []
    remove_sources(connection, [second])
    assert connection.rows("select * from removed_vectors") == [(vector_id, version(connection))]
    assert statistics(connection).vectors == 0
    put(connection, "a.md", "same", embedder=embedder)
    assert connection.one("select id from chunk_vectors") > (vector_id,)


def test_an_edit_keeps_the_vectors_of_what_stays(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "stays", "goes", embedder=embedder)
    before = dict(connection.rows("select text_hash, id from chunk_vectors"))
    put(connection, "a.md", "comes", "stays", embedder=embedder)
    after = dict(connection.rows("select text_hash, id from chunk_vectors"))
    assert after[text_hash("stays")] == before[text_hash("stays")]
    assert set(after) == {text_hash("stays"), text_hash("comes")}
    assert connection.rows("select vector_id from removed_vectors") == [(before[text_hash("goes")],)]


def test_texts_without_vectors_wait_and_are_attached_later(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "one", "two", "one", heading=("Top",))
    assert statistics(connection).pending == 3
    assert statistics(connection).pending_since is not None
    waiting = pending(connection, 10)
    assert sorted(text for _, text in waiting) == ["Top\none", "Top\ntwo"]
    assert all(text_hash(text) == digest for digest, text in waiting)
    assert len(pending(connection, 1)) == 1
    set_embedder(connection, embedder.name, embedder.dimension)
    attach(connection, embedded(embedder, ["Top\none"]))
    assert (statistics(connection).pending, statistics(connection).vectors) == (1, 1)
    attach(connection, embedded(embedder, ["Top\ntwo", "gone meanwhile"]))
    assert (statistics(connection).pending, statistics(connection).vectors) == (0, 2)
    assert statistics(connection).pending_since is None
    assert stored_hashes(connection, [text_hash("Top\none"), text_hash("x")]) == {text_hash("Top\none")}


def test_a_text_whose_vector_is_stored_never_waits(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "same", embedder=embedder)
    put(connection, "b.md", "same")
    assert statistics(connection).pending == 0


@pytest.mark.parametrize(
    "bad",
    [np.zeros(64), np.full(64, np.nan), np.full(64, np.inf), np.ones(63), np.ones((1, 64)), np.empty(0)],
    ids=["zero", "nan", "inf", "short", "matrix", "empty"],
)
def test_a_bad_vector_is_refused_and_nothing_is_half_written(
    connection: Connection, embedder: HashingEmbedder, bad: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
):
    put(connection, "a.md", "one", "two", embedder=embedder)
    put(connection, "b.md", "three")
    root = roots(connection)[0]
    before = all_rows(connection)
    vectors = {**embedded(embedder, ["four"]), text_hash("five"): bad.astype(np.float32)}
    with pytest.raises(EmbedderError):
        replace_source(
            connection,
            root.id,
            "a.md",
            content_hash="y",
            size=1,
            mtime_ns=1,
            chunks=chunks_of(["four", "five"]),
            vectors=vectors,
        )
    with pytest.raises(EmbedderError):
        attach(connection, {text_hash("three"): bad.astype(np.float32)})
    assert all_rows(connection) == before
    require_sound(connection)


def test_a_source_that_cannot_be_stored_leaves_the_old_one(connection: Connection):
    put(connection, "a.md", "old")
    before = all_rows(connection)
    with pytest.raises(StoreError, match="lone surrogate"):
        put(connection, "a.md", "new", "half a \ud800 character")
    assert all_rows(connection) == before
    assert found(connection, "old") == ["old"]


def test_another_embedder_is_refused_while_there_are_vectors(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "one", embedder=embedder)
    before = all_rows(connection)
    for name, dimension in (("other", 64), (embedder.name, 32)):
        with pytest.raises(EmbedderMismatch, match="kura index NAME --rebuild"):
            set_embedder(connection, name, dimension)
    set_embedder(connection, embedder.name, embedder.dimension)
    assert all_rows(connection) == before


def test_an_embedder_whose_vectors_are_all_gone_gives_way_to_another(connection: Connection, embedder: HashingEmbedder):
    source = put(connection, "a.md", "one", embedder=embedder)
    seal(connection)
    remove_sources(connection, [source])
    set_embedder(connection, "other", 3)
    assert (state(connection).embedder, state(connection).dimension) == ("other", 3)
    assert connection.one("select count(*) from segments") == (0,)


def test_clearing_vectors_makes_every_text_wait_and_keeps_keyword_search(
    connection: Connection, embedder: HashingEmbedder
):
    put(connection, "a.md", "one", "two", embedder=embedder)
    seal(connection)
    generation = state(connection).generation
    clear_vectors(connection)
    assert (statistics(connection).pending, statistics(connection).vectors) == (2, 0)
    assert (state(connection).embedder, state(connection).generation) == (None, generation + 1)
    assert found(connection, "two") == ["two"]
    require_sound(connection)


def test_each_change_raises_the_version_by_one(connection: Connection, embedder: HashingEmbedder):
    seen = [version(connection)]

    def changed() -> int:
        seen.append(version(connection))
        return seen[-1] - seen[-2]

    root = add_root(connection, "/files", "files")
    assert changed() == 1
    first = put(connection, "a.md", "one", root="/files")
    assert changed() == 1
    second = put(connection, "b.md", "two", root="/files")
    assert changed() == 1
    put(connection, "a.md", "three", "four", root="/files")
    assert changed() == 1
    set_embedder(connection, embedder.name, embedder.dimension)
    assert changed() == 1
    attach(connection, embedded(embedder, ["two", "three"]))
    assert changed() == 1
    clear_vectors(connection)
    assert changed() == 1
    remove_sources(connection, [first, second])
    assert changed() == 1
    connection.run("update state set tokenizer = tokenizer - 1")
    set_tokenizer(connection)
    assert changed() == 1
    assert state(connection).tokenizer == TOKENIZER_VERSION
    remove_root(connection, root.id)
    assert changed() == 1


def test_what_changes_nothing_leaves_the_version(connection: Connection, embedder: HashingEmbedder):
    source = put(connection, "a.md", "one", embedder=embedder)
    seal(connection)
    before = version(connection)
    touch_source(connection, source, 5, 6)
    set_embedder(connection, embedder.name, embedder.dimension)
    set_tokenizer(connection)
    remove_sources(connection, [])
    remove_sources(connection, [4711])
    attach(connection, {})
    attach(connection, embedded(embedder, ["gone meanwhile"]))
    seal(connection)
    assert version(connection) == before
    known = sources(connection, roots(connection)[0].id)["a.md"]
    assert (known.size, known.mtime_ns) == (5, 6)


def test_an_empty_file_is_a_source_without_chunks(connection: Connection):
    put(connection, "empty.md")
    assert (statistics(connection).sources, statistics(connection).chunks) == (1, 0)


class Indexing(RuleBasedStateMachine):
    """Random changes against a model: which texts are where."""

    paths = st.sampled_from(["a.md", "b.md", "c/d.md"])
    texts = st.lists(st.sampled_from(["red fox", "blue fox", "知识库", "C++ code", "state-of-the-art"]), max_size=4)

    @initialize()
    def create(self) -> None:
        import tempfile
        from pathlib import Path

        self.folder = tempfile.TemporaryDirectory()
        self.catalog = Catalog(Path(self.folder.name))
        self.context = writing(self.catalog, self.catalog.add("notes"))
        self.connection = self.context.__enter__()
        self.embedder = HashingEmbedder(8)
        self.model: dict[str, list[str]] = {}

    @rule(path=paths, texts=texts, with_vectors=st.booleans())
    def put(self, path: str, texts: list[str], *, with_vectors: bool) -> None:
        put(self.connection, path, *texts, embedder=self.embedder if with_vectors else None)
        self.model[path] = texts

    @rule(path=paths)
    def remove(self, path: str) -> None:
        for root in roots(self.connection):
            known = sources(self.connection, root.id)
            remove_sources(self.connection, [known[path].id] if path in known else [])
        self.model.pop(path, None)

    @rule()
    def fill(self) -> None:
        set_embedder(self.connection, self.embedder.name, self.embedder.dimension)
        attach(self.connection, embedded(self.embedder, [text for _, text in pending(self.connection, 3)]))

    @rule()
    def pack(self) -> None:
        seal(self.connection)

    @rule()
    def clear(self) -> None:
        clear_vectors(self.connection)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        rows = self.connection.rows(
            "select s.path, c.content from sources s left join chunks c on c.source_id = s.id order by s.path, ordinal"
        )
        stored: dict[str, list[str]] = {}
        for path, content in rows:
            stored.setdefault(path, []).extend([] if content is None else [content])
        assert stored == self.model

    @invariant()
    def finds_what_the_model_holds(self) -> None:
        for q in ("fox", "知识", "art"):
            expected = sum(q in text for texts in self.model.values() for text in texts)
            assert len(matching(self.connection, match_expression(q) or "", 100)[0]) == expected

    @invariant()
    def has_one_vector_for_each_text_that_is_there_and_none_else(self) -> None:
        there = {text_hash(text) for texts in self.model.values() for text in texts}
        stored = {row[0] for row in self.connection.rows("select text_hash from chunk_vectors")}
        waiting = {digest for digest, _ in pending(self.connection, 100)}
        assert stored | waiting == there
        assert not stored & waiting

    def teardown(self) -> None:
        require_sound(self.connection)
        self.context.__exit__(None, None, None)
        self.folder.cleanup()


Indexing.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_whatever_is_changed_the_index_holds_exactly_what_is_there = Indexing.TestCase


def test_headings_are_stored_as_readable_json(connection: Connection):
    put(connection, "a.md", "content", heading=("安装", "x"))
    (heading,) = connection.one("select heading from chunks")
    assert json.loads(heading) == ["安装", "x"]
    assert "安装" in heading
