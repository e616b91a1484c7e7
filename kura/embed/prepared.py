"""The prepared model file: everything that embedding needs, laid out to be memory-mapped.

    offset  bytes
    0       8      magic, "KURA-E5" and a zero byte
    8       4      version of this layout, little-endian like all that follows
    12      4      length of the header
    16      32     SHA-256 of the header
    48      …      the header, JSON: `model` (see `Model`), `size` of the file, and `tensors`:
                   name → `dtype` (numpy's notation), `shape`, `offset`, `sha256` of its bytes;
                   `languages`, where the vocabulary is less than the full one
    …       …      the tensors, each at a multiple of 64 bytes, zeros between

It holds no time and no path: equal input gives an equal file. Opening checks the header and the file's size, which
finds every truncated file; a tensor's own digest is checked when asked for (`Prepared.verify`), because reading the
whole file would cost a cold start more than all the rest.
"""

import hashlib
import json
import mmap
import os
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from kura.errors import EmbedderError

VERSION: Final = 1

BLOCK: Final = 32
"""Numbers of a 4-bit matrix that share one scale."""

_MAGIC = b"KURA-E5\0"
_PREAMBLE = struct.Struct("<8sII32s")
_ALIGNMENT = 64
_LONGEST_HEADER = 1 << 20
_ABANDONED_AFTER = 3600.0


@dataclass(frozen=True, slots=True)
class Model:
    """What a prepared file says of its model, besides the tensors.

    Attributes:
        name: Name of the embedder; the same for two files exactly if their vectors may be mixed.
        dimension: Length of a token's state and of a text's vector.
        heads: Attention heads per layer.
        epsilon: Added to the variance in layer normalisation.
        begin: Id of the token that begins each text.
        end: Id of the token that ends each text.
        unknown: Id for characters that no piece of the vocabulary has.
        longest: Characters in the longest piece of the vocabulary.
        languages: Codes of the languages that the vocabulary was cut down to; empty for the full one. Texts of these
            have the same vectors as by the full model, which is why the name does not tell.
    """

    name: str
    dimension: int
    heads: int
    epsilon: float
    begin: int
    end: int
    unknown: int
    longest: int
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    dtype: str
    shape: tuple[int, ...]
    offset: int
    sha256: str

    @property
    def size(self) -> int:
        size = np.dtype(self.dtype).itemsize
        for length in self.shape:
            size *= length
        return size


class Prepared:
    """An open prepared file. Its tensors are views of the mapped file, and keep it open as long as they are used."""

    def __init__(self, path: Path, model: Model, places: Mapping[str, _Place], mapped: mmap.mmap) -> None:
        self.model = model
        self._path = path
        self._places = places
        self._mapped = mapped

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a tensor, read-only and not read yet.

        Raises:
            EmbedderError: if the file has no such tensor.
        """
        place = self._places.get(name)
        if place is None:
            raise _damaged(self._path, f"it lacks the tensor {name}")
        flat = np.frombuffer(self._mapped, place.dtype, place.size // np.dtype(place.dtype).itemsize, place.offset)
        return flat.reshape(place.shape)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All tensors, in the order of the file."""
        return {name: self.tensor(name) for name in self._places}

    @property
    def pieces(self) -> int:
        """Pieces of the vocabulary."""
        return len(self.tensor("scores"))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._mapped)

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Compare tensors (all, where none is named) with their digests.

        Raises:
            EmbedderError: if one differs.
        """
        for name in self._places if names is None else names:
            if hashlib.sha256(self.tensor(name).data).hexdigest() != self._places[name].sha256:
                raise _damaged(self._path, f"the tensor {name} is not what was written")


def open_prepared(path: Path) -> Prepared:
    """Open a prepared file; checks its header and size, reads nothing else.

    Raises:
        EmbedderError: if it is not there, not a prepared file, of another version, or truncated.
    """
    try:
        with path.open("rb") as file:
            preamble = file.read(_PREAMBLE.size)
            header = _checked_header(path, preamble, file.read(_LONGEST_HEADER))
            size = os.fstat(file.fileno()).st_size
            if size != header["size"]:
                raise _damaged(path, f"it has {size} bytes instead of {header['size']}")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise EmbedderError(f'cannot read the model file "{path.name}": {error.strerror}') from error
    places = {
        name: _Place(entry["dtype"], tuple(entry["shape"]), entry["offset"], entry["sha256"])
        for name, entry in cast("dict[str, dict[str, Any]]", header["tensors"]).items()
    }
    model = Model(**header["model"], languages=tuple(header.get("languages", ())))
    return Prepared(path, model, places, mapped)


def is_prepared(path: Path) -> bool:
    """Say whether a file calls itself a prepared file, whole or not, of this version or another.

    Raises:
        EmbedderError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise EmbedderError(f'cannot read the model file "{path.name}": {error.strerror}') from error


def read_model(path: Path) -> Model:
    """Read what a prepared file says of its model, in well under a millisecond.

    Raises:
        EmbedderError: as in `open_prepared`.
    """
    return open_prepared(path).model


def write_prepared(path: Path, model: Model, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a prepared file in one step: at no moment does `path` hold part of one, whoever else writes it.

    Raises:
        EmbedderError: if it cannot be written.
    """
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    places: dict[str, _Place] = {}
    offset = 0
    for name, tensor in tensors.items():
        places[name] = _Place(tensor.dtype.str, tensor.shape, offset, hashlib.sha256(tensor.data).hexdigest())
        offset = _aligned(offset + tensor.nbytes)
    # Offsets count from the header's end, whose place depends on the digits in the offsets: so leave it a fixed room.
    start = _aligned(_PREAMBLE.size + len(_header_json(model, places, 1 << 40, 1 << 40)))
    header = _header_json(model, places, start, start + offset)
    preamble = _PREAMBLE.pack(_MAGIC, VERSION, len(header), hashlib.sha256(header).digest())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(preamble + header)
                for name, tensor in tensors.items():
                    file.write(b"\0" * (start + places[name].offset - file.tell()))
                    file.write(tensor.data)
                file.write(b"\0" * (start + offset - file.tell()))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EmbedderError(f'cannot write the model file "{path.name}": {error.strerror}') from error


def _header_json(model: Model, places: Mapping[str, _Place], start: int, size: int) -> bytes:
    tensors = {name: asdict(place) | {"offset": start + place.offset} for name, place in places.items()}
    # The languages stand apart and only where there are any: the full model's bytes stay what they were before there
    # were others, and a reader that does not know of languages reads both.
    about = asdict(model)
    languages = about.pop("languages")
    header = {"model": about, "size": size, "tensors": tensors}
    return json.dumps(header | ({"languages": languages} if languages else {})).encode()


def _checked_header(path: Path, preamble: bytes, rest: bytes) -> dict[str, Any]:
    if len(preamble) < _PREAMBLE.size or not preamble.startswith(_MAGIC):
        raise _damaged(path, "it is not a prepared model file")
    _, version, length, digest = _PREAMBLE.unpack(preamble)
    if version != VERSION:
        raise _damaged(path, f"it has layout {version}, and this Kura reads layout {VERSION}")
    if hashlib.sha256(rest[:length]).digest() != digest:
        raise _damaged(path, "its header is not what was written")
    return cast("dict[str, Any]", json.loads(rest[:length]))


def _damaged(path: Path, reason: str) -> EmbedderError:
    return EmbedderError(f'the model file "{path.name}" cannot be used: {reason}; prepare it again')


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _sweep(path: Path) -> None:
    """Remove what writers left behind that were killed."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        # A writer that is still at work may finish, and with it rename its file, between the listing and the look.
        with suppress(FileNotFoundError):
            if leftover.stat().st_mtime < time.time() - _ABANDONED_AFTER:
                leftover.unlink()
