import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kura.store.copies import file_of, keep, kept
from kura.store.segments import Vectors
from kura.store.sources import State, Statistics
from kura.vectors.matrix import Matrix

STATE = State(3, 17, 1, "hashing-8", 8, None, "2026-01-01T00:00:00Z")
COUNTS = Statistics(2, 1000, 1000, 0, None)


@pytest.fixture
def vectors() -> Vectors:
    rows = np.random.default_rng(1).standard_normal((1000, 8)).astype(np.float32)
    return Vectors(STATE, COUNTS, Matrix(8, np.arange(1, 1001), rows).without([5, 1000]))


def nearest(vectors: Vectors) -> tuple[bytes, bytes]:
    assert vectors.matrix is not None
    ids, scores = vectors.matrix.nearest(np.ones(8, np.float32), 100)
    return ids.tobytes(), scores.tobytes()


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path, vectors: Vectors):
    file = file_of(tmp_path / "copies", "https://notes.example")
    assert kept(file) is None
    keep(file, vectors)
    found = kept(file)
    assert found is not None
    assert found.matrix is not None
    assert vectors.matrix is not None
    assert replace(found, matrix=None) == replace(vectors, matrix=None)
    assert nearest(found) == nearest(vectors)
    assert found.matrix.last_id == vectors.matrix.last_id == 1000
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert "example" not in file.name


def test_what_grows_out_of_it_leaves_the_file_alone(tmp_path: Path, vectors: Vectors):
    file = tmp_path / "a.vectors"
    keep(file, vectors)
    before = file.read_bytes()
    found = kept(file)
    assert found is not None
    assert found.matrix is not None
    grown = found.matrix.extended(np.array([2000]), np.ones((1, 8), np.float32))
    assert grown.nearest(np.ones(8, np.float32), 1)[0].tolist() == [2000]
    assert file.read_bytes() == before


def flipped(data: bytearray) -> bytes:
    data[-7] ^= 1
    return bytes(data)


def of_another_form(data: bytearray) -> bytes:
    head = json.loads(bytes(data[:4096])) | {"form": "kura-vectors/0"}
    return json.dumps(head).encode().ljust(4096) + bytes(data[4096:])


DAMAGES: dict[str, Callable[[bytearray], bytes]] = {
    "a bit": flipped,
    "form": of_another_form,
    "cut": lambda data: bytes(data[:-1]),
    "cut in the head": lambda data: bytes(data[:100]),
    "empty": lambda _data: b"",
    "no head": lambda data: bytes(4096) + bytes(data[4096:]),
    "longer": lambda data: bytes(data) + b"more",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_copy_that_is_damaged_is_none(
    tmp_path: Path, vectors: Vectors, damage: Callable[[bytearray], bytes], caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "a.vectors"
    keep(file, vectors)
    file.write_bytes(damage(bytearray(file.read_bytes())))
    with caplog.at_level(logging.WARNING):
        assert kept(file) is None
    keep(file, vectors)
    assert kept(file) is not None


def test_where_nothing_can_be_written_there_is_a_warning_and_no_copy(
    tmp_path: Path, vectors: Vectors, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "copies").write_text("a file is in the way")
    keep(tmp_path / "copies" / "a.vectors", vectors)
    assert "vectors cannot be kept" in caplog.text
    assert str(tmp_path) not in caplog.text
