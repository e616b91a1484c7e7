"""Vectors of databases on servers, kept in files between the starts of a process.

A file holds what `load` gave, as float32, and is mapped into memory by the next process, which then loads the
difference alone. Each carries a checksum; one that is damaged, of another form, or of a generation that has passed is
of no use and is replaced.
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kura.store.segments import Vectors
from kura.store.sources import State, Statistics
from kura.vectors.matrix import Matrix

log = logging.getLogger(__name__)

_FORM = "kura-vectors/1"
_HEAD = 4096
"""Bytes of the description at the beginning; what follows is aligned to pages."""

_PIECE = 1 << 22


def file_of(directory: Path, url: str) -> Path:
    """The file for a database; its name does not tell the address."""
    return directory / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.vectors"


def keep(file: Path, vectors: Vectors) -> None:
    """Write a copy, in place of the one that was there before; where that cannot be done, there is none."""
    if vectors.matrix is None:
        return
    ids, rows, dead = vectors.matrix.parts()
    pieces = [ids.astype("<i8", copy=False), dead.astype(np.uint8), rows.astype("<f4", copy=False)]
    part = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            out.seek(_HEAD)
            checksum = 0
            for piece in pieces:
                out.seek(-out.tell() % 64, os.SEEK_CUR)
                for data in _bytes(piece):
                    checksum = zlib.crc32(data, checksum)
                    out.write(data)
            head = {
                "form": _FORM,
                "checksum": checksum,
                "count": len(ids),
                "dimension": vectors.matrix.dimension,
                "state": asdict(vectors.state),
                "counts": asdict(vectors.counts),
            }
            out.seek(0)
            out.write(json.dumps(head).encode().ljust(_HEAD))
        part.replace(file)
    except OSError as error:
        log.warning("vectors cannot be kept for the next start: %s", error.strerror)
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def kept(file: Path) -> Vectors | None:
    """What was kept, mapped into memory, or None where there is nothing usable."""
    try:
        with file.open("rb") as opened:
            head: dict[str, Any] = json.loads(opened.read(_HEAD))
        if head["form"] != _FORM:
            return None
        count, dimension = int(head["count"]), int(head["dimension"])
        places = _places(count, dimension)
        if file.stat().st_size != places[-1]:
            return None
        # Copy on write: nothing that this process does to its matrix comes into the file.
        data = np.memmap(file, np.uint8, "c")
        ids, dead, rows = (data[start:end] for start, end in zip(places[::2], places[1::2], strict=True))
        checksum = 0
        for piece in (ids, dead, rows):
            for block in _bytes(np.asarray(piece)):
                checksum = zlib.crc32(block, checksum)
        if checksum != head["checksum"]:
            log.warning("the vectors that were kept are damaged; they are loaded anew")
            return None
        matrix = Matrix.of_parts(
            np.asarray(ids).view("<i8"), np.asarray(rows).view("<f4").reshape(count, dimension), np.asarray(dead) != 0
        )
        return Vectors(State(**head["state"]), Statistics(**head["counts"]), matrix)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.warning("the vectors that were kept cannot be read; they are loaded anew")
        return None


def _places(count: int, dimension: int) -> list[int]:
    """Where ids, marks and rows begin and end."""
    places: list[int] = []
    at = _HEAD
    for size in (8 * count, count, 4 * count * dimension):
        at += -at % 64
        places += [at, at + size]
        at += size
    return places


def _bytes(piece: "np.ndarray[Any, Any]") -> Iterator[memoryview]:
    flat = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _PIECE):
        yield flat[start : start + _PIECE].data
