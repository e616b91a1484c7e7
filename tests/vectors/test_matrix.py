import numpy as np
import pytest

from kura.vectors.matrix import Ids, Matrix, Rows


def random_rows(count: int, dimension: int = 8, seed: int = 1) -> Rows:
    rows = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def ids_from(first: int, count: int) -> Ids:
    return np.arange(first, first + count, dtype=np.int64)


def brute(ids: Ids, rows: Rows, query: Rows, k: int) -> list[int]:
    scores = rows @ query
    return [int(ids[i]) for i in sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))][:k]


@pytest.mark.parametrize("k", [1, 2, 10, 99, 100, 101, 1000])
def test_the_nearest_are_those_that_sorting_everything_gives(k: int):
    ids, rows, query = ids_from(5, 100), random_rows(100), random_rows(1, seed=2)[0]
    found, scores = Matrix(8, ids, rows).nearest(query, k)
    assert found.tolist() == brute(ids, rows, query, k)
    assert scores.shape == (min(k, 100),)
    assert (np.diff(scores) <= 0).all()


@pytest.mark.parametrize("k", [1, 3, 7])
def test_equal_scores_come_in_the_order_of_their_ids(k: int):
    rows = np.repeat(np.eye(2, 8, dtype=np.float32), 5, axis=0)
    found, _ = Matrix(8, ids_from(10, 10), rows).nearest(np.eye(1, 8, dtype=np.float32)[0], k)
    assert found.tolist() == list(range(10, 10 + k))


@pytest.mark.parametrize("k", [0, -1, 5])
def test_an_empty_matrix_has_nothing_near(k: int):
    found, scores = Matrix(8).nearest(np.ones(8, np.float32), k)
    assert (found.shape, scores.shape) == ((0,), (0,))
    assert (len(Matrix(8)), Matrix(8).last_id) == (0, 0)


@pytest.mark.parametrize("dimension", [0, 7, 9])
def test_a_query_of_another_dimension_is_an_error(dimension: int):
    with pytest.raises(ValueError, match="shape"):
        Matrix(8, ids_from(1, 3), random_rows(3)).nearest(np.ones(dimension, np.float32), 1)


def test_rows_and_ids_must_fit_each_other():
    with pytest.raises(ValueError, match="need rows"):
        Matrix(8, ids_from(1, 3), random_rows(2))


def test_new_ids_must_lie_above_those_there_are():
    with pytest.raises(ValueError, match="above 3"):
        Matrix(8, ids_from(1, 3), random_rows(3)).extended(ids_from(3, 1), random_rows(1))


@pytest.mark.parametrize("gone", [[4], [1, 2], list(range(1, 20)), list(range(2, 21)), list(range(1, 21)), [99], []])
def test_what_is_taken_out_is_found_no_more(gone: list[int]):
    ids, rows, query = ids_from(1, 20), random_rows(20), random_rows(1, seed=2)[0]
    left = Matrix(8, ids, rows).without(gone)
    kept = ~np.isin(ids, gone)
    assert len(left) == kept.sum()
    assert left.nearest(query, 20)[0].tolist() == brute(ids[kept], rows[kept], query, 20)
    assert left.last_id == 20


def test_taking_out_in_steps_is_taking_out_at_once():
    ids, rows, query = ids_from(1, 40), random_rows(40), random_rows(1, seed=2)[0]
    stepwise = Matrix(8, ids, rows)
    for gone in range(1, 38):
        stepwise = stepwise.without([gone])
    assert stepwise.nearest(query, 40)[0].tolist() == brute(ids[37:], rows[37:], query, 40)


def test_a_matrix_is_undisturbed_by_those_that_come_from_it():
    ids, rows, query = ids_from(1, 20), random_rows(20), random_rows(1, seed=2)[0]
    old = Matrix(8, ids.copy(), rows.copy())
    old = old.extended(ids_from(21, 1), rows[:1])  # from here on there is room to share
    before = [values.tolist() for values in old.nearest(query, 50)]
    newer = old
    for step in range(60):
        newer = newer.extended(ids_from(22 + 50 * step, 50), random_rows(50, seed=step)).without([step, 30 + step])
    old.without(range(1, 20))
    assert [values.tolist() for values in old.nearest(query, 50)] == before
    assert newer.last_id == 22 + 50 * 59 + 49


def test_two_that_grow_from_the_same_one_do_not_write_over_each_other():
    query = random_rows(1, seed=2)[0]
    base = Matrix(8, ids_from(1, 4), random_rows(4)).extended(ids_from(5, 1), random_rows(1, seed=3))
    first = base.extended(ids_from(6, 2), random_rows(2, seed=4))
    before = [values.tolist() for values in first.nearest(query, 9)]
    second = base.extended(ids_from(7, 2), random_rows(2, seed=5))
    assert [values.tolist() for values in first.nearest(query, 9)] == before
    assert sorted(second.nearest(query, 9)[0].tolist()) == [1, 2, 3, 4, 5, 7, 8]


def test_growing_one_row_at_a_time_copies_seldom():
    matrix, sizes = Matrix(8), set[int]()
    for new in range(1, 5001):
        matrix = matrix.extended(ids_from(new, 1), random_rows(1, seed=new))
        sizes.add(matrix.nbytes)
    assert len(matrix) == 5000
    assert len(sizes) < 8


def test_growing_by_nothing_gives_the_same_matrix():
    matrix = Matrix(8, ids_from(1, 3), random_rows(3))
    assert matrix.extended(ids_from(4, 0), random_rows(0)) is matrix
    assert matrix.without([77]) is matrix


def test_random_growth_and_loss_leave_exactly_what_is_alive():
    generator = np.random.default_rng(7)
    for _ in range(30):
        matrix, alive, last = Matrix(4), dict[int, Rows](), 0
        for _ in range(25):
            count = int(generator.integers(0, 40))
            rows = generator.standard_normal((count, 4)).astype(np.float32)
            ids = last + 1 + np.sort(generator.choice(100, count, replace=False)).astype(np.int64)
            matrix = matrix.extended(ids, rows)
            alive |= dict(zip(ids.tolist(), rows, strict=True))
            last = int(ids[-1]) if count else last
            gone = [key for key in alive if generator.random() < 0.3]
            matrix = matrix.without(gone)
            alive = {key: row for key, row in alive.items() if key not in gone}
            assert matrix.last_id == last
        query = np.ones(4, np.float32)
        stack = np.stack(list(alive.values()))
        expected = brute(np.array(list(alive), np.int64), stack, query, len(alive))
        found, scores = matrix.nearest(query, 10_000)
        assert set(found.tolist()) == set(expected)
        np.testing.assert_allclose(scores, sorted(stack @ query, reverse=True), atol=1e-5)
