"""Semantic search: the query's vector against all vectors of the database, exactly."""

import numpy as np

from kura.embed import Embedder
from kura.errors import KuraError, NotReady
from kura.search.library import KnowledgeBase, Library, waited
from kura.store.segments import Vectors
from kura.store.sources import statistics
from kura.store.statements import bearing
from kura.types import Hit

GONE = -1
"""Stands for a chunk whose vector was still in memory but whose row a newer version has removed."""


async def ready(library: Library, base: KnowledgeBase) -> tuple[Embedder, Vectors, str | None]:
    """Wait, within the library's patience, until a semantic search can run.

    Returns:
        The embedder, the vectors as of now, and a notice where a part of the passages has no vector yet.

    Raises:
        NotReady: if it cannot run; the text says why and since when.
    """
    loading = library.embedder()
    if not await waited(loading, library.patience):
        raise NotReady(f"semantic search is still loading its embedder (since {library.started_at}); ask again soon")
    try:
        embedder = loading.result()
    except KuraError as error:
        raise NotReady(f"semantic search is off (since {library.started_at}): {error}") from error
    if embedder is None:
        raise NotReady(
            "semantic search is not configured: this process has no embedder"
            f' (since {library.started_at}); the operator can install one with `pip install "kura-rag[e5]"`'
        )
    catching_up = base.catch_up()
    # A version that is loaded already answers while a newer one is on its way.
    if not await waited(catching_up, library.patience) and base.vectors is None:
        raise NotReady(f"semantic search is still loading its vectors (since {base.opened_at}); ask again soon")
    vectors = base.vectors if base.vectors is not None and not catching_up.done() else catching_up.result()
    return embedder, vectors, await _pending(base, embedder, vectors)


async def semantic(
    library: Library, base: KnowledgeBase, embedder: Embedder, vectors: Vectors, q: str, count: int
) -> list[Hit]:
    """The `count` chunks whose vectors are nearest to that of `q`, best first, down to the embedder's floor."""
    matrix = vectors.matrix
    if matrix is None or not len(matrix):
        return []

    def nearest() -> list[tuple[int, float]]:
        ids, scores = matrix.nearest(np.ascontiguousarray(embedder.embed([q], "query")[0]), count)
        return list(zip(ids.tolist(), scores.tolist(), strict=True))

    found = await library.in_thread(nearest)
    kept = [(vector_id, score) for vector_id, score in found if embedder.floor is None or score >= embedder.floor]
    chunks = await bearing(base.reader, [vector_id for vector_id, _ in kept])
    hits = [Hit(chunk_id, score) for vector_id, score in kept for chunk_id in chunks.get(vector_id, [GONE])]
    return hits[:count]


async def _pending(base: KnowledgeBase, embedder: Embedder, vectors: Vectors) -> str | None:
    known = vectors.state
    if known.embedder is not None and (known.embedder, known.dimension) != (embedder.name, embedder.dimension):
        raise NotReady(
            f"semantic search is off: the database was embedded with {known.embedder} ({known.dimension} dimensions),"
            f" this process embeds with {embedder.name} ({embedder.dimension}); one of the two must change"
        )
    counts = await base.reader.read(statistics)
    if not counts.pending:
        return None
    waiting = f"{counts.pending} of {counts.chunks} passages wait to be embedded (since {counts.pending_since})"
    if counts.pending == counts.chunks:
        raise NotReady(f"semantic search is pending: {waiting}; the operator can run `kura index` to embed them")
    return f"semantic search is partial: {waiting}"
