"""The product's own pipeline, from a folder of files to ranked sources, as a collection needs it."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kura.embed import Embedder
from kura.embed.choose import Choice, load_embedder
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.roots import register, writing
from kura.library.library import Library
from kura.search.search import MAX_QUERY, search
from kura.store.catalog import Catalog
from kura.types import Mode, Session, SourceGroup
from tests.quality.cache import CachedEmbedder, cache_dir
from tests.quality.collection import CUT, Collection, Document, ndcg, recall

NAME = "collection"
PAGE = 30
"""Passages asked for: enough that ten documents are among them where long ones have several."""


class Score(NamedTuple):
    """Means over all queries, and what measuring took."""

    mode: Mode
    ndcg: float
    recall: float
    seconds: float


def embedder(choice: Choice = "auto") -> CachedEmbedder | None:
    """An embedder, by default the default one, with its vectors cached; None where it is not installed."""
    chosen = load_embedder(choice, cache_dir=cache_dir())
    return CachedEmbedder(chosen, cache_dir()) if chosen else None


def measure(collection: Collection, modes: Sequence[Mode], scratch: Path, embedder: Embedder | None) -> list[Score]:
    """Index the collection below `scratch`, ask every query in every mode, and score the answers."""
    folder = scratch / "files"
    ids = write_files(collection.documents, folder)
    catalog = Catalog(scratch / "data")
    index(catalog, folder, embedder)
    return asyncio.run(_scores(catalog, embedder, collection, modes, ids))


def write_files(documents: Iterable[Document], folder: Path) -> dict[str, str]:
    """Write each document into a file of its own: Markdown where it has a title, else plain text.

    Returns:
        The documents' ids by file name.
    """
    folder.mkdir(parents=True)
    ids: dict[str, str] = {}
    for number, document in enumerate(documents):
        title = " ".join(document.title.split())
        name = f"{number:06d}-{re.sub(r'[^A-Za-z0-9.-]', '_', document.id)[:80]}{'.md' if title else '.txt'}"
        text = f"# {title}\n\n{document.text}\n" if title else f"{document.text}\n"
        (folder / name).write_text(text, encoding="utf-8")
        ids[name] = document.id
    return ids


def index(catalog: Catalog, folder: Path, embedder: Embedder | None) -> None:
    """Index a folder of files into a new database."""
    with writing(catalog.path(catalog.add(NAME))) as connection:
        report = reconcile(
            connection,
            [register(connection, folder)],
            model=Model.of(embedder) if embedder else None,
            max_file_bytes=100_000_000,
        )
    if report.problems:
        raise ValueError(f"{len(report.problems)} documents cannot be indexed, the first: {report.problems[0]}")


async def _scores(
    catalog: Catalog, embedder: Embedder | None, collection: Collection, modes: Sequence[Mode], ids: dict[str, str]
) -> list[Score]:
    async with opened(catalog, embedder) as library:
        if embedder and "semantic" in modes:
            embedder.embed(list(collection.queries.values()), "query")
        return [await _score(library, collection, mode, ids) for mode in modes]


@asynccontextmanager
async def opened(catalog: Catalog, embedder: Embedder | None) -> AsyncGenerator[Library]:
    """The databases of a catalog, loaded."""
    library = Library(catalog, lambda: embedder, patience=600.0)
    try:
        library.start(within=600.0)
        yield library
    finally:
        library.close()


async def asked(library: Library, query: str, mode: Mode) -> tuple[SourceGroup, ...]:
    """What one mode finds for a query."""
    result = await search(library, Session(), NAME, query.strip()[:MAX_QUERY], mode, PAGE)
    return (result.keyword if mode == "keyword" else result.semantic) or ()


async def _score(library: Library, collection: Collection, mode: Mode, ids: dict[str, str]) -> Score:
    began = time.perf_counter()
    gains: list[float] = []
    recalls: list[float] = []
    for query_id, query in collection.queries.items():
        ranked = [ids[group.source] for group in await asked(library, query, mode)][:CUT]
        gains.append(ndcg(ranked, collection.relevant[query_id]))
        recalls.append(recall(ranked, collection.relevant[query_id]))
    seconds = time.perf_counter() - began
    return Score(mode, sum(gains) / len(gains), sum(recalls) / len(recalls), seconds)
