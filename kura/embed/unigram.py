"""SentencePiece's Unigram tokeniser, as XLM-RoBERTa uses it, over arrays that can be memory-mapped.

Nothing is built at load: the vocabulary is a double-array trie (`kura.embed.trie`), walked by a Viterbi search in plain
Python. Measured on one machine, over three documents (words seen before come from a cache, 0.5 µs a token):

                                      load       memory    a token
    this                                6 ms       9 MB    4–6 µs
    marisa-trie, mapped, same search    3 ms       4 MB    7–9 µs
    `tokenizers`                    1,190 ms     358 MB    1–2 µs
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kura.embed.prepared import Prepared
from kura.embed.trie import DoubleArray

SPACE: Final = "\u2581"
"""What a piece that begins a word begins with."""

_LONGEST_CACHED_WORD = 32
_CACHED_WORDS = 16_384
_UNKNOWN_PENALTY = 10.0

# The rules of SentencePiece's `nmt_nfkc` beyond NFKC: controls vanish (NUL too, which the original lets through as an
# unknown), other invisible characters separate words. A lone surrogate counts as U+FFFD, which is one of those.
_VANISHING = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]+")
_SEPARATING = re.compile("[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd\ud800-\udfff]")
_KEPT = "\uff5e"  # the full-width tilde is exempt from NFKC
_NOT_ASCII = re.compile("[\x00-\x7f]?[^\x00-\x7f]+")


def normalise(text: str) -> str:
    """Apply XLM-RoBERTa's normalisation, bar the collapsing of spaces.

    Characters are composed where they are adjacent, but combining marks are never put into another order: the
    vocabulary was made that way, and has pieces (Arabic vowel signs) that canonical order would make unreachable.
    """
    text = _SEPARATING.sub(" ", _VANISHING.sub("", text))
    if text.isascii():
        return text
    if unicodedata.is_normalized("NFC", text):
        return _KEPT.join(unicodedata.normalize("NFKC", part) for part in text.split(_KEPT))
    return _NOT_ASCII.sub(lambda run: _compose(run.group()), text)


def _compose(run: str) -> str:
    parts: list[str] = []
    for character in run:
        if parts and (composed := _composed(parts[-1], character)) is not None:
            parts[-1] = composed
        else:
            parts.append(character)
    return "".join(part if part == _KEPT else unicodedata.normalize("NFKC", part) for part in parts)


@lru_cache(maxsize=1024)
def _composed(first: str, second: str) -> str | None:
    composed = unicodedata.normalize(
        "NFC", unicodedata.normalize("NFKC", first) + unicodedata.normalize("NFKC", second)
    )
    if len(composed) != 1:
        return None
    apart = unicodedata.normalize("NFD", composed)
    in_order = unicodedata.normalize("NFKD", first) + unicodedata.normalize("NFKD", second)
    return composed if apart == in_order else None


class Unigram:
    """Cuts text into the pieces of a vocabulary so that the sum of the pieces' scores is highest.

    Args:
        trie: The pieces; their values are the ids.
        scores: Log-probability per id, float32.
        unknown: Id that stands for a run of characters that no piece has.
        longest: Characters in the longest piece.
    """

    def __init__(self, trie: DoubleArray, scores: NDArray[np.float32], *, unknown: int, longest: int) -> None:
        # Items of a memory view are Python numbers, thrice as fast as numpy's scalars.
        self._base = trie.base.data
        self._check = trie.check.data
        self._value = trie.value.data
        self._scores = scores.data
        self._symbols = {character: symbol for symbol, character in enumerate(trie.alphabet, 1)}
        self._unknown = unknown
        self._unknown_score = float(scores.min()) - _UNKNOWN_PENALTY
        self._longest = longest
        self._cached_pieces = lru_cache(maxsize=_CACHED_WORDS)(self._pieces)

    @classmethod
    def of(cls, prepared: Prepared) -> "Unigram":
        """Make the tokeniser of a prepared model file.

        Raises:
            EmbedderError: if the file lacks a part of it.
        """
        return cls(
            DoubleArray.of(prepared),
            prepared.tensor("scores"),
            unknown=prepared.model.unknown,
            longest=prepared.model.longest,
        )

    def ids(self, text: str, limit: int | None = None) -> list[int]:
        """Tokenise `text`, without special tokens.

        With a `limit`, at most that many tokens come back, and the work is bounded by it too, however long the text: a
        word that is longer than any `limit` pieces is cut there.
        """
        result: list[int] = []
        for word in self._words(text, limit):
            result.extend(self._cached_pieces(word) if len(word) <= _LONGEST_CACHED_WORD else self._pieces(word))
            if limit is not None and len(result) >= limit:
                return result[:limit]
        return result

    def count(self, text: str) -> int:
        """Count the tokens of `text`, without special tokens, in time that grows with its length alone."""
        return len(self.ids(text))

    def _words(self, text: str, limit: int | None) -> Iterator[str]:
        longest = None if limit is None else limit * self._longest
        return (SPACE + word[:longest] for word in normalise(text).split(" ") if word)

    def _pieces(self, word: str) -> list[int]:
        base, check, value, scores = self._base, self._check, self._value, self._scores
        symbol_of = self._symbols.get
        symbols = [symbol_of(character, 0) for character in word]
        symbols.append(0)  # has no child anywhere, so the walk ends with the word
        length = len(word)
        best = [0.0] + [float("-inf")] * length
        piece = [self._unknown] * (length + 1)
        came_from = [0] * (length + 1)
        for start in range(length):
            here = best[start]
            node, end = 0, start
            while check[child := base[node] + symbols[end]] == node:
                node = child
                end += 1
                if (token := value[node]) >= 0 and (score := here + scores[token]) > best[end]:
                    best[end], piece[end], came_from[end] = score, token, start
            # Never better than a piece of this one character, if there is one.
            if (score := here + self._unknown_score) > best[start + 1]:
                best[start + 1], piece[start + 1], came_from[start + 1] = score, self._unknown, start
        return self._trace(piece, came_from)

    def _trace(self, piece: list[int], came_from: list[int]) -> list[int]:
        unknown = self._unknown
        path: list[int] = []
        end = len(piece) - 1
        while end > 0:
            if not (piece[end] == unknown and path and path[-1] == unknown):  # a run of unknown characters is one token
                path.append(piece[end])
            end = came_from[end]
        path.reverse()
        return path
