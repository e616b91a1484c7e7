"""Any endpoint that speaks OpenAI's embeddings API, over HTTP.

Nothing of what arrives is trusted, and nothing of it is quoted: an error names host and model, says what was wrong and
what to do. The endpoint's own words go to the log, without the key where they repeat it. Errors are raised outside of
exception handlers, so that no exception of the HTTP library, which may know more, hangs on them.
"""

import json
import logging
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
from numpy.typing import NDArray

from kura.embed import Kind
from kura.embed.answer import read_vectors
from kura.embed.endpoint import Endpoint
from kura.embed.failure import Failure, refused, unreachable
from kura.errors import ConfigurationError, EmbedderError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an answer is waited for, all attempts and the pauses between them included."""

    seconds: float
    attempts: int


PATIENCE: Final[Mapping[Kind, Patience]] = {
    "query": Patience(seconds=10, attempts=3),  # a person or an agent waits
    "passage": Patience(seconds=120, attempts=8),  # outlasts a rate limit by the minute and a model that is loading
}

TEXTS: Final = 32
"""Texts in a request: what the strictest of the common servers takes (Text Embeddings Inference, as it comes)."""

CHARACTERS: Final = 100_000
"""Characters in a request: also in Chinese well below the 300,000 tokens that OpenAI takes."""

_CONNECT_SECONDS = 5.0
_LONGEST_PAUSE = 30.0
_MOST_BYTES = 32_000_000  # 32 vectors of 32,768 dimensions, in digits
_MOST_ERROR_BYTES = 65_536
_SHORTEST = 200  # characters; a model that finds this too long finds everything too long
_BLANK = "."  # in place of a text without any, which many endpoints refuse together with all the others in the request
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class OpenAIEmbedder:
    """An embeddings endpoint as an embedder. Its methods may be called from several threads at once.

    Nothing is asked before the first text. Which cosine similarity says nothing is not known of a model in general.

    Args:
        endpoint: Where it is and what to ask for.
        patience: How long to try.
        sleep: Waits for so many seconds.
        clock: Seconds, from any beginning.

    Raises:
        ConfigurationError: if the URL is none.
    """

    floor: float | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        patience: Mapping[Kind, Patience] = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint
        self._url = _embeddings_url(endpoint.url)
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._dimension = endpoint.dimensions
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        """Length of a vector. If nothing was embedded yet and it was not set, the endpoint is asked.

        Raises:
            EmbedderError: if the endpoint gives no usable answer.
        """
        return self._dimension or self.embed([_BLANK], "passage").shape[1]

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Embed `texts`; see `Embedder.embed`. What is too long for the model counts by its beginning.

        Raises:
            EmbedderError: if the endpoint cannot be reached, refuses, or answers with something else; where that may
                pass, after several attempts.
        """
        parts: list[NDArray[np.float32]] = []
        for batch in _batches([self._worded(text, kind) for text in texts]):
            parts += self._embedded(batch, kind, self._clock() + self._patience[kind].seconds)
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float32)

    def close(self) -> None:
        """Close the connections. The same happens when nobody holds the embedder any more, and at the end."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _worded(self, text: str, kind: Kind) -> str:
        prefix = self._endpoint.query_prefix if kind == "query" else self._endpoint.passage_prefix
        worded = _SURROGATE.sub("\ufffd", prefix + text)
        return worded if worded.strip() else _BLANK

    def _embedded(self, texts: Sequence[str], kind: Kind, until: float) -> Iterator[NDArray[np.float32]]:
        outcome = self._answer(texts, kind, until)
        if isinstance(outcome, bytes):
            yield self._vectors(outcome, len(texts))
        elif outcome.too_long and len(texts) > 1:
            half = len(texts) // 2
            yield from self._embedded(texts[:half], kind, until)
            yield from self._embedded(texts[half:], kind, until)
        elif outcome.too_long and len(texts[0]) > _SHORTEST:
            log.info("%s finds a text of %d characters too long; half of it counts", self._who(kind), len(texts[0]))
            yield from self._embedded([texts[0][: len(texts[0]) // 2]], kind, until)
        else:
            if outcome.words:
                log.warning("%s says: %s", self._who(kind), outcome.words)
            raise EmbedderError(f"{self._who(kind)} {outcome.reason}")

    def _vectors(self, content: bytes, count: int) -> NDArray[np.float32]:
        try:
            vectors = read_vectors(content, count)
        except EmbedderError as error:
            raise EmbedderError(f"{self._who('passage')} {error}") from None
        length = vectors.shape[1]
        with self._lock:
            expected = self._dimension = self._dimension or length
        if length != expected:
            why = "KURA_EMBEDDING_DIMENSIONS says" if self._endpoint.dimensions else "it sent before"
            raise EmbedderError(f"{self._who('passage')} sent vectors of {length} dimensions, {why} {expected}")
        return vectors

    def _answer(self, texts: Sequence[str], kind: Kind, until: float) -> bytes | Failure:
        """Ask until there is an answer, another attempt makes no sense, or patience is at its end."""
        body: dict[str, object] = {"model": self._model(kind), "input": list(texts), "encoding_format": "float"}
        if self._endpoint.dimensions is not None:
            body["dimensions"] = self._endpoint.dimensions
        content = json.dumps(body, ensure_ascii=False).encode()
        attempt = 0
        while True:
            attempt += 1
            outcome = self._attempt(content, until)
            if isinstance(outcome, bytes) or attempt >= min(outcome.attempts, self._patience[kind].attempts):
                return outcome
            pause = min(2.0 ** (attempt - 2), _LONGEST_PAUSE) * (0.5 + random.random() / 2)  # noqa: S311 - no secret
            if outcome.after is not None:
                # Not earlier than asked for, nor all who were told so at the same moment.
                pause = outcome.after + random.random()  # noqa: S311 - the same
            if self._clock() + pause >= until:
                return outcome
            self._sleep(pause)

    def _attempt(self, body: bytes, until: float) -> bytes | Failure:
        seconds = max(until - self._clock(), 0.01)
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._endpoint.key:
            headers["authorization"] = f"Bearer {self._endpoint.key}"
        timeout = httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds))
        try:
            with self._connected().stream(
                "POST", self._url, content=body, headers=headers, timeout=timeout
            ) as response:
                if response.is_success:
                    return self._content(response, until)
                return self._refusal(response, until)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return unreachable(error)

    def _content(self, response: httpx.Response, until: float) -> bytes | Failure:
        content = bytearray()
        for part in response.iter_bytes():
            content += part
            if len(content) > _MOST_BYTES:
                return Failure(f"sent more than {_MOST_BYTES:,} bytes for {TEXTS} texts or fewer")
            if self._clock() > until:  # each part came in time, but there is no end to them
                return Failure("did not finish its answer in time")
        return bytes(content)

    def _refusal(self, response: httpx.Response, until: float) -> Failure:
        content = bytearray()
        for part in response.iter_bytes():
            content += part
            if len(content) > _MOST_ERROR_BYTES or self._clock() > until:
                break
        return refused(response, bytes(content[:_MOST_ERROR_BYTES]), self._endpoint)

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                for name in ("httpx", "httpcore"):  # they would write whole URLs and headers into a talkative log
                    logging.getLogger(name).setLevel(logging.WARNING)
                self._client = _client()
                weakref.finalize(self, self._client.close)
            return self._client

    def _model(self, kind: Kind) -> str:
        return (self._endpoint.query_model if kind == "query" else None) or self._endpoint.model

    def _who(self, kind: Kind) -> str:
        return f'the embeddings endpoint {self._endpoint.host} (model "{self._model(kind)}")'


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == TEXTS or characters + len(text) > CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _client() -> httpx.Client:
    try:
        return httpx.Client(follow_redirects=False)
    except (ImportError, ValueError, httpx.InvalidURL):
        pass  # a proxy of the environment, whose URL may hold a password
    raise EmbedderError("the embeddings endpoint cannot be asked: a proxy that the environment names cannot be used")


def _embeddings_url(base: str) -> str:
    try:
        parts = urlsplit(base)
        path = parts.path.rstrip("/")
        path = path if path.endswith("/embeddings") else f"{path}/embeddings"
        url = urlunsplit(parts._replace(path=path, fragment=""))
        usable = parts.port != 0 and bool(httpx.URL(url).host)
    except (ValueError, httpx.InvalidURL):
        url, usable = "", False
    if not usable:
        raise ConfigurationError("KURA_EMBEDDING_URL is not a URL such as http://127.0.0.1:8000/v1")
    return url
