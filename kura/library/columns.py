"""Vectors of tables' columns, kept between requests as long as they are what the table holds and memory allows."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kura.vectors.metrics import Rows

Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadedColumn:
    """The vectors of one column, all of them, whoever may see which.

    Attributes:
        version: Of the database that they were read from.
        keys: What names the rows of usable vectors, ascending, of shape (n,).
        rows: The vectors, float32, of shape (n, d).
        wrong_length: Keys of values that are no vector of this length.
        lengths: How many numbers each of those has; -1 where it is none at all.
        not_finite: Keys of vectors with a number that is none, or infinite.
        zero: Keys of vectors that are zero.
        names: Where a row has no number: what it is named by, in the place of its key.
    """

    version: object
    keys: Keys
    rows: Rows
    wrong_length: Keys
    lengths: Keys
    not_finite: Keys
    zero: Keys
    names: tuple[tuple[object, ...], ...] | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes, roughly."""
        return self.rows.vectors.nbytes + self.rows.norms.nbytes + 8 * (len(self.keys) + 2 * len(self.wrong_length))


@dataclass(frozen=True, slots=True)
class SeenRows:
    """What a session sees of a loaded column.

    Attributes:
        mask: Which of its usable vectors, of shape (n,); None is all.
        size: How many those are.
        wrong_length: How many of its values that are no vector of this length.
        not_finite: How many of its vectors with a number that is none.
        zero: How many of its vectors that are zero.
        lengths: How many numbers each value of a wrong length has, as `LoadedColumn.lengths`.
    """

    mask: NDArray[np.bool_] | None
    size: int
    wrong_length: int
    not_finite: int
    zero: int
    lengths: Keys


_MOST_SEEN = 64  # answers to who sees which rows


class Columns:
    """What one database's columns take of memory; those used longest ago go first. For many threads at once."""

    def __init__(self, most: int) -> None:
        """Keep columns of at most so many bytes together."""
        self.most = most
        self._lock = threading.Lock()
        self._loaded: OrderedDict[Hashable, LoadedColumn] = OrderedDict()
        self._seen: OrderedDict[Hashable, tuple[object, SeenRows]] = OrderedDict()

    def seen(self, name: Hashable, version: object) -> SeenRows | None:
        """What was kept under that name, if it is of that version of the database."""
        with self._lock:
            kept_version, found = self._seen.get(name, (None, None))
            return found if version is not None and kept_version == version else None

    def keep_seen(self, name: Hashable, version: object, seen: SeenRows) -> None:
        """Keep what a session sees for whoever asks next."""
        if version is None:
            return
        with self._lock:
            self._seen[name] = version, seen
            self._seen.move_to_end(name)
            while len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)

    def get(self, name: Hashable, version: object) -> LoadedColumn | None:
        """The column of that name, if it is of that version of the database."""
        with self._lock:
            found = self._loaded.get(name)
            if found is None or version is None or found.version != version:
                return None
            self._loaded.move_to_end(name)
            return found

    def keep(self, name: Hashable, column: LoadedColumn) -> None:
        """Keep a column for whoever asks next."""
        if column.version is None:
            return
        with self._lock:
            self._loaded[name] = column
            self._loaded.move_to_end(name)
            while sum(each.nbytes for each in self._loaded.values()) > self.most and len(self._loaded) > 1:
                self._loaded.popitem(last=False)
