"""Vectors as a column of a table holds them: blobs of little-endian float32, of which some may be none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Usable:
    """Those of many values that are vectors of a length, and why the others are not. Nulls are neither.

    Attributes:
        rows: The vectors, float32, of shape (n, d).
        places: Where each of them was among the values, of shape (n,).
        wrong_length: Where values are that are no blob, or one of another length.
        not_finite: Where vectors are with a number that is none, or is infinite.
        zero: Where vectors are of nothing but zeros, which are in no direction.
    """

    rows: NDArray[np.float32]
    places: NDArray[np.int64]
    wrong_length: NDArray[np.int64]
    not_finite: NDArray[np.int64]
    zero: NDArray[np.int64]


def usable(values: Sequence[object], dimension: int) -> Usable:
    """Read values as vectors of `dimension` numbers."""
    width = 4 * dimension
    fitting = [place for place, value in enumerate(values) if isinstance(value, bytes) and len(value) == width]
    wrong: list[int] = []
    if len(fitting) < len(values):
        fits = set(fitting)
        wrong = [place for place, value in enumerate(values) if value is not None and place not in fits]
    joined = b"".join(value for value in values if isinstance(value, bytes) and len(value) == width)
    rows = np.frombuffer(joined, "<f4").reshape(len(fitting), dimension).astype(np.float32, copy=False)
    all_places = places = np.array(fitting, np.int64)
    # A sum of absolute numbers in float64 is finite if they are, and zero if they all are.
    sums = np.abs(rows).sum(axis=1, dtype=np.float64)
    finite, zero = np.isfinite(sums), sums == 0.0
    kept = finite & ~zero
    if not kept.all():
        rows, places = rows[kept], places[kept]
    return Usable(
        rows,
        places,
        wrong_length=np.array(wrong, np.int64),
        not_finite=all_places[~finite],
        zero=all_places[zero],
    )
