"""A small embedder without a model: for tests, and for trying Kura out where nothing else is installed.

Texts that share words, or parts of words, come out similar; meaning it knows nothing of.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kura.embed import Kind

# Scripts that are written without spaces: kana, Han, Hangul, in which a word is taken to be two characters long.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_CJK_START = re.compile(f"[{_CJK}]")


class HashingEmbedder:
    """Hashes words and their character trigrams (of CJK text: characters and pairs) into signed counts.

    (K. Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", arXiv:0902.2206.) The same text gives
    the same vector in every process, on every machine; `kind` makes no difference.

    Args:
        dimension: Length of a vector.
    """

    # Chance makes strangers as alike as relatives, so no floor tells them apart.
    floor: float | None = None

    def __init__(self, dimension: int = 64) -> None:
        self.name = f"hashing-{dimension}"
        self.dimension = dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:  # noqa: ARG002 - the protocol's parameter
        """Embed `texts`; see `Embedder.embed`."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for feature, count in Counter(_features(text)).items():
                hashed = _hash(feature)
                vector[(hashed >> 1) % self.dimension] += np.sqrt(count) * (1 if hashed & 1 else -1)
            if not vector.any():  # nothing to go by, or all of it cancelled out
                vector[0] = 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def _features(text: str) -> Iterator[str]:
    for match in _WORDS.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match.group()
        if _CJK_START.match(word):
            yield from word
            yield from (first + second for first, second in pairwise(word))
        else:
            # The word itself counts twice, so that whole words outweigh chance likenesses.
            yield from (f"={word}", f"+{word}")
            bounded = f"<{word}>"
            yield from (bounded[i : i + 3] for i in range(len(bounded) - 2))


@lru_cache(maxsize=65_536)
def _hash(feature: str) -> int:
    digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
