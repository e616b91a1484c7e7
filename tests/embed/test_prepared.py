import os
import signal
import struct
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed.prepared import Model, open_prepared, read_model, write_prepared
from kura.errors import EmbedderError

MODEL = Model("small", 8, heads=2, epsilon=1e-12, begin=0, end=2, unknown=3, longest=16)


def tensors(seed: int = 0, size: int = 1000) -> dict[str, NDArray[Any]]:
    draw = np.random.default_rng(seed)
    return {
        "numbers": draw.standard_normal((size, 3), np.float32),
        "odd": np.arange(7, dtype=np.uint8),
        "turned": np.arange(12, dtype=np.int32).reshape(3, 4).T,
        "none": np.empty((0, 4), np.float16),
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    write_prepared(path, MODEL, tensors())
    return path


def test_what_was_written_is_read_back(file: Path) -> None:
    prepared = open_prepared(file)
    prepared.verify()
    assert prepared.model == read_model(file) == MODEL
    for name, tensor in tensors().items():
        np.testing.assert_array_equal(prepared.tensor(name), tensor)
        assert prepared.tensor(name).dtype == tensor.dtype


def test_every_tensor_is_aligned_and_cannot_be_written(file: Path) -> None:
    prepared = open_prepared(file)
    for name in ("numbers", "odd", "turned"):
        assert prepared.tensor(name).ctypes.data % 64 == 0
        assert not prepared.tensor(name).flags.writeable


def test_equal_input_gives_an_equal_file(file: Path, tmp_path: Path) -> None:
    write_prepared(tmp_path / "other.bin", MODEL, tensors())
    assert (tmp_path / "other.bin").read_bytes() == file.read_bytes()


def test_others_may_read_the_file_as_the_umask_has_it(file: Path) -> None:
    plain = file.with_name("plain")
    plain.touch()
    assert file.stat().st_mode == plain.stat().st_mode


def test_a_file_that_lost_its_end_is_refused_wherever_it_was_cut(file: Path) -> None:
    content = file.read_bytes()
    for length in [*range(0, 200, 7), 500, len(content) // 2, len(content) - 1]:
        file.write_bytes(content[:length])
        with pytest.raises(EmbedderError, match=r'"model\.bin" cannot be used: .*; prepare it again'):
            open_prepared(file)


@pytest.mark.parametrize("position", [0, 12, 20, 60, 300], ids=["magic", "length", "digest", "header", "tensors"])
def test_a_flipped_bit_in_the_header_is_found_on_opening(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(EmbedderError, match="cannot be used"):
        open_prepared(file)


def test_a_flipped_bit_in_a_tensor_is_found_by_verifying_that_tensor(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(bytes(range(7))) + 3] ^= 1
    file.write_bytes(content)
    prepared = open_prepared(file)
    prepared.verify(["numbers", "turned"])
    with pytest.raises(EmbedderError, match="the tensor odd is not what was written"):
        prepared.verify()


def test_another_layout_is_named(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[8:12] = struct.pack("<I", 99)
    file.write_bytes(content)
    with pytest.raises(EmbedderError, match="layout 99, and this Kura reads layout 1"):
        open_prepared(file)


def test_a_missing_file_or_tensor_is_named_without_its_folder(file: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r'^cannot read the model file "absent\.bin": No such file'):
        open_prepared(tmp_path / "absent.bin")
    with pytest.raises(EmbedderError, match="lacks the tensor absent"):
        open_prepared(file).tensor("absent")


def write_again_and_again(path: Path) -> None:
    for _ in range(40):
        write_prepared(path, MODEL, tensors(size=20_000))


def test_writers_at_the_same_time_never_show_a_reader_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_prepared(path, MODEL, tensors(size=20_000))
    spawn = get_context("spawn")
    writers = [spawn.Process(target=write_again_and_again, args=(path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        open_prepared(path).verify()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.bin"]


ENDLESS_WRITER = """
import sys, pathlib, numpy
from kura.embed.prepared import Model, write_prepared
model = Model("small", 8, heads=2, epsilon=1e-12, begin=0, end=2, unknown=3, longest=16)
print("ready", flush=True)
while True:
    write_prepared(pathlib.Path(sys.argv[1]), model, {"a": numpy.zeros(4_000_000), "b": numpy.ones(10)})
"""


def test_a_killed_writer_leaves_the_old_file_whole_and_its_leavings_are_swept_up(file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS_WRITER, str(file)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        deadline = time.monotonic() + 20
        while not list(file.parent.glob(".model.bin.*.tmp")) and time.monotonic() < deadline:
            pass
        writer.send_signal(signal.SIGKILL)
    open_prepared(file).verify()
    leftovers = list(file.parent.glob(".model.bin.*.tmp"))
    for leftover in leftovers:
        os.utime(leftover, (0, 0))
    write_prepared(file, MODEL, tensors())
    assert [entry.name for entry in file.parent.iterdir()] == ["model.bin"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(EmbedderError, match=r'^cannot write the model file "model\.bin": '):
        write_prepared(tmp_path / "taken" / "model.bin", MODEL, tensors())
