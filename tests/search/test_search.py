import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Embedder, Kind
from kura.embed.hashing import HashingEmbedder
from kura.errors import (
    ArgumentError,
    BranchFailed,
    ConfigurationError,
    EmbedderError,
    NotReady,
    Unavailable,
    UnknownDatabase,
)
from kura.search.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.segments import seal
from kura.store.sources import clear_vectors, roots, set_embedder, sources
from kura.types import Mode, SearchResult, Session, SourceGroup
from tests.search.conftest import MakeLibrary
from tests.store.writing import add, put, writing

T = TypeVar("T")

FILES = {
    "en/rag.md": ["Retrieval augments generation with passages.", "A passage is a part of a file."],
    "en/bread.md": ["Bread needs flour, water and salt.", "Knead the dough and let it rest."],
    "en/code.md": [
        "Write C++ or node.js; the state-of-the-art in DEC-0054.",
        "Run with --error-on-warnings, don't ask.",
    ],
    "zh/shuju.md": ["数据库的备份应当每天进行。", "番茄种植需要充足的阳光。"],
}

EVERYBODY = Session()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, on which nothing may be left behind."""

    async def watched() -> T:
        result = await coroutine
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(watched())


def ask(library: Library, q: str, mode: Mode | None = None, limit: int = 10, db: str = "notes") -> SearchResult:
    return run(search(library, EVERYBODY, db, q, mode, limit))


def sources_of(groups: tuple[SourceGroup, ...] | None) -> list[str]:
    assert groups is not None
    return [group.source for group in groups]


def contents(groups: tuple[SourceGroup, ...] | None) -> list[str]:
    assert groups is not None
    return [match.content for group in groups for match in group.matches]


@pytest.fixture
def library(catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES, embedder)
    return make_library(lambda: embedder)


def test_both_modes_run_unless_one_is_asked_for(library: Library):
    both = ask(library, "flour and water")
    assert sources_of(both.keyword)[0] == sources_of(both.semantic)[0] == "en/bread.md"
    assert both.notices == ()
    keyword = ask(library, "flour and water", "keyword")
    assert (keyword.keyword, keyword.semantic) == (both.keyword, None)
    semantic = ask(library, "flour and water", "semantic")
    assert (semantic.keyword, semantic.semantic) == (None, both.semantic)


@pytest.mark.parametrize(
    ("q", "source"),
    [
        ("state-of-the-art", "en/code.md"),
        ('"unbalanced passages', "en/rag.md"),
        ("don't", "en/code.md"),
        ("C++", "en/code.md"),
        ("node.js", "en/code.md"),
        ("DEC-0054", "en/code.md"),
        ("--error-on-warnings", "en/code.md"),
        ("bread AND", "en/bread.md"),
        ("OR dough", "en/bread.md"),
        ("NEAR(flour", "en/bread.md"),
        ("salt*", "en/bread.md"),
        ("content:salt", "en/bread.md"),
        ("-salt", "en/bread.md"),
        ("备份", "zh/shuju.md"),
        ("番茄", "zh/shuju.md"),
        ("数据库", "zh/shuju.md"),
        ("ＢＲＥＡＤ", "en/bread.md"),
    ],
)
def test_what_people_type_is_found_by_keyword(library: Library, q: str, source: str):
    assert source in sources_of(ask(library, q, "keyword").keyword)


QUERIES = [
    "state-of-the-art", '"unbalanced', "don't", "C++", "node.js", "38.101", "AND", "OR x", "NEAR(", "a AND", "(", "*",
    "^", "a:b", "-x", "%@#{", "DEC-0054", "gpt-4", "--error-on-warnings", "备份", "数据", "👩‍👩‍👧", "\0", "a\0b",
    "\u202eabc", "\ud800", "x" * 10_000, "word " * 2000, "漢" * 10_000, "the", "?",
    "'; drop table chunks; --", "\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
@pytest.mark.parametrize("q", QUERIES, ids=[ascii(q[:12]) for q in QUERIES])
def test_whatever_a_person_types_is_answered(library: Library, q: str, mode: Mode):
    result = ask(library, q, mode)
    found = result.keyword if mode == "keyword" else result.semantic
    assert found is not None
    if mode == "semantic":
        assert found


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"q": ""}, "1 to 10,000"),
        ({"q": " \n\t\u3000"}, "1 to 10,000"),
        ({"q": "x" * 200_000}, "1 to 10,000"),
        ({"limit": 0}, "1 to 100"),
        ({"limit": 101}, "1 to 100"),
        ({"mode": "fuzzy"}, "leave it out"),
    ],
    ids=["empty", "blank", "huge", "no limit", "high limit", "mode"],
)
def test_arguments_out_of_bounds_are_refused_before_anything_is_opened(
    make_library: MakeLibrary, arguments: dict[str, Any], rule: str
):
    asked: dict[str, Any] = {"db": "none", "q": "x", **arguments}
    with pytest.raises(ArgumentError, match=rule) as caught:
        run(search(make_library(), EVERYBODY, **asked))
    assert not isinstance(caught.value, UnknownDatabase)


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10])
def test_a_page_holds_no_more_than_was_asked_for(library: Library, mode: Mode, limit: int):
    result = ask(library, "passage bread flour code 备份", mode, limit)
    found = contents(result.keyword if mode == "keyword" else result.semantic)
    assert 0 < len(found) <= limit
    assert len(set(found)) == len(found)


def test_sources_come_by_their_best_passage_and_passages_best_first(library: Library):
    result = ask(library, "passages of a file about bread")
    for groups in (result.keyword, result.semantic):
        assert groups
        best = [group.matches[0].score for group in groups]
        assert best == sorted(best, reverse=True)
        for group in groups:
            scores = [match.score for match in group.matches]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_one_long_file_does_not_hide_the_others(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary, mode: Mode
):
    long = [f"fox fox fox {n}" for n in range(20)]
    add(catalog, "notes", {"long.md": long, "a.md": ["one fox here"], "b.md": ["a fox there"]}, embedder)
    result = ask(make_library(lambda: embedder), "fox", mode, limit=9)
    found = result.keyword if mode == "keyword" else result.semantic
    assert set(sources_of(found)) == {"long.md", "a.md", "b.md"}
    assert len(contents(found)) == 9


def test_a_file_alone_fills_the_page(catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary):
    add(catalog, "notes", {"long.md": [f"fox {n}" for n in range(50)]}, embedder)
    result = ask(make_library(lambda: embedder), "fox", limit=10)
    assert len(contents(result.keyword)) == len(contents(result.semantic)) == 10


def test_a_passage_that_many_files_share_is_told_for_each(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    add(catalog, "notes", {f"{n}.md": ["the same licence", f"own words {n}"] for n in range(40)}, embedder)
    result = ask(make_library(lambda: embedder), "the same licence", limit=10)
    assert contents(result.semantic) == contents(result.keyword) == ["the same licence"] * 10
    assert sources_of(result.semantic) == [f"{n}.md" for n in range(10)]


def test_a_match_carries_all_that_an_answer_shows(catalog: Catalog, make_library: MakeLibrary):
    entry = catalog.add("notes")
    with writing(catalog, entry) as connection:
        put(connection, "a.md", "alpha", "beta", heading=("Top", "Below"))
    groups = ask(make_library(), "beta", "keyword").keyword
    assert groups is not None
    ((match,),) = (group.matches for group in groups)
    assert (match.chunk, match.content, match.heading, match.lines) == (2, "beta", ("Top", "Below"), (2, 2))


def test_nothing_found_is_an_empty_list(library: Library):
    assert ask(library, "zebra", "keyword").keyword == ()


def test_an_empty_database_is_searched_without_notice(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    catalog.add("notes")
    assert ask(make_library(lambda: embedder), "fox") == SearchResult((), (), ())


class Picky(HashingEmbedder):
    floor = 0.5


def test_hits_under_the_floor_of_the_embedder_are_dropped(catalog: Catalog, make_library: MakeLibrary):
    embedder = Picky(64)
    add(catalog, "notes", FILES, embedder)
    found = ask(make_library(lambda: embedder), "Bread needs flour, water and salt.", "semantic").semantic
    assert contents(found) == ["Bread needs flour, water and salt."]
    assert ask(make_library(lambda: embedder), "zzz qqq", "semantic").semantic == ()


class Odd(HashingEmbedder):
    """Answers every query with what it was given."""

    def __init__(self, answer: NDArray[np.float32] | Exception) -> None:
        super().__init__(64)
        self.answer = answer

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        if kind == "passage":
            return super().embed(texts, kind)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("mode", ["semantic", None])
@pytest.mark.parametrize(
    "answer",
    [
        EmbedderError("out of order"),
        np.full((1, 64), np.nan, np.float32),
        np.ones((1, 63), np.float32),
        np.ones((0, 64), np.float32),
        np.ones(64, np.float32),
    ],
    ids=["raises", "nan", "short", "none", "flat"],
)
def test_an_embedder_that_fails_at_a_query_is_told_and_never_an_empty_list(
    catalog: Catalog, make_library: MakeLibrary, answer: NDArray[np.float32] | Exception, mode: Mode | None
):
    embedder = Odd(answer)
    add(catalog, "notes", FILES, embedder)
    library = make_library(lambda: embedder)
    with pytest.raises(BranchFailed, match=r"semantic search failed: (out of order|the embedder did not give)"):
        ask(library, "bread", mode)
    assert ask(library, "bread", "keyword").keyword


def raise_known() -> Embedder:
    raise ConfigurationError("the model file is not there")


def raise_unknown() -> Embedder:
    raise RuntimeError("/secret/path")


def without_embedder(catalog: Catalog, embedder: Embedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES, embedder)
    return make_library()


def failing_at_load(catalog: Catalog, embedder: Embedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES, embedder)
    return make_library(raise_known)


def crashing_at_load(catalog: Catalog, embedder: Embedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES, embedder)
    return make_library(raise_unknown)


def all_pending(catalog: Catalog, embedder: Embedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES)
    return make_library(lambda: embedder)


def all_cleared(catalog: Catalog, embedder: Embedder, make_library: MakeLibrary) -> Library:
    with writing(catalog, add(catalog, "notes", FILES, embedder)) as connection:
        clear_vectors(connection)
    return make_library(lambda: embedder)


def of_another_model(catalog: Catalog, _: Embedder, make_library: MakeLibrary) -> Library:
    add(catalog, "notes", FILES, HashingEmbedder(32))
    return make_library(lambda: HashingEmbedder(64))


@pytest.mark.parametrize(
    ("state", "notice"),
    [
        (without_embedder, r"not configured.*\(since 2.*Z\).*pip install"),
        (failing_at_load, r"off \(since .*the model file is not there"),
        (crashing_at_load, r"off \(since .*could not be loaded; the log"),
        (all_pending, r"pending: 8 of 8 passages wait to be embedded \(since 2.*Z\)"),
        (all_cleared, r"pending: 8 of 8"),
        (of_another_model, r"embedded with hashing-32 \(32 dimensions\).*hashing-64"),
    ],
    ids=["none", "fails", "crashes", "pending", "cleared", "other"],
)
def test_where_semantic_search_cannot_run_keyword_search_does_and_says_why(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary, state: Any, notice: str
):
    library = state(catalog, embedder, make_library)
    result = ask(library, "bread")
    assert result.semantic is None
    assert sources_of(result.keyword) == ["en/bread.md"]
    assert len(result.notices) == 1
    with pytest.raises(NotReady, match=notice) as caught:
        ask(library, "bread", "semantic")
    assert (str(caught.value),) == result.notices
    assert "/secret" not in str(caught.value)
    assert ask(library, "bread", "keyword").notices == ()


def test_while_the_embedder_loads_keyword_search_answers(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    add(catalog, "notes", FILES, embedder)
    loaded = threading.Event()

    def load() -> Embedder:
        loaded.wait(60)
        return embedder

    library = make_library(load, patience=0.01)
    library.start()
    result = ask(library, "bread")
    assert (result.semantic, sources_of(result.keyword)) == (None, ["en/bread.md"])
    assert "still loading its embedder (since 2" in result.notices[0]
    with pytest.raises(NotReady, match="still loading"):
        ask(library, "bread", "semantic")
    loaded.set()
    library.embedder().result(60)
    library.patience = 30
    assert sources_of(ask(library, "bread").semantic)[0] == "en/bread.md"


def test_a_part_that_waits_is_told_beside_what_is_found(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    entry = add(catalog, "notes", FILES, embedder)
    with writing(catalog, entry) as connection:
        put(connection, "new.md", "not embedded yet")
    result = ask(make_library(lambda: embedder), "bread")
    assert sources_of(result.semantic)[0] == "en/bread.md"
    assert "semantic search is partial: 1 of 9 passages wait" in result.notices[0]


def test_words_of_another_tokeniser_are_told_until_they_are_indexed_anew(catalog: Catalog, make_library: MakeLibrary):
    entry = add(catalog, "notes", FILES)
    library = make_library()
    with writing(catalog, entry) as connection:
        connection.run("update state set tokenizer = 0")
        assert "version 0 of the tokeniser" in ask(library, "zebra", "keyword").notices[0]
        connection.run("update state set tokenizer = 1")
        assert ask(library, "bread", "keyword").notices == ()


def test_an_unknown_database_is_told_with_those_there_are(library: Library):
    with pytest.raises(UnknownDatabase, match='"other" not exist; available: "notes"'):
        ask(library, "x", db="other")


def test_a_broken_segment_makes_the_database_unavailable_for_meaning_but_not_for_words(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    with writing(catalog, add(catalog, "notes", FILES, embedder)) as connection:
        seal(connection)
        connection.run("update segments set codes = x'00'")
    library = make_library(lambda: embedder)
    library.start(within=30)
    for mode in ("semantic", None):
        with pytest.raises(Unavailable, match=r'database "notes" unavailable: a segment .* --rebuild'):
            ask(library, "bread", mode)
    assert ask(library, "bread", "keyword").keyword


class Meddling(HashingEmbedder):
    """Changes the database between the choice of vectors and the reading of their passages."""

    def __init__(self, meddle: Any) -> None:
        super().__init__(64)
        self.meddle = meddle

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        if kind == "query" and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        return super().embed(texts, kind)


@pytest.mark.parametrize("mode", ["semantic", None])
def test_passages_that_go_while_they_are_looked_for_give_way_to_what_came_instead(
    catalog: Catalog, make_library: MakeLibrary, mode: Mode | None
):
    plain = HashingEmbedder(64)
    entry = add(catalog, "notes", {"a.md": ["the red fox", "the red cat"], "b.md": ["bread"]}, plain)

    def meddle() -> None:
        with writing(catalog, entry) as connection:
            put(connection, "a.md", "the red fox of today", "the red cat of today", embedder=plain)

    library = make_library(lambda: Meddling(meddle))
    result = ask(library, "the red fox", mode, limit=2)
    assert contents(result.semantic) == ["the red fox of today", "the red cat of today"]


def test_vectors_of_another_model_that_come_while_looking_are_not_compared_with_the_query(
    catalog: Catalog, make_library: MakeLibrary
):
    entry = add(catalog, "notes", {"a.md": ["the red fox"]}, HashingEmbedder(64))

    def meddle() -> None:
        with writing(catalog, entry) as connection:
            clear_vectors(connection)
            put(connection, "a.md", "the red fox", embedder=HashingEmbedder(32))

    with pytest.raises(NotReady, match="hashing-32"):
        ask(make_library(lambda: Meddling(meddle)), "the red fox", "semantic")


def test_fifty_searches_at_once_answer_while_a_writer_writes(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    entry = add(catalog, "notes", FILES, embedder)
    library = make_library(lambda: embedder)
    stop = threading.Event()

    def write() -> None:
        with writing(catalog, entry) as connection:
            n = 0
            while not stop.is_set():
                n += 1
                put(connection, f"{n % 5}.md", *[f"bread of edition {n}"] * 3, embedder=embedder)
                if n % 7 == 0:
                    seal(connection)

    async def storm() -> list[SearchResult]:
        modes: list[Mode | None] = [None, "keyword", "semantic"]
        return await asyncio.gather(
            *(search(library, EVERYBODY, "notes", "bread flour", modes[n % 3], 100) for n in range(50))
        )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        results = [*run(storm()), *run(storm())]
    finally:
        stop.set()
        writer.join()
    for result in results:
        for groups in (result.keyword, result.semantic):
            if groups is None:
                continue
            assert any(content.startswith("Bread needs flour") for content in contents(groups))
            for group in groups:
                editions = {match.content for match in group.matches if "edition" in match.content}
                assert len(editions) <= 1, "a source is seen whole, in one edition"
    assert all(result.notices == () for result in results)


def test_a_caller_that_goes_away_takes_nothing_from_the_others(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    add(catalog, "notes", FILES, embedder)
    begun, gate = threading.Event(), threading.Event()

    def load() -> Embedder:
        begun.set()
        gate.wait(60)
        return embedder

    library = make_library(load)

    async def scene() -> SearchResult:
        impatient = asyncio.create_task(search(library, EVERYBODY, "notes", "bread", None, 10))
        patient = asyncio.create_task(search(library, EVERYBODY, "notes", "bread", None, 10))
        await asyncio.to_thread(begun.wait, 60)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        gate.set()
        return await patient

    assert sources_of(run(scene()).semantic)[0] == "en/bread.md"


def test_a_removed_source_is_found_no_more(library: Library, catalog: Catalog):
    assert "en/bread.md" in sources_of(ask(library, "bread").semantic)
    from kura.store.sources import remove_sources

    with writing(catalog, catalog.find("notes")) as connection:
        root = roots(connection)[0]
        remove_sources(connection, [sources(connection, root.id)["en/bread.md"].id])
    result = ask(library, "bread")
    assert result.keyword == ()
    assert "en/bread.md" not in sources_of(result.semantic)


def test_a_search_on_a_loop_that_closes_before_loading_is_through_leaves_no_error(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary, caplog: pytest.LogCaptureFixture
):
    add(catalog, "notes", FILES, embedder)
    gate = threading.Event()

    def load() -> Embedder:
        gate.wait(60)
        return embedder

    library = make_library(load, patience=0.01)
    assert ask(library, "bread").semantic is None
    gate.set()
    library.embedder().result(60)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_embedder_claimed_without_vectors_yet_is_no_obstacle(
    catalog: Catalog, embedder: HashingEmbedder, make_library: MakeLibrary
):
    entry = catalog.add("notes")
    library = make_library(lambda: embedder)
    with writing(catalog, entry) as connection:
        set_embedder(connection, embedder.name, embedder.dimension)
        assert ask(library, "bread").semantic == ()
        put(connection, "a.md", "bread", embedder=embedder)
        assert contents(ask(library, "bread").semantic) == ["bread"]
