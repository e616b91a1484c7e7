import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kura.embed.e5 import E5
from kura.embed.prepared import open_prepared
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
def model_file(cache_dir: Path) -> Path:
    return prepared_file(cache_dir)


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
