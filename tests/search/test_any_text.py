"""Whatever a person types is answered, and whatever a file says can be found."""

import asyncio
import math
from collections.abc import Generator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.embed.hashing import HashingEmbedder
from kura.errors import ArgumentError
from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.types import Mode, Session, SourceGroup
from tests import anything
from tests.store.writing import add, put, writing

FILES = {
    "guide/rag.md": ["Retrieval finds passages before the model answers.", 'AND "OR" NOT NEAR(a b) tokens:x *'],
    "指南.md": ["檢索會先找到段落，模型再根據段落回答。"],
    "emoji.md": ["🚲 and 👩\u200d🔬"],
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Library, Connection]]:
    """A library over one database that knows files, and a connection that may change it."""
    catalog, embedder = Catalog(tmp_path_factory.mktemp("data")), HashingEmbedder(64)
    entry = add(catalog, "notes", FILES, embedder)
    with closing(Library(catalog, lambda: embedder, refresh_seconds=0)) as library, writing(catalog, entry) as writer:
        yield library, writer


def assert_well_formed(groups: tuple[SourceGroup, ...] | None, limit: int) -> None:
    assert groups is not None
    assert len({group.source for group in groups}) == len(groups)
    matches = [match for group in groups for match in group.matches]
    assert len(matches) <= limit
    assert all(group.matches for group in groups)
    assert all(match.chunk >= 1 and match.content and math.isfinite(match.score) for match in matches)


@settings(max_examples=120)
@given(
    q=anything.text | st.builds(str.__mul__, anything.text, st.sampled_from([40, 700])),
    mode=st.sampled_from([None, "keyword", "semantic"]),
    limit=st.integers(1, 100),
)
def test_any_query_is_answered_or_refused_for_its_length(
    kept: tuple[Library, Connection], q: str, mode: Mode | None, limit: int
):
    try:
        found = asyncio.run(search(kept[0], Session(), "notes", q, mode, limit))
    except ArgumentError:
        assert not 1 <= len(q.strip()) <= 10_000
        return
    assert 1 <= len(q.strip()) <= 10_000
    assert found.notices == ()
    for name, groups in (("keyword", found.keyword), ("semantic", found.semantic)):
        if mode in {None, name}:
            assert_well_formed(groups, limit)
        else:
            assert groups is None


@settings(max_examples=40)
@given(texts=st.lists(anything.typed, min_size=1, max_size=4), heading=st.lists(anything.typed, max_size=2).map(tuple))
def test_every_passage_is_found_by_a_word_of_its_own(
    kept: tuple[Library, Connection], texts: list[str], heading: tuple[str, ...]
):
    library, connection = kept
    # Between others, on a line of its own: what stands next to it could make another word of it.
    passages = [f"{text}\nqx{number}wvz\n{text}" for number, text in enumerate(texts)]
    put(connection, "any.md", *passages, heading=heading, embedder=HashingEmbedder(64))

    async def find() -> list[list[tuple[str, str]]]:
        results = [await search(library, Session(), "notes", f"qx{n}wvz", "keyword") for n in range(len(texts))]
        return [
            [(group.source, match.content) for group in r.keyword or () for match in group.matches] for r in results
        ]

    assert asyncio.run(find()) == [[("any.md", passage)] for passage in passages]
