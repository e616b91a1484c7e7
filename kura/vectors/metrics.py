"""The exact nearest rows by four metrics; a smaller distance is nearer for all of them.

Products are made in float32, which takes about as long as to read the matrix once. Where that rounds too much to tell
rows apart, the few that it leaves in question are compared again in float64.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kura.vectors.smallest import kth_smallest

Metric = Literal["cosine", "euclidean", "dot_product", "manhattan"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BLOCK = 512  # rows that stay in the processor's cache while they are worked on
_GATHERED = 0.2  # where fewer of the rows are visible, copying those is faster than computing with all


@dataclass(frozen=True, slots=True)
class Rows:
    """Vectors of one length, with what the metrics need again and again.

    Attributes:
        vectors: Of shape (n, d), finite.
        norms: The length of each, of shape (n,), float64.
        short: The least of them, 0 where there are none.
        long: The largest of them.
    """

    vectors: Floats
    norms: Doubles
    short: float
    long: float

    def __len__(self) -> int:
        return len(self.vectors)


def rows_of(vectors: Floats) -> Rows:
    """Vectors of shape (n, d), ready to be searched; they are not copied."""
    norms = np.empty(len(vectors), np.float64)
    for start in range(0, len(vectors), _BLOCK):
        norms[start : start + _BLOCK] = _norms(vectors[start : start + _BLOCK])
    return _of(vectors, norms)


def _of(vectors: Floats, norms: Doubles) -> Rows:
    return Rows(vectors, norms, float(norms.min(initial=np.inf)) if len(norms) else 0.0, float(norms.max(initial=0.0)))


def nearest(
    rows: Rows, query: Floats, k: int, metric: Metric = "cosine", visible: Mask | None = None
) -> tuple[Places, Doubles]:
    """The `k` rows with the smallest distance from `query`, shape (d,).

    Args:
        rows: What is searched; by cosine, none of them is zero.
        query: The vector, finite float32; by cosine not zero.
        k: How many.
        metric: How distances are measured: `cosine` is 1 - cos, `dot_product` the negative product.
        visible: Which rows there are to be found, shape (n,); None is all.

    Returns:
        Their places in `rows` and their distances, both of shape (min(k, visible rows),), nearest first; equal
        distances in the order of their places.
    """
    if query.shape != rows.vectors.shape[1:]:
        raise ValueError(f"the query needs shape {rows.vectors.shape[1:]}: {query.shape}")
    count = len(rows) if visible is None else int(np.count_nonzero(visible))
    k = min(k, count)
    if k <= 0:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    places: Places | None = None
    if visible is not None and count < len(rows) * _GATHERED:
        places = np.flatnonzero(visible)
        rows, visible = _of(rows.vectors[places], rows.norms[places]), None
    rough, margin = _rough(rows, query, metric)
    if visible is not None:
        rough[~visible] = np.inf
    candidates = _within(rough, margin, k)
    if visible is not None:
        candidates = candidates[visible[candidates]]
    distances = _exact(rows, query, candidates, metric)
    best = np.lexsort((candidates, distances))[:k]
    found = candidates[best]
    return found if places is None else places[found], distances[best]


def _rough(rows: Rows, query: Floats, metric: Metric) -> tuple[Floats | Doubles, Doubles | float]:
    """A number for each row that orders them as their distances do, and how far each may be off.

    The bound of a product's error is that of its naive summation, d · 2^-24 · |x| · |y| (Higham, Accuracy and Stability
    of Numerical Algorithms, 2002, section 3.1), in whatever order it is summed.
    """
    vectors, norms = rows.vectors, rows.norms
    rounding = (vectors.shape[1] + 2) * 2.0**-23
    if metric == "manhattan":
        rough = _sums(vectors, query)
        return rough, rough * rounding
    length = float(_norms(query[None])[0])
    if not _products_fit(rows, length):
        return _distances(vectors, norms, query, metric), np.zeros(len(norms))
    # Row by row: for a matrix and one vector it is twice as fast as `@` on some processors, and as fast on others.
    product = np.vecdot(vectors, query)
    if metric == "cosine":
        product /= norms.astype(np.float32)
        return np.negative(product, out=product), 2 * rounding * length
    # One margin for all is faster, but where few rows are long, the others would have far too wide a one.
    lengths = rows.long if rows.long <= 4 * rows.short else norms
    margin = lengths * (2 * rounding * length) + _SMALLEST
    if metric == "dot_product":
        return np.negative(product, out=product), margin
    squares = norms * norms
    squares -= product
    squares -= product
    return squares, 2 * margin + lengths * lengths * 2.0**-50


def _products_fit(rows: Rows, length: float) -> bool:
    """Whether float32 can hold all products of numbers in the rows and the query, none of them too small to count."""
    return max(rows.long * length, rows.long, length) < _LARGEST and min(rows.short * length, rows.short) > _SMALLEST


_LARGEST = 1e37
_SMALLEST = 1e-30


def _sums(vectors: Floats, query: Floats) -> Floats | Doubles:
    """Sums of absolute differences, a block at a time so that each number is read once from memory."""
    sums = np.empty(len(vectors), np.float32)
    buffer, ones = np.empty((_BLOCK, vectors.shape[1]), np.float32), np.ones(vectors.shape[1], np.float32)
    # As many times as a block has rows: numpy works on it in one go, rather than row by row.
    tiled = np.tile(query, (_BLOCK, 1))
    with np.errstate(over="ignore"):
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK]
            part = buffer[: len(block)]
            np.subtract(block, tiled[: len(block)], out=part)
            np.abs(part, out=part)
            np.dot(part, ones, out=sums[start : start + len(block)])
    if not np.isfinite(sums).all():
        return _distances(vectors, np.empty(0), query, "manhattan")
    return sums


def _within(rough: Floats | Doubles, margin: Doubles | float, k: int) -> Places:
    """Places of all rows that may be among the `k` nearest, if each rough number is off by `margin` at most."""
    if k == len(rough):
        return np.arange(len(rough))
    # The k-th nearest is not further than this, and whatever may be as near goes on.
    if isinstance(margin, float):
        return np.flatnonzero(rough <= np.float64(kth_smallest(rough, k) + 2 * margin))
    return np.flatnonzero(rough - margin <= kth_smallest(rough + margin, k))


def _exact(rows: Rows, query: Floats, places: Places, metric: Metric) -> Doubles:
    distances = np.empty(len(places), np.float64)
    for start in range(0, len(places), _BLOCK):
        some = places[start : start + _BLOCK]
        distances[start : start + _BLOCK] = _distances(rows.vectors[some], rows.norms[some], query, metric)
    return distances


def _distances(vectors: Floats, norms: Doubles, query: Floats, metric: Metric) -> Doubles:
    """Distances in float64, of shape (n,)."""
    distances = np.empty(len(vectors), np.float64)
    other = query.astype(np.float64)
    length = float(_norms(query[None])[0])
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float64)
        if metric == "manhattan":
            part = np.abs(block - other).sum(axis=1)
        elif metric == "euclidean":
            part = np.sqrt(np.einsum("ij,ij->i", block - other, block - other))
        else:
            part = -np.einsum("ij,j->i", block, other)
            if metric == "cosine":
                part = np.maximum(0.0, 1.0 + part / (norms[start : start + _BLOCK] * length))
        distances[start : start + len(block)] = part
    return distances


def _norms(vectors: Floats) -> Doubles:
    doubles = vectors.astype(np.float64)
    return np.sqrt(np.einsum("ij,ij->i", doubles, doubles))
