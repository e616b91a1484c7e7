"""What an embeddings endpoint answered, as vectors, or as an error that says what came instead.

The shape is that of OpenAI's API reference, "Create embeddings": `{"data": [{"index": 0, "embedding": […]}, …]}`, each
embedding an array of numbers or base64 of little-endian float32.
"""

import base64
import binascii
import json
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kura.errors import EmbedderError


def read_vectors(content: bytes, count: int) -> NDArray[np.float32]:
    """Read the vectors of `count` texts.

    Returns:
        Shape (count, dimension), float32, each row of unit length, in the order of the texts.

    Raises:
        EmbedderError: if that is not what the answer holds; the text goes on from the name of the endpoint, and quotes
            nothing of the answer.
    """
    vectors = [_numbers(embedding) for embedding in _in_order(_entries(content), count)]
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) != 1 or not lengths[0]:
        shown = ", ".join(map(str, lengths))
        raise EmbedderError(f"sent vectors of {shown} dimensions in one answer, expected one length above 0")
    matrix = np.stack(vectors)
    if not np.isfinite(matrix).all():
        raise EmbedderError("sent a vector with numbers that are not finite")
    # First to 1 at most: the squares of what is far from 1 would overflow, or vanish.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not largest.all():
        raise EmbedderError("sent a vector that is all zeros")
    matrix /= largest
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix.astype(np.float32)


def read_words(content: bytes) -> str:
    """What an error answer says in words; empty where it is a page or has none."""
    try:
        answer: Any = json.loads(content)
    except (ValueError, RecursionError):
        text = content.decode("utf-8", "replace")
        return "" if "<" in text else text
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict) and name in answer:
            answer = cast("dict[str, Any]", answer)[name]
    return answer if isinstance(answer, str) else ""


def _entries(content: bytes) -> list[dict[str, Any]]:
    try:
        answer: Any = json.loads(content)
    except (ValueError, RecursionError):
        # Outside of the handler: the decoder's exception keeps the whole text.
        answer = None
    if answer is None:
        page = content.lstrip()[:1] == b"<"
        kind = "a web page" if page else "nothing" if not content.strip() else "no JSON, or only a part of it"
        raise EmbedderError(f"sent {kind} in place of vectors; is KURA_EMBEDDING_URL the base URL of the API?")
    data: Any = cast("dict[str, Any]", answer).get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise EmbedderError('sent JSON without a list "data"; is it an embeddings API?')
    entries = cast("list[Any]", data)
    if not all(isinstance(entry, dict) and "embedding" in entry for entry in entries):
        raise EmbedderError('sent an entry without an "embedding"')
    return entries


def _in_order(entries: list[dict[str, Any]], count: int) -> list[Any]:
    if len(entries) != count:
        raise EmbedderError(f"sent {len(entries)} vectors for {count} texts")
    # Some servers leave the index out; then the order is that of the texts.
    places: list[Any] = [entry.get("index", place) for place, entry in enumerate(entries)]
    if any(type(place) is not int for place in places) or sorted(places) != list(range(count)):
        raise EmbedderError(f'sent vectors whose "index" does not count from 0 to {count - 1}')
    at = {place: entry["embedding"] for place, entry in zip(places, entries, strict=True)}
    return [at[place] for place in range(count)]


def _numbers(embedding: Any) -> NDArray[np.float64]:  # noqa: ANN401 - whatever JSON can hold
    vector: NDArray[np.float64] | None = None
    try:
        if isinstance(embedding, str):
            raw = base64.b64decode(embedding, validate=True)
            vector = np.frombuffer(raw, "<f4").astype(np.float64)
        elif isinstance(embedding, list) and {float, int}.issuperset(map(type, cast("list[Any]", embedding))):
            vector = np.asarray(embedding, np.float64)
    except (binascii.Error, ValueError, OverflowError):
        pass
    if vector is None:
        raise EmbedderError("sent an embedding that is neither a list of numbers nor base64 of float32")
    return vector
