"""Which rows of a column a session sees, and the nearest of those."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kura.errors import ArgumentError
from kura.library.columns import LoadedColumn, SeenRows
from kura.library.knowledge import KnowledgeBase
from kura.sql.columns import Selection, VectorColumn, selected
from kura.store.engine import Asked, Row
from kura.types import Rules
from kura.vectors.metrics import Metric, nearest

Mask = NDArray[np.bool_]


class Seeing:
    """What selections see of a column's parts; each is asked for once, and kept where the column is one part."""

    def __init__(
        self,
        base: KnowledgeBase,
        connection: Asked,
        wanted: VectorColumn,
        dimension: int,
        version: object,
        rules: Rules,
    ) -> None:
        self._base, self._connection, self._wanted = base, connection, wanted
        self._dimension, self._version, self._rules = dimension, version, rules
        self._rows: dict[Selection, list[Row]] = {}

    def of(self, part: LoadedColumn, what: Selection | None) -> SeenRows:
        """What a selection sees of a part; None sees all."""
        if what is None:
            counts = len(part.wrong_length), len(part.not_finite), len(part.zero)
            return SeenRows(None, len(part.keys), *counts, part.lengths)
        name = (self._wanted.table.name, self._wanted.column.name, self._dimension, what)
        version = self._version if what.steady else None
        found = self._base.columns.seen(name, version)
        if found is None:
            if what not in self._rows:
                self._rows[what] = selected(self._connection, self._wanted, what, self._rules.seconds)
            found = _seen(part, self._rows[what])
            self._base.columns.keep_seen(name, version, found)
        return found


def _seen(part: LoadedColumn, rows: Sequence[Row]) -> SeenRows:
    visible = _keys(rows, part)
    mask, wrong = among(part.keys, visible), among(part.wrong_length, visible)
    return SeenRows(
        mask,
        int(np.count_nonzero(mask)),
        int(np.count_nonzero(wrong)),
        int(np.count_nonzero(among(part.not_finite, visible))),
        int(np.count_nonzero(among(part.zero, visible))),
        part.lengths[wrong],
    )


class Ranked:
    """The nearest of the parts that were added, and counts of what the session sees of them."""

    def __init__(self, wanted: VectorColumn, vector: NDArray[np.float32], k: int, metric: Metric) -> None:
        self._wanted, self._vector, self._k = wanted, vector, k
        self._metric: Metric = metric
        self.size = 0
        self.left_out = {"wrong_length": 0, "not_finite": 0, "zero": 0}
        self.best: list[tuple[float, tuple[object, ...]]] = []
        self._lengths: list[NDArray[np.int64]] = []

    def add(self, part: LoadedColumn, seen: SeenRows, mask: Mask | None) -> None:
        """Rank a part: `seen` of it counts, and what `mask` lets through is compared."""
        self.size += seen.size
        self.left_out["wrong_length"] += seen.wrong_length
        self.left_out["not_finite"] += seen.not_finite
        self.left_out["zero"] += seen.zero
        self._lengths.append(seen.lengths)
        places, distances = nearest(part.rows, self._vector, self._k, self._metric, mask)
        keys = part.keys[places].tolist()
        names = [(key,) if part.names is None else part.names[key] for key in keys]
        self.best += zip(distances.tolist(), names, strict=True)
        self.best = sorted(self.best, key=lambda each: each[0])[: self._k]  # stable: parts come in order

    def require_fitting(self) -> None:
        """Refuse a vector of a length that none of the visible ones has, if those have another one.

        Raises:
            ArgumentError: if so; it names the length that most of them have.
        """
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        if self.size or not len(lengths):
            return
        lengths = lengths[lengths > 0]
        if not len(lengths):
            raise ArgumentError(
                f'invalid argument: "{self._wanted.column.name}" of "{self._wanted.table.name}" holds no vectors (blobs'
                " of little-endian float32)"
            )
        values, counts = np.unique(lengths, return_counts=True)
        raise other_length(self._wanted, len(self._vector), str(values[np.argmax(counts)]))


def other_length(wanted: VectorColumn, length: int, there: str) -> ArgumentError:
    """What a vector of another length than those of a column comes to."""
    return ArgumentError(
        f'invalid argument: "query_vector" has {length} numbers; the vectors in "{wanted.table.name}"'
        f'."{wanted.column.name}" have {there}'
    )


def _keys(rows: Sequence[Row], loaded: LoadedColumn) -> NDArray[np.int64]:
    """Rows' names as the loaded column has them, ascending."""
    if loaded.names is None:
        keys = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    else:
        numbers = {name: number for number, name in enumerate(loaded.names)}
        keys = np.array([numbers[name] for row in rows if (name := tuple(row)) in numbers], np.int64)
    keys.sort()
    return keys


def among(keys: NDArray[np.int64], visible: NDArray[np.int64]) -> Mask:
    """Which of `keys` are among `visible`, which is ascending."""
    if not len(visible):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(visible, keys), len(visible) - 1)
    return visible[places] == keys
