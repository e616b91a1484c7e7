"""Where an embedder's relevance floor may lie, and what it does to questions that a collection cannot answer."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kura.library.library import Library
from kura.store.catalog import Catalog
from tests.quality.cache import CachedEmbedder
from tests.quality.collection import Collection
from tests.quality.pipeline import asked, index, opened, write_files

LOST = 0.005
"""The share of relevant hits that a floor may cost."""

_STRANGE = 200  # questions of each other collection, evenly spaced


class Scores(NamedTuple):
    """What semantic search finds without a floor, as cosine similarities.

    Attributes:
        collection: Name of the collection that was asked.
        relevant: One for each relevant document that was found for a question of the collection itself.
        strange: For each question of another collection, those of the passages found.
    """

    collection: str
    relevant: list[float]
    strange: list[list[float]]

    def highest_floor(self) -> float:
        """The highest floor that loses no more than `LOST` of the relevant hits."""
        return float(np.quantile(self.relevant, LOST, method="lower"))

    def lost(self, floor: float) -> float:
        """The share of the relevant hits that a floor loses."""
        return sum(score < floor for score in self.relevant) / len(self.relevant)

    def dropped(self, floor: float) -> float:
        """The share of the passages found for strange questions that a floor drops."""
        scores = [score for found in self.strange for score in found]
        return sum(score < floor for score in scores) / len(scores)

    def silent(self, floor: float) -> float:
        """The share of the strange questions for which a floor leaves nothing."""
        return sum(max(found, default=-1.0) < floor for found in self.strange) / len(self.strange)


def score(collection: Collection, others: Sequence[Collection], scratch: Path, embedder: CachedEmbedder) -> Scores:
    """Index a collection below `scratch`, and ask it its own questions and those of others, without any floor."""
    embedder.floor = None
    strange = [query for other in others for query in _evenly(list(other.queries.values()))]
    ids = write_files(collection.documents, scratch / "files")
    catalog = Catalog(scratch / "data")
    index(catalog, scratch / "files", embedder)
    embedder.embed([*collection.queries.values(), *strange], "query")
    return asyncio.run(_scores(catalog, embedder, collection, strange, ids))


def _evenly(queries: list[str]) -> list[str]:
    return queries[:: max(1, len(queries) // _STRANGE)][:_STRANGE]


async def _scores(
    catalog: Catalog, embedder: CachedEmbedder, collection: Collection, strange: Sequence[str], ids: dict[str, str]
) -> Scores:
    async with opened(catalog, embedder) as library:
        relevant = [
            best
            for query_id, query in collection.queries.items()
            async for source, best in _found(library, query)
            if ids[source] in collection.relevant[query_id]
        ]
        return Scores(
            collection.name, relevant, [[best async for _, best in _found(library, query)] for query in strange]
        )


async def _found(library: Library, query: str) -> AsyncGenerator[tuple[str, float]]:
    for group in await asked(library, query, "semantic"):
        yield group.source, group.matches[0].score


def lines(scores: Sequence[Scores], floor: float | None) -> Iterator[str]:
    """A table of what was found, for the embedder's own floor or, where it has none, the one that would do."""
    shown = min(each.highest_floor() for each in scores) if floor is None else floor
    row = "{:16} {:>9} {:>8} {:>14} {:>10} {:>18} {:>18}"
    yield f"floor {shown:.4f}{' (the embedder has none: the highest that would do)' if floor is None else ''}"
    yield row.format("collection", "relevant", "lowest", "highest floor", "lost", "strange: dropped", "left with none")
    for each in scores:
        yield row.format(
            each.collection,
            len(each.relevant),
            f"{min(each.relevant):.4f}",
            f"{each.highest_floor():.4f}",
            f"{each.lost(shown):.2%}",
            f"{each.dropped(shown):.1%}",
            f"{each.silent(shown):.1%}",
        )
