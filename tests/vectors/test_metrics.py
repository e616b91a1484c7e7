"""The nearest rows by each metric, against plain arithmetic in float64."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from kura.vectors.blobs import usable
from kura.vectors.metrics import Metric, nearest, rows_of
from kura.vectors.smallest import kth_smallest

METRICS: tuple[Metric, ...] = get_args(Metric)
Floats = NDArray[np.float32]


def distances(rows: Floats, query: Floats, metric: Metric) -> NDArray[np.float64]:
    x, y = rows.astype(np.float64), query.astype(np.float64)
    match metric:
        case "cosine":
            return 1 - (x @ y) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y))
        case "dot_product":
            return -(x @ y)
        case "euclidean":
            return np.linalg.norm(x - y, axis=1)
        case "manhattan":
            return np.abs(x - y).sum(axis=1)


def made(kind: str) -> tuple[Floats, Floats]:
    random = np.random.default_rng(7)
    rows = random.standard_normal((3000, 24)).astype(np.float32)
    query = random.standard_normal(24).astype(np.float32)
    match kind:
        case "near the query":
            # Further apart than float32 can tell by the short way of squares and products, nearer than a millionth.
            rows = query + 1e-4 * rows
        case "huge":
            rows, query = rows * np.float32(1e30), query * np.float32(1e30)
        case "tiny":
            rows, query = rows * np.float32(1e-30), query * np.float32(1e-30)
        case "some long":
            rows[::7] *= 1e6
        case "repeated":
            rows = rows[np.arange(3000) % 40]
        case _:
            pass
    return rows, query


@pytest.mark.parametrize("kind", ["random", "near the query", "huge", "tiny", "some long", "repeated"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 2999, 5000])
def test_the_nearest_are_those_that_arithmetic_finds(metric: Metric, kind: str, k: int):
    rows, query = made(kind)
    wanted = distances(rows, query, metric)
    places, found = nearest(rows_of(rows), query, k, metric)
    assert len(places) == min(k, 3000) == len(set(places.tolist()))
    np.testing.assert_allclose(found, wanted[places], rtol=1e-6, atol=1e-12)
    assert (np.diff(found) >= 0).all()
    # What was left out is no nearer, but for what float64 itself cannot tell apart.
    left = np.delete(wanted, places)
    if len(left):
        assert left.min() >= found[-1] - 1e-9 * max(1.0, abs(found[-1]))


@pytest.mark.parametrize("metric", METRICS)
def test_equal_distances_stand_in_the_order_of_their_places(metric: Metric):
    rows, query = made("repeated")
    places, found = nearest(rows_of(rows), query, 200, metric)
    for value in np.unique(found):
        same = places[found == value]
        assert (np.diff(same) > 0).all()
    # All of the last distance are those that come first.
    last = np.flatnonzero(distances(rows, query, metric) == distances(rows, query, metric)[places[-1]])
    taken = places[found == found[-1]]
    np.testing.assert_array_equal(taken, last[: len(taken)])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("metric", METRICS)
def test_only_visible_rows_are_found(metric: Metric, share: float):
    rows, query = made("random")
    visible = np.random.default_rng(3).random(len(rows)) < share
    places, found = nearest(rows_of(rows), query, 20, metric, visible)
    alone = np.flatnonzero(visible)
    expected, same = nearest(rows_of(rows[alone]), query, 20, metric)
    np.testing.assert_array_equal(places, alone[expected])
    np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize("metric", METRICS)
def test_a_vector_is_nearest_to_itself(metric: Metric):
    rows, _ = made("random")
    places, found = nearest(rows_of(rows), rows[5], 1, metric)
    if metric != "dot_product":
        assert places.tolist() == [5]
        assert 0 <= found[0] < 1e-12


def test_no_rows_and_other_lengths():
    empty = rows_of(np.empty((0, 3), np.float32))
    assert [len(each) for each in nearest(empty, np.ones(3, np.float32), 5)] == [0, 0]
    with pytest.raises(ValueError, match="shape"):
        nearest(empty, np.ones(4, np.float32), 5)


@given(
    values=arrays.arrays(np.float32, st.integers(1, 700), elements=st.floats(-5, 5, width=32).map(np.round)),
    data=st.data(),
)
def test_the_kth_smallest_is_that_of_sorting(values: Floats, data: st.DataObject):
    k = data.draw(st.integers(1, len(values)))
    assert kth_smallest(values, k) == np.sort(values)[k - 1]


def test_values_that_are_no_vectors_are_told_apart():
    good = np.array([1, 2], "<f4").tobytes()
    nan, infinite, long = (np.array([value, 1], "<f4").tobytes() for value in (np.nan, np.inf, 3e38))
    values = [good, None, b"", b"123", good + b"1234", "text", 5, nan, infinite, bytes(8), long, good]
    found = usable(values, 2)
    assert found.places.tolist() == [0, 10, 11]
    assert found.rows.tolist()[0] == [1, 2]
    assert found.wrong_length.tolist() == [2, 3, 4, 5, 6]
    assert found.not_finite.tolist() == [7, 8]
    assert found.zero.tolist() == [9]
    assert usable([], 2).rows.shape == (0, 2)
