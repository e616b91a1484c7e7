"""Texts, vectors and databases to measure with, all made from a seed: two runs measure the same."""

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from kura.embed.choose import Choice, Identity
from kura.store.catalog import Catalog
from kura.store.segments import seal
from kura.store.sources import add_root, replace_source, set_embedder, text_hash
from kura.store.sqlite import open_for_writing
from kura.text.passage import passage
from kura.text.tokens import STOP_WORDS
from kura.types import Chunk

NAME = "bench"
"""What every database here is called."""

_HEADING = ("Pages",)
_PER_SOURCE = 50
_WORDS = 30_000
_CHINESE_WORDS = 8_000
_CHINESE_EVERY = 10


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured, and how often.

    Attributes:
        vectors: Sizes of the matrices.
        chunks: Chunks of the database that is served.
        many: Chunks of the database that is searched by keyword.
        folders: Folders of `files` files each.
        files: See there.
        passages: How many are embedded at once.
        embedders: Which of them processes start with.
        rounds: Runs of what takes milliseconds; what takes longer is run less often.
    """

    vectors: tuple[int, ...] = (10_000, 100_000)
    chunks: int = 10_000
    many: int = 100_000
    folders: int = 100
    files: int = 100
    passages: int = 8
    embedders: tuple[Choice, ...] = ("hashing", "e5")
    rounds: int = 30

    def rounds_of(self, share: float) -> int:
        """A part of the rounds, and one at least."""
        return max(1, round(self.rounds * share))


@dataclass(frozen=True, slots=True)
class Bench:
    """What every row gets: how much to measure, and a folder to do it in."""

    scale: Scale
    folder: Path

    def served(self, embedder: Identity) -> Path:
        """The data directory of a database of `scale.chunks` chunks with vectors as if that embedder had made them."""
        data_dir = self.folder / f"served-{embedder.name}"
        if not data_dir.exists():
            fill(data_dir, texts(self.scale.chunks), embedder)
        return data_dir

    def vectors(self, count: int, dimension: int) -> Path:
        """The data directory of a database of so many vectors, under texts that say little."""
        data_dir = self.folder / f"vectors-{count}"
        if not data_dir.exists():
            fill(data_dir, [f"passage {number}" for number in range(count)], Identity("bench", dimension))
        return data_dir

    def searched(self) -> Path:
        """The data directory of a database of `scale.many` chunks without vectors."""
        data_dir = self.folder / "searched"
        if not data_dir.exists():
            fill(data_dir, texts(self.scale.many), None)
        return data_dir


def unit_vectors(count: int, dimension: int, *, seed: int = 1, lean: float = 0.0) -> NDArray[np.float32]:
    """Random rows of unit length, shape (count, dimension); with `lean`, in a cone, as those of embedders lie."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    rows[:, 0] += lean * np.sqrt(dimension)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@functools.cache
def english_words() -> tuple[str, ...]:
    """Words by their rank: stop words first, then what no language has but what reads and stems like one."""
    random = np.random.default_rng(2)
    found = dict.fromkeys(sorted(STOP_WORDS)[:60])
    while len(found) < _WORDS:
        syllables = zip(random.integers(16, size=4), random.integers(5, size=4), strict=True)
        word = "".join("bcdfghklmnprstvz"[consonant] + "aeiou"[vowel] for consonant, vowel in syllables)
        found[word[: 2 * random.integers(2, 5)]] = None
    return tuple(found)


@functools.cache
def chinese_words() -> tuple[str, ...]:
    """Words of two characters by their rank."""
    pairs = np.random.default_rng(3).integers(0x4E00, 0x4E00 + 2500, size=(_CHINESE_WORDS, 2))
    return tuple(chr(first) + chr(second) for first, second in pairs)


def texts(count: int) -> list[str]:
    """Passages of 60 to 120 words, one in ten Chinese; a word comes up as its rank says (Zipf and Mandelbrot)."""
    random = np.random.default_rng(4)
    lengths = random.integers(60, 121, count)
    english = iter(_drawn(english_words(), int(lengths.sum()), random))
    chinese = iter(_drawn(chinese_words(), int(lengths[::_CHINESE_EVERY].sum()), random))
    return [
        "".join(next(chinese) for _ in range(length)) + "。"
        if number % _CHINESE_EVERY == 0
        else " ".join(next(english) for _ in range(length)) + "."
        for number, length in enumerate(lengths.tolist())
    ]


def _drawn(words: Sequence[str], count: int, random: np.random.Generator) -> list[str]:
    shares: NDArray[np.float64] = np.cumsum(1 / (np.arange(len(words)) + 2.7))
    places = cast(NDArray[np.intp], np.searchsorted(shares, random.random(count) * shares[-1]))
    return [words[place] for place in cast(list[int], places.tolist())]


def fill(data_dir: Path, contents: Sequence[str], embedder: Identity | None) -> None:
    """Create a database of these passages, through the functions that indexing uses; vectors are random ones."""
    catalog = Catalog(data_dir)
    with closing(open_for_writing(catalog.path(catalog.add(NAME)))) as connection:
        if embedder is not None and embedder.dimension is not None:
            set_embedder(connection, embedder.name, embedder.dimension)
            vectors = unit_vectors(len(contents), embedder.dimension, lean=2.0)
        else:
            vectors = np.empty((len(contents), 0), np.float32)
        root = add_root(connection, "/bench", "bench")
        for start in range(0, len(contents), _PER_SOURCE):
            chunks = [
                Chunk(ordinal, content, _HEADING, 10 * ordinal, 10 * ordinal + 9)
                for ordinal, content in enumerate(contents[start : start + _PER_SOURCE], 1)
            ]
            hashes = [text_hash(passage(chunk.heading, chunk.content)) for chunk in chunks]
            replace_source(
                connection,
                root.id,
                f"pages/{start}.md",
                content_hash=hashes[0],
                size=1,
                mtime_ns=1,
                chunks=chunks,
                vectors=dict(zip(hashes, vectors[start:], strict=False)) if embedder is not None else {},
            )
        seal(connection)
