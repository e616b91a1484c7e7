"""All vectors of a database in one float32 matrix, and the exact nearest rows to a query."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kura.vectors.room import Allocate, in_memory
from kura.vectors.smallest import kth_smallest

Ids = NDArray[np.int64]
Rows = NDArray[np.float32]


class _Buffer:
    """Room that matrices of one line share: ids of shape (room,), rows of shape (room, d), `filled` of them used."""

    __slots__ = ("allocate", "filled", "ids", "rows")

    def __init__(self, ids: Ids, rows: Rows, filled: int, allocate: Allocate) -> None:
        self.ids, self.rows, self.filled, self.allocate = ids, rows, filled, allocate


class Matrix:
    """Vectors with their ids, as seen at one moment. It never changes: growing and shrinking give a new one.

    Growing shares memory: rows are added behind those that an older Matrix knows of, so a search under way is not
    disturbed and 100,000 rows are not copied for one new passage. Not for growing by two threads at once.
    """

    def __init__(
        self,
        dimension: int,
        ids: Ids | None = None,
        rows: Rows | None = None,
        *,
        allocate: Allocate = in_memory,
    ) -> None:
        """Hold `rows`, shape (n, dimension), under `ids`, shape (n,), ascending. Both belong to the matrix from now.

        `allocate` gives the room that it grows into.
        """
        self.dimension = dimension
        ids = np.empty(0, np.int64) if ids is None else ids
        rows = np.empty((0, dimension), np.float32) if rows is None else rows
        if rows.shape != (len(ids), dimension):
            raise ValueError(f"{len(ids)} ids need rows of shape ({len(ids)}, {dimension}): {rows.shape}")
        self._count = len(ids)
        self._buffer = _Buffer(ids, rows, self._count, allocate)
        self._dead: NDArray[np.bool_] | None = None

    @classmethod
    def of_parts(cls, ids: Ids, rows: Rows, dead: NDArray[np.bool_]) -> "Matrix":
        """A matrix as `parts` took one apart."""
        matrix = cls(rows.shape[1], ids, rows)
        matrix._dead = dead if dead.any() else None
        return matrix

    def parts(self) -> tuple[Ids, Rows, NDArray[np.bool_]]:
        """All rows that it has, those that are removed too: ids, rows, and which of them are removed."""
        dead = np.zeros(self._count, np.bool_) if self._dead is None else self._dead
        return self._ids, self._rows, dead

    @property
    def _ids(self) -> Ids:
        return self._buffer.ids[: self._count]

    @property
    def _rows(self) -> Rows:
        return self._buffer.rows[: self._count]

    def __len__(self) -> int:
        return self._count - (int(self._dead.sum()) if self._dead is not None else 0)

    @property
    def last_id(self) -> int:
        """The highest id that was ever in it; 0 where there was none. Ids only grow, so newer rows lie above."""
        return int(self._ids[-1]) if self._count else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its rows take, spare room included."""
        return self._buffer.rows.nbytes + self._buffer.ids.nbytes

    def row(self, vector_id: int) -> Rows | None:
        """The vector of that id, shape (dimension,), or None where there is none."""
        place = int(np.searchsorted(self._ids, vector_id))
        if place == self._count or self._ids[place] != vector_id:
            return None
        return None if self._dead is not None and self._dead[place] else self._rows[place]

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
        ids, scores = self._ids, np.vecdot(self._rows, query)
        if self._dead is not None:
            scores[self._dead] = -np.inf
        if k < len(scores):
            # Every row that ties with the k-th goes into the sort, or which of them come first would be chance.
            threshold = -kth_smallest(-scores, k)
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
        count = self._count + len(ids)
        buffer = self._buffer
        # Rows behind ours are of a Matrix that grew out of this one before: they are not to be written over.
        if buffer.filled != self._count or count > len(buffer.ids):
            room = count + max(1024, count // 4)
            rows_room = buffer.allocate(room, self.dimension)
            buffer = _Buffer(np.empty(room, np.int64), rows_room, count, buffer.allocate)
            buffer.ids[: self._count], buffer.rows[: self._count] = self._ids, self._rows
        buffer.ids[self._count : count], buffer.rows[self._count : count] = ids, rows
        buffer.filled = count
        dead = self._dead
        if dead is not None:
            dead = np.concatenate([dead, np.zeros(len(ids), np.bool_)])
        return self._of(buffer, count, dead)

    def without(self, ids: Iterable[int]) -> "Matrix":
        """This matrix without the rows of `ids`; ids that it does not have are passed over."""
        gone = np.isin(self._ids, np.fromiter(ids, np.int64))
        if not gone.any():
            return self
        dead = gone if self._dead is None else gone | self._dead
        if int(dead.sum()) * 4 <= self._count:
            return self._of(self._buffer, self._count, dead)
        keep = ~dead
        # An id above all that are left must still count as seen.
        keep[-1] = True
        count = int(keep.sum())
        rows = self._buffer.allocate(count, self.dimension)
        np.compress(keep, self._rows, axis=0, out=rows)
        kept = _Buffer(self._ids[keep], rows, count, self._buffer.allocate)
        return self._of(kept, kept.filled, dead[keep] if dead[-1] else None)

    def _of(self, buffer: _Buffer, count: int, dead: NDArray[np.bool_] | None) -> "Matrix":
        matrix = Matrix(self.dimension)
        matrix._buffer, matrix._count, matrix._dead = buffer, count, dead
        return matrix
