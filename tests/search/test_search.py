from typing import Any

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import (
    ArgumentError,
    UnknownDatabase,
)
from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.sources import roots, sources
from kura.types import Mode, SearchResult
from tests.conftest import MakeLibrary
from tests.search.asking import EVERYBODY, FILES, ask, contents, run, sources_of
from tests.store.writing import add, put, writing


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


def test_an_unknown_database_is_told_with_those_there_are(library: Library):
    with pytest.raises(UnknownDatabase, match='"other" not exist; available: "notes"'):
        ask(library, "x", db="other")


def test_a_removed_source_is_found_no_more(library: Library, catalog: Catalog):
    assert "en/bread.md" in sources_of(ask(library, "bread").semantic)
    from kura.store.sources import remove_sources

    with writing(catalog, catalog.find("notes")) as connection:
        root = roots(connection)[0]
        remove_sources(connection, [sources(connection, root.id)["en/bread.md"].id])
    result = ask(library, "bread")
    assert result.keyword == ()
    assert "en/bread.md" not in sources_of(result.semantic)
