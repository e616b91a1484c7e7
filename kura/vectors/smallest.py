"""The k-th smallest of many numbers, of which k are few."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROUP = 128  # numbers of which only the smallest is looked at first


def kth_smallest(values: NDArray[np.floating[Any]], k: int) -> float:
    """The k-th smallest of `values`, shape (n,), with 1 <= k <= n; none of them is no number.

    The smallest of each group of numbers are k numbers at least, where there are k groups; the k-th of those is not
    below the one that is asked for, so that only numbers up to it need be sorted.
    """
    groups = len(values) // _GROUP
    if groups > 2 * k:
        least = values[: groups * _GROUP].reshape(groups, _GROUP).min(axis=1)
        values = values[values <= np.partition(least, k - 1)[k - 1]]
    return float(np.partition(values, k - 1)[k - 1])
