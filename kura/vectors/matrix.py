"""All vectors of a database in one float32 matrix, and the exact nearest rows to a query."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Rows = NDArray[np.float32]


class Matrix:
    """Vectors with their ids, as seen at one moment. It never changes: growing and shrinking give a new one.

    Growing shares memory: rows are added behind those that an older Matrix knows of, so a search under way is not
    disturbed and 100,000 rows are not copied for one new passage. Only the newest Matrix of a line may grow.
    """

    def __init__(self, dimension: int, ids: Ids | None = None, rows: Rows | None = None) -> None:
        """Hold `rows`, shape (n, dimension), under `ids`, shape (n,), ascending. Both belong to the matrix from now."""
        self.dimension = dimension
        self._ids: Ids = np.empty(0, np.int64) if ids is None else ids
        self._rows: Rows = np.empty((0, dimension), np.float32) if rows is None else rows
        self._count = len(self._ids)
        self._dead: NDArray[np.bool_] | None = None
        if self._rows.shape != (self._count, dimension):
            raise ValueError(f"{self._count} ids need rows of shape ({self._count}, {dimension}): {self._rows.shape}")

    def __len__(self) -> int:
        return self._count - (int(self._dead.sum()) if self._dead is not None else 0)

    @property
    def last_id(self) -> int:
        """The highest id that was ever in it; 0 where there was none. Ids only grow, so newer rows lie above."""
        return int(self._ids[self._count - 1]) if self._count else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its rows take, spare room included."""
        return self._rows.nbytes + self._ids.nbytes

    def nearest(self, query: Rows, k: int) -> tuple[Ids, Rows]:
        """The `k` rows with the largest dot product with `query`, shape (dimension,).

        Returns:
            Ids and scores, both of shape (min(k, len(self)),), best first; equal scores in the order of their ids.
        """
        if query.shape != (self.dimension,):
            raise ValueError(f"the query needs shape ({self.dimension},): {query.shape}")
        k = min(k, len(self))
        if k <= 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        ids, scores = self._ids[: self._count], self._rows[: self._count] @ query
        if self._dead is not None:
            scores[self._dead] = -np.inf
        if k < len(scores):
            # Every row that ties with the k-th goes into the sort, or which of them come first would be chance.
            threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
            best = np.flatnonzero(scores >= threshold)
        else:
            best = np.arange(len(scores))
        best = best[np.lexsort((ids[best], -scores[best]))][:k]
        return ids[best], scores[best]

    def extended(self, ids: Ids, rows: Rows) -> "Matrix":
        """This matrix and `rows`, shape (n, dimension), whose `ids` lie above all that it has."""
        if not len(ids):
            return self
        if self._count and int(ids[0]) <= self.last_id:
            raise ValueError(f"new ids must lie above {self.last_id}: {int(ids[0])}")
        grown = Matrix(self.dimension)
        grown._count = self._count + len(ids)
        if grown._count <= len(self._ids):
            grown._ids, grown._rows = self._ids, self._rows
        else:
            room = grown._count + max(1024, grown._count // 4)
            grown._ids, grown._rows = np.empty(room, np.int64), np.empty((room, self.dimension), np.float32)
            grown._ids[: self._count], grown._rows[: self._count] = self._ids[: self._count], self._rows[: self._count]
        grown._ids[self._count : grown._count] = ids
        grown._rows[self._count : grown._count] = rows
        if self._dead is not None:
            grown._dead = np.concatenate([self._dead, np.zeros(len(ids), np.bool_)])
        return grown

    def without(self, ids: Iterable[int]) -> "Matrix":
        """This matrix without the rows of `ids`; ids that it does not have are passed over."""
        gone = np.isin(self._ids[: self._count], np.fromiter(ids, np.int64))
        if not gone.any():
            return self
        dead = gone if self._dead is None else gone | self._dead
        left = Matrix(self.dimension)
        if int(dead.sum()) * 4 > self._count:
            keep = ~dead
            # An id above all that are left must still count as seen.
            keep[-1:] = True
            left._ids, left._rows = self._ids[: self._count][keep], self._rows[: self._count][keep]
            left._count, dead = int(keep.sum()), dead[keep]
        else:
            left._ids, left._rows, left._count = self._ids, self._rows, self._count
        left._dead = dead if dead.any() else None
        return left
