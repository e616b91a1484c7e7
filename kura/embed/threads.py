"""Any embedder, working in several threads at once: for indexing, where there is much to embed and a person waits."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from kura.embed import Embedder, Kind


class Threaded:
    """Shares each call's texts out among threads. The embedder must allow that, and gain from it: numpy's work does."""

    def __init__(self, embedder: Embedder, threads: int) -> None:
        self._embedder = embedder
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kura-embed")

    @property
    def name(self) -> str:
        """That of the embedder."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """That of the embedder."""
        return self._embedder.dimension

    @property
    def floor(self) -> float | None:
        """That of the embedder."""
        return self._embedder.floor

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Embed `texts` as the embedder does: shape (len(texts), dimension), in the order of the texts."""
        if len(texts) < 2:
            return self._embedder.embed(texts, kind)
        vectors = np.empty((len(texts), self.dimension), np.float32)
        # Every n-th text, so that a run of long ones does not fall to one thread.
        shares = [texts[start :: self._threads] for start in range(min(self._threads, len(texts)))]
        for start, part in enumerate(self._pool.map(self._embedder.embed, shares, repeat(kind))):
            vectors[start :: self._threads] = part
        return vectors
