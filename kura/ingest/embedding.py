"""Sources on their way into the store: their new texts are gathered, embedded in batches, and written along."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kura.embed import Embedder
from kura.errors import EmbedderError
from kura.store.engine import Connection
from kura.store.sources import Vector, attach, pending, replace_source, stored_hashes
from kura.types import Chunk

BATCH = 64
"""Texts that are embedded at once, from as many sources as it takes."""

_MOST_WAITING = 4_000_000  # characters of sources that wait until a batch is full


@dataclass(frozen=True, slots=True)
class Model:
    """An embedder, known by name and dimension, that is loaded when there is something to split or to embed.

    `dimension` is None where the first vectors tell it. `threads` of them work at once.
    """

    name: str
    dimension: int | None
    load: Callable[[], Embedder]
    threads: int = 1

    @classmethod
    def of(cls, embedder: Embedder) -> "Model":
        """An embedder that is loaded already."""
        return cls(embedder.name, embedder.dimension, lambda: embedder)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A source that is ready to be written. `texts` has what stands for its chunks, by text hash."""

    root_id: int
    path: str
    content_hash: str
    size: int
    mtime_ns: int
    chunks: tuple[Chunk, ...]
    texts: Mapping[str, str]


@dataclass(slots=True)
class Embedding:
    """Writes sources with their vectors, in the order in which they come.

    A source with more new texts than a batch is written at once, for keyword search, and its vectors are left to
    `fill`, which stores them batch by batch: one long file neither holds up the others nor loses an hour's work by
    stopping. `claim` is told the length of the first vectors. If the embedder fails, everything is written without
    vectors, which a later run makes, and `failure` says why.
    """

    connection: Connection
    embedder: Callable[[], Embedder] | None
    embedded: Callable[[int], None]
    should_stop: Callable[[], bool]
    claim: Callable[[int], None] | None = None
    failure: str | None = None
    _window: list[Prepared] = field(default_factory=list[Prepared])
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _characters: int = 0

    def add(self, source: Prepared) -> None:
        """Write the source, now or when a batch is full."""
        if self.embedder is None:
            self._write(source, {})
            return
        stored = stored_hashes(self.connection, source.texts.keys())
        fresh = {digest: text for digest, text in source.texts.items() if digest not in stored}
        if len(fresh) > BATCH:
            self.flush()
            self._write(source, {})
            return
        self._window.append(source)
        self._texts |= fresh
        self._characters += sum(map(len, source.texts.values()))
        if not self._texts or len(self._texts) >= BATCH or self._characters > _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what is kept back. When the run is to stop, without waiting for vectors."""
        texts = list(self._texts.items())
        vectors: dict[str, Vector] = {}
        for start in range(0, len(texts), BATCH):
            vectors |= self._embed(dict(texts[start : start + BATCH]))
        for source in self._window:
            self._write(source, vectors)
        self._window.clear()
        self._texts.clear()
        self._characters = 0

    def fill(self) -> None:
        """Embed whatever in the database waits for a vector."""
        while self.embedder is not None and not self.should_stop():
            batch = dict(pending(self.connection, BATCH))
            vectors = self._embed(batch)
            if not vectors:
                return
            try:
                attach(self.connection, vectors)
            except EmbedderError as error:
                self._give_up(error)

    def _embed(self, texts: Mapping[str, str]) -> dict[str, Vector]:
        if not texts or self.embedder is None or self.should_stop():
            return {}
        try:
            vectors = self.embedder().embed(list(texts.values()), "passage")
            if self.claim is not None:
                self.claim(vectors.shape[1])
                self.claim = None
        except EmbedderError as error:
            self._give_up(error)
            return {}
        self.embedded(len(texts))
        return dict(zip(texts, vectors, strict=True))

    def _write(self, source: Prepared, vectors: Mapping[str, Vector]) -> None:
        try:
            self._replace(source, vectors)
        except EmbedderError as error:  # a vector that is no use
            self._give_up(error)
            self._replace(source, {})

    def _replace(self, source: Prepared, vectors: Mapping[str, Vector]) -> None:
        replace_source(
            self.connection,
            source.root_id,
            source.path,
            content_hash=source.content_hash,
            size=source.size,
            mtime_ns=source.mtime_ns,
            chunks=source.chunks,
            vectors=vectors,
        )

    def _give_up(self, error: EmbedderError) -> None:
        self.embedder = None
        self.failure = str(error)
