"""Where a branch cannot run, or not yet, or fails: what is answered, and what is said."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Embedder, Kind
from kura.embed.hashing import HashingEmbedder
from kura.errors import (
    BranchFailed,
    ConfigurationError,
    EmbedderError,
    NotReady,
    Unavailable,
)
from kura.library.library import Library
from kura.store.catalog import Catalog
from kura.store.segments import seal
from kura.store.sources import clear_vectors, set_embedder
from kura.types import Mode
from tests.conftest import MakeLibrary
from tests.search.asking import FILES, ask, contents, sources_of
from tests.store.writing import add, put, writing


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
