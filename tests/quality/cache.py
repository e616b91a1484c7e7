"""Vectors kept between runs, so that measuring again takes seconds."""

import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import repeat
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from kura.embed import Embedder, Kind
from kura.text.estimate import estimate_tokens

_BATCH = 32


def cache_dir() -> Path:
    """Where vectors are kept: `KURA_QUALITY_CACHE`, or a folder among the user's caches."""
    named = os.environ.get("KURA_QUALITY_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("kura", appauthor=False) / "quality"


class CachedEmbedder:
    """An embedder that embeds no text twice, not even in another run. What it did before it was killed is kept.

    `floor` is the embedder's own unless it is set.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.count_tokens: Callable[[str], int] = getattr(embedder, "count_tokens", estimate_tokens)
        self.floor = embedder.floor
        self._embedder = embedder
        self._file = folder / (re.sub(r"[^\w.-]", "_", embedder.name) + ".db")
        with closing(self._open()) as connection:
            connection.execute("create table if not exists vectors (key blob primary key, vector blob) without rowid")

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        keys = [hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest() for text in texts]
        with closing(self._open()) as connection:
            missing = {
                key: text for key, text in zip(keys, texts, strict=True) if self._stored(connection, key) is None
            }
            todo = list(missing.items())
            batches = [todo[start : start + _BATCH] for start in range(0, len(todo), _BATCH)]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(self._embedder.embed, [[text for _, text in batch] for batch in batches], repeat(kind))
                for batch, vectors in zip(batches, made, strict=True):
                    rows = [(key, vector.tobytes()) for (key, _), vector in zip(batch, vectors, strict=True)]
                    connection.executemany("insert or replace into vectors values (?, ?)", rows)
                    connection.commit()
            stored = [self._stored(connection, key) or b"" for key in keys]
        return np.frombuffer(b"".join(stored), np.float32).reshape(len(texts), self.dimension)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=60)

    def _stored(self, connection: sqlite3.Connection, key: bytes) -> bytes | None:
        row: tuple[bytes] | None = connection.execute("select vector from vectors where key = ?", (key,)).fetchone()
        return row[0] if row else None
