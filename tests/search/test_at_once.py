"""Searches while others write, search, or go away."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Embedder, Kind
from kura.embed.hashing import HashingEmbedder
from kura.errors import (
    NotReady,
)
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.segments import seal
from kura.store.sources import clear_vectors
from kura.types import Mode, SearchResult
from tests.conftest import MakeLibrary
from tests.search.asking import EVERYBODY, FILES, ask, contents, run, sources_of
from tests.store.writing import add, put, writing


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
