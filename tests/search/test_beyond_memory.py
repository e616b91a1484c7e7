import asyncio
import secrets
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import NotReady
from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog, Entry
from kura.store.elsewhere import Elsewhere, named
from kura.store.publish.descent import intend, owner
from kura.store.publish.plan import plan
from kura.store.publish.push import push
from kura.store.remote import open_remote
from kura.store.segments import seal
from kura.store.tokens import Tokens
from kura.types import SearchResult, Session
from local.sqld import Key, libsql_server
from tests.store.writing import put, reading, writing

EMBEDDER = HashingEmbedder(64)
QUERIES = ["the tide and the moon", "passage 7 of file 3", "bread", "wholly else"]


@pytest.fixture
def entry(catalog: Catalog) -> Entry:
    entry = catalog.add("notes")
    with writing(catalog, entry) as connection:
        for n in range(40):
            put(
                connection,
                f"{n}.md",
                *[f"passage {k} of file {n} on tide {n * k}" for k in range(30)],
                embedder=EMBEDDER,
            )
        seal(connection)
    return entry


KEY = Key()


@pytest.fixture
def publish(catalog: Catalog, entry: Entry, tmp_path: Path) -> Generator[Callable[..., str]]:
    with libsql_server(tmp_path / "server", jwt_key=KEY.public) as server:

        def publish(*, all_vectors: bool = False) -> str:
            with (
                closing(open_remote(server.url, KEY.token)) as remote,
                writing(catalog, entry) as connection,
                reading(catalog, entry) as local,
                local.transaction(write=False),
            ):
                planned = plan(local, remote, all_vectors=all_vectors)
                token = secrets.token_hex(8)
                intend(connection, token, server.url, local)
                push(local, remote, planned, token, owner(connection), lambda _done, _all: None)
            return server.url

        yield publish


def elsewhere(url: str) -> Elsewhere:
    return Elsewhere(named({"notes": url}), Tokens(KEY.token(read_only=True)))


def asked(library: Library) -> list[SearchResult]:
    async def ask() -> list[SearchResult]:
        return [await search(library, Session(None, None), "notes", query, "semantic", 30) for query in QUERIES]

    with closing(library):
        return asyncio.run(ask())


def library(catalog: Catalog, *, memory: int, copies: Path | None = None, there: Elsewhere | None = None) -> Library:
    return Library(
        catalog, lambda: EMBEDDER, vector_memory=memory, copies=copies, elsewhere=there, refresh_seconds=0, patience=30
    )


def exact(catalog: Catalog, entry: Entry, query: str) -> list[float]:
    """The thirty highest cosines of a query with what was embedded."""
    with reading(catalog, entry) as connection:
        rows = [row[0] for row in connection.rows("select embedding from chunk_vectors")]
    matrix = np.frombuffer(b"".join(rows), "<f4").reshape(-1, 64).astype(float)
    (vector,) = EMBEDDER.embed([query], "query")
    cosines = matrix @ vector / np.linalg.norm(matrix, axis=1) / (np.linalg.norm(vector) or 1)
    return sorted(cosines.tolist(), reverse=True)[:30]


@pytest.mark.usefixtures("entry")
def test_vectors_beyond_the_budget_are_mapped_from_a_file_and_found_alike(catalog: Catalog):
    in_memory, in_file = (asked(library(catalog, memory=memory)) for memory in (10**9, 1000))
    assert in_memory == in_file
    assert in_memory[0].semantic


def test_a_server_that_has_every_vector_compares_them_itself(
    catalog: Catalog, entry: Entry, tmp_path: Path, publish: Callable[..., str]
):
    url = publish(all_vectors=True)
    there = asked(library(Catalog(tmp_path / "empty"), memory=1000, there=elsewhere(url)))
    for query, result in zip(QUERIES, there, strict=True):
        scores = [match.score for group in result.semantic or () for match in group.matches]
        assert sorted(scores, reverse=True) == pytest.approx(exact(catalog, entry, query), abs=1e-5), query


def test_where_the_server_lacks_the_vectors_it_is_said_what_to_do(tmp_path: Path, publish: Callable[..., str]):
    url = publish()
    with pytest.raises(NotReady, match=r"kura push --with-vectors"):
        asked(library(Catalog(tmp_path / "empty"), memory=1000, there=elsewhere(url)))


def test_a_second_start_takes_its_vectors_from_the_copy(
    tmp_path: Path, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    url = publish()
    empty, copies = Catalog(tmp_path / "empty"), tmp_path / "copies"
    first = asked(library(empty, memory=10**9, copies=copies, there=elsewhere(url)))
    assert len(list(copies.glob("*.vectors"))) == 1
    monkeypatch.setattr("kura.store.segments.packed", None)  # what loads segments from the server
    assert asked(library(empty, memory=10**9, copies=copies, there=elsewhere(url))) == first
