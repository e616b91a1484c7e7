from pathlib import Path

import numpy as np

from kura.vectors.matrix import Matrix
from kura.vectors.room import in_files


def rows_of(count: int, dimension: int = 8, seed: int = 1) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def test_a_matrix_in_a_file_answers_like_one_in_memory(tmp_path: Path):
    allocate = in_files(tmp_path / "spill")
    rows = rows_of(500)
    mapped = allocate(500, 8)
    mapped[:] = rows
    ids = np.arange(1, 501)
    ours, theirs = Matrix(8, ids, mapped, allocate=allocate), Matrix(8, ids, rows)
    more = rows_of(700, seed=2)
    ours, theirs = (
        matrix.extended(np.arange(501, 1201), more).without(range(1, 1000, 2)).without(range(2, 400, 2))
        for matrix in (ours, theirs)
    )
    for query in rows_of(5, seed=3):
        for mine, expected in zip(ours.nearest(query, 50), theirs.nearest(query, 50), strict=True):
            assert mine.tobytes() == expected.tobytes()


def test_files_of_rows_have_no_name(tmp_path: Path):
    rows = in_files(tmp_path)(100, 8)
    rows[:] = 1
    assert list(tmp_path.iterdir()) == []
    assert rows.sum() == 800


def test_no_rows_need_no_file(tmp_path: Path):
    assert in_files(tmp_path / "none")(0, 8).shape == (0, 8)
    assert not (tmp_path / "none").exists()
