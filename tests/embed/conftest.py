import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

from kura.embed.e5 import E5
from kura.embed.prepared import open_prepared
from kura.embed.prune import build
from kura.embed.unigram import Unigram
from kura.embed.weights import find_source, prepared_file


class Vocabulary(NamedTuple):
    pieces: list[str]
    scores: list[float]
    unknown: int


@pytest.fixture(scope="session")
def source() -> Path:
    found = find_source()
    assert found is not None, "the extra e5 belongs to the development environment"
    return found


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the prepared file in it: made in five seconds, once for all of pytest's processes."""
    directory = tmp_path_factory.getbasetemp().parent / "kura-embed-cache"
    directory.mkdir(exist_ok=True)
    with FileLock(directory / "lock"):
        prepared_file(directory)
    return directory


@pytest.fixture(scope="session")
def model_file(cache_dir: Path) -> Path:
    return prepared_file(cache_dir)


@pytest.fixture(scope="session")
def small_file(cache_dir: Path) -> Path:
    """The model file for English and Chinese: made in three seconds, once for all of pytest's processes."""
    file = cache_dir / "en-zh.bin"
    with FileLock(cache_dir / "lock"):
        if not file.exists():
            build(prepared_file(cache_dir), file, ("en", "zh"))
    return file


@pytest.fixture(scope="session")
def e5(model_file: Path) -> E5:
    return E5.load(model_file)


@pytest.fixture(scope="session")
def unigram(model_file: Path) -> Unigram:
    return Unigram.of(open_prepared(model_file))


@pytest.fixture(scope="session")
def vocabulary(source: Path) -> Vocabulary:
    """The published pieces and scores, read without Kura's code."""
    content = source.read_bytes()
    count, _, _, _, unknown, size = struct.unpack_from("<5iQ", content, 44)
    ends = struct.unpack_from(f"<{count + 1}I", content, 72)
    scores = struct.unpack_from(f"<{count}f", content, 72 + 4 * len(ends))
    start = 72 + 4 * len(ends) + 4 * count
    joined = content[start : start + size]
    pieces = [joined[a:b].decode() for a, b in pairwise(ends)]
    return Vocabulary(pieces, list(scores), unknown)
