import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy
from numpy.typing import NDArray

from kura.vectors.codec import centre_of, from_bytes, pack, repacked, to_bytes, unpack

Rows = np.ndarray[tuple[int, int], np.dtype[np.float32]]

rows = of_numpy.arrays(
    np.float32,
    of_numpy.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


def unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    length = np.linalg.norm(values.astype(np.float64))
    return (values / length if length else values).astype(np.float32)


def cone(count: int, dimension: int = 64) -> Rows:
    """Unit rows as a text embedder gives them: cosines between .7 and .9."""
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((count, dimension)) / np.sqrt(dimension)
    rows = generator.standard_normal(dimension) / np.sqrt(dimension) + 0.5 * noise
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@settings(derandomize=True, deadline=None)
@given(rows, st.integers(0, 7))
def test_a_packed_row_is_within_half_a_step_of_what_it_was(original: Rows, seed: int):
    direction = np.random.default_rng(seed).standard_normal(original.shape[1]).astype(np.float32)
    centre = unit(direction) if seed else np.zeros_like(direction)
    scales, along, codes = pack(original, centre)
    assert (scales.dtype, along.dtype, codes.dtype) == (np.float32, np.float32, np.int8)
    out = np.empty_like(original)
    unpack(scales, along, codes, centre, out)
    # Half a step for rounding, once more for what of it lay along the centre.
    bound = scales[:, None] * (0.5 + 0.5 * np.sqrt(original.shape[1]) * bool(seed))
    slack = 1e-5 * np.abs(original).max(axis=1, keepdims=True) + 1e-30
    assert (np.abs(out - original) <= bound + slack).all()
    if seed:
        np.testing.assert_allclose(out @ centre, original @ centre, atol=float(slack.max()) * 10)


@settings(derandomize=True, deadline=None)
@given(rows)
def test_packing_what_was_packed_changes_nothing(original: Rows):
    once = repacked(original, np.zeros(original.shape[1], np.float32))
    np.testing.assert_allclose(repacked(once, np.zeros(original.shape[1], np.float32)), once, rtol=1e-6)


@pytest.mark.parametrize("centred", [False, True], ids=["no centre", "a centre"])
@pytest.mark.parametrize(
    "row",
    [[0, 0, 0, 0], [1, 0, 0, 0], [-1, 1, -1, 1], [1e18, -1e18, 1, 0], [1e-30, 0, -1e-30, 0], [1e-45, 0, 0, 0]],
    ids=["zero", "unit", "signs", "huge", "tiny", "smallest"],
)
def test_extreme_rows_stay_finite(row: list[float], *, centred: bool):
    original = np.array([row], np.float32)
    out = repacked(original, np.full(4, 0.5 * centred, np.float32))
    assert np.isfinite(out).all()
    assert np.abs(out - original).max() <= np.abs(original).max() / 60 + 1e-40


def test_no_rows_are_packed_as_none():
    empty, centre = np.empty((0, 4), np.float32), np.zeros(4, np.float32)
    scales, along, codes = pack(empty, centre)
    assert (scales.shape, along.shape, codes.shape) == ((0,), (0,), (0, 4))
    assert repacked(empty, centre).shape == (0, 4)
    assert not centre_of(empty).any()


@pytest.mark.parametrize("dimension", [3, 4, 64, 384, 385])
def test_a_row_reads_the_same_whichever_rows_it_is_packed_with(dimension: int):
    rows = np.random.default_rng(7).standard_normal((1030, dimension)).astype(np.float32)
    centre = centre_of(rows[:1])
    rows += 3 * centre
    whole = repacked(rows, centre)
    for some in (slice(1), slice(5, 6), slice(1, 8), slice(3, 1030), slice(1023, 1029)):
        assert repacked(rows[some].copy(), centre).tobytes() == whole[some].tobytes()


def test_a_cone_has_its_axis_for_a_centre_and_a_ball_has_none():
    rows = cone(500)
    assert np.linalg.norm(centre_of(rows)) == pytest.approx(1)
    assert (rows @ centre_of(rows)).mean() > 0.8
    ball = np.random.default_rng(1).standard_normal((500, 64)).astype(np.float32)
    assert not centre_of(ball / np.linalg.norm(ball, axis=1, keepdims=True)).any()


def test_a_centre_keeps_scores_closer_to_what_they_were():
    rows = cone(500, 384)
    queries, passages = rows[:20], rows[20:]
    errors = [
        np.abs(queries @ (repacked(passages, centre) - passages).T).mean()
        for centre in (np.zeros(384, np.float32), centre_of(passages))
    ]
    assert errors[1] < errors[0] / 2


def test_float32_rows_come_back_bit_by_bit():
    original = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    assert (from_bytes([to_bytes(row) for row in original], 3) == original).all()
    assert from_bytes([], 3).shape == (0, 3)


def test_a_row_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="3 dimensions"):
        from_bytes([b"\0" * 12, b"\0" * 8], 3)
