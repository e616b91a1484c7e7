"""Row `nearest`: the exact ten nearest vectors."""

from collections.abc import Callable, Iterator

import numpy as np

from kura.vectors.matrix import Matrix
from tests.bench.corpus import Bench, unit_vectors
from tests.bench.line import Finding, Line, Skipped, at_most
from tests.bench.measure import here, interleaved
from tests.bench.peers import NEAREST, Floats, Missing, Nearest

DIMENSION = 384
K = 10
OURS = "kura"
GOALS = ((10_000, 1.1), (100_000, 1.25))
"""Up to so many rows, at most so many times what reading the memory takes."""

_QUERIES = 8


def nearest(bench: Bench) -> Iterator[Finding]:
    """Ours beside other exact searches over the same rows, and beside reading those rows once."""
    for count in bench.scale.vectors:
        yield from _of(bench, count)


def reads(rows: Floats, query: Floats) -> dict[str, Callable[[], object]]:
    """Ways to read all of `rows` in one thread and do next to nothing with it. The fastest is the limit."""
    flat = rows.reshape(-1)
    words = flat.view(np.uint64)
    return {
        "largest": flat.max,
        "bits together": lambda: np.bitwise_or.reduce(words),
        "sum of squares": lambda: np.dot(flat, flat),
        "product alone": lambda: rows @ query,
    }


def _of(bench: Bench, count: int) -> Iterator[Finding]:
    what = f"nearest {K} of {count:,} × {DIMENSION}"
    rows, queries = unit_vectors(count, DIMENSION), unit_vectors(_QUERIES, DIMENSION, seed=5)
    matrix = Matrix(DIMENSION, np.arange(count), rows)

    def ours(query: Floats, k: int) -> list[int]:
        return matrix.nearest(query, k)[0].tolist()

    searches: dict[str, Nearest] = {OURS: ours}
    for name, build in NEAREST.items():
        try:
            searches[name] = build(rows)
        except Missing as error:
            yield Skipped(f"{what}, beside {name}", str(error))
    reading = reads(rows, queries[0])
    timings = interleaved(
        {name: here(_asking(search, queries)) for name, search in searches.items()}
        | {name: here(read) for name, read in reading.items()},
        bench.scale.rounds_of(1 if count <= 20_000 else 0.5),
    )
    fastest = min(reading, key=lambda name: timings[name].least)
    goal = next((times for most, times in GOALS if count <= most), GOALS[-1][1])
    yield Line(
        what,
        timings[OURS],
        "reading the memory",
        timings[fastest],
        at_most(goal, timings[OURS], timings[fastest]),
        f"fastest read: {fastest}, {rows.nbytes / timings[fastest].least / 1e9:.1f} GB/s",
    )
    for name, search in searches.items():
        if name != OURS:
            recall = _recall(search, ours, queries)
            yield Line(what, timings[OURS], name, timings[name], note=f"the same ids: {recall:.0%}")


def _asking(search: Nearest, queries: Floats) -> Callable[[], object]:
    """Ask one question after the other."""
    turn = 0

    def ask() -> object:
        nonlocal turn
        turn += 1
        return search(queries[turn % len(queries)], K)

    return ask


def _recall(search: Nearest, ours: Nearest, queries: Floats) -> float:
    shared = [len(set(search(query, K)) & set(ours(query, K))) / min(K, len(ours(query, K))) for query in queries]
    return sum(shared) / len(shared)
