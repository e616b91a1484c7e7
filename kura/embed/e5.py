"""multilingual-e5-small by numpy alone.

The model: L. Wang et al., "Multilingual E5 Text Embeddings: A Technical Report" (arXiv:2402.05672); the network is
BERT's encoder (J. Devlin et al., arXiv:1810.04805), normalisation after each residual. Text is cut at 512 tokens.

The layers are unpacked to float32 at load: 0.1 CPU-seconds and 85 MB. The word table stays as it is in the file, and
its rows are unpacked as they are used. Run it with one BLAS thread (OPENBLAS_NUM_THREADS=1 before numpy is imported)
wherever the cores have other work: several threads then spend most of their time waiting for each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kura.embed import Kind
from kura.embed.prepared import BLOCK, Prepared, open_prepared
from kura.embed.unigram import Unigram

LONGEST: Final = 512
"""Tokens of a text that count, prefix and special tokens included."""

_TOKENS_AT_ONCE = 1024
_ROWS_AT_ONCE = 128
_GELU_SLOPE = float(np.sqrt(2 / np.pi))
_GELU_CUBIC = 0.044715
# Both halves of a byte, as two neighbouring float32 numbers.
_PAIRS: Final = np.stack([np.arange(256) % 16 - 8, np.arange(256) // 16 - 8], axis=1).astype(np.float32)

_Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights, each matrix of shape (inputs, outputs); a norm is a pair (gain, bias)."""

    attention_in: _Floats
    attention_in_bias: _Floats
    attention_out: _Floats
    attention_out_bias: _Floats
    attention_norm: _Floats
    inner_in: _Floats
    inner_in_bias: _Floats
    inner_out: _Floats
    inner_out_bias: _Floats
    inner_norm: _Floats


class E5:
    """The embedded embedder. Its methods may be called from several threads at once."""

    # On public collections 0.4 % of the relevant documents found score lower, all of them where question and answer are
    # in two languages; within one language none is below 0.82 (docs/quality.md; `python -m tests.quality --floor`).
    floor: float | None = 0.73

    def __init__(self, prepared: Prepared) -> None:
        model = prepared.model
        self.name = model.name
        self.dimension = model.dimension
        self._model = model
        # Digests of what is read whole in any case. The word table is not: only its used rows ever are.
        prepared.verify(_READ_WHOLE)
        self._unigram = Unigram.of(prepared)
        self._word_codes = prepared.tensor("words.codes")
        self._word_scales = prepared.tensor("words.scales")
        self._positions: _Floats = prepared.tensor("positions")
        self._norm: _Floats = prepared.tensor("norm")
        self._layers = [_layer(prepared, number) for number in range(len(prepared.tensor("inner.norm")))]

    @classmethod
    def load(cls, path: Path) -> "E5":
        """Load a prepared model file (see `kura.embed.weights`).

        Raises:
            EmbedderError: if the file is not there, truncated or damaged.
        """
        return cls(open_prepared(path))

    def count_tokens(self, text: str) -> int:
        """Count the tokens of `text` itself, without the prefix and the special tokens; `embed` adds at most six."""
        return self._unigram.count(text)

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        """Embed `texts`, each cut at 512 tokens; see `Embedder.embed`.

        A text's vector does not depend on the other texts of the call, bar rounding (1e-5).
        """
        model = self._model
        tokens = [[model.begin, *self._unigram.ids(f"{kind}: {text}", LONGEST - 2), model.end] for text in texts]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        # Texts of similar length, so that a batch is as full as can be.
        for batch in _batches(sorted(range(len(tokens)), key=lambda i: len(tokens[i])), tokens):
            vectors[batch] = self._encode([tokens[i] for i in batch])
        return vectors

    def _encode(self, texts: Sequence[Sequence[int]]) -> _Floats:
        """Run the network on the texts' tokens end to end: all that looks at single tokens sees one long matrix."""
        lengths = [len(tokens) for tokens in texts]
        spans = [slice(start, end) for start, end in pairwise(accumulate(lengths, initial=0))]
        states = self._words(np.concatenate([np.asarray(tokens) for tokens in texts]))
        for span, length in zip(spans, lengths, strict=True):
            states[span] += self._positions[:length]
        _normalise(states, self._norm, self._model.epsilon)
        for layer in self._layers:
            self._attend(states, layer, spans)
            self._transform(states, layer)
        vectors = np.stack([states[span].mean(axis=0) for span in spans])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _words(self, tokens: NDArray[np.int64]) -> _Floats:
        numbers = _unpack(self._word_codes[tokens])
        blocks = numbers.reshape(len(tokens), -1, BLOCK)
        blocks *= self._word_scales[tokens].astype(np.float32)[:, :, None]
        return numbers

    def _attend(self, states: _Floats, layer: _Layer, spans: Sequence[slice]) -> None:
        heads = self._model.heads
        width = self.dimension // heads
        mixed = states @ layer.attention_in
        mixed += layer.attention_in_bias
        context = np.empty_like(states)
        for span in spans:
            query, key, value = mixed[span].reshape(-1, 3, heads, width).transpose(1, 2, 0, 3)
            weights = query @ key.transpose(0, 2, 1)
            weights -= weights.max(axis=-1, keepdims=True)
            np.exp(weights, out=weights)
            result = weights @ value
            result /= weights.sum(axis=-1, keepdims=True)
            context[span].reshape(-1, heads, width)[:] = result.transpose(1, 0, 2)
        states += context @ layer.attention_out
        states += layer.attention_out_bias
        _normalise(states, layer.attention_norm, self._model.epsilon)

    def _transform(self, states: _Floats, layer: _Layer) -> None:
        # In blocks of rows that stay in the processor's cache between one step and the next.
        for start in range(0, len(states), _ROWS_AT_ONCE):
            rows = states[start : start + _ROWS_AT_ONCE]
            inner = rows @ layer.inner_in
            inner += layer.inner_in_bias
            _gelu(inner)
            rows += inner @ layer.inner_out
            rows += layer.inner_out_bias
        _normalise(states, layer.inner_norm, self._model.epsilon)


_MATRICES = ("attention.in", "attention.out", "inner.in", "inner.out")
_READ_WHOLE = (
    *("positions", "norm", "attention.norm", "inner.norm"),
    *(f"{matrix}.{part}" for matrix in _MATRICES for part in ("codes", "scales", "bias")),
)


def _layer(prepared: Prepared, number: int) -> _Layer:
    def matrix(name: str) -> _Floats:
        numbers = _unpack(prepared.tensor(f"{name}.codes")[number])
        blocks = numbers.reshape(-1, BLOCK, numbers.shape[1])
        blocks *= prepared.tensor(f"{name}.scales")[number].astype(np.float32)[:, None, :]
        return numbers

    def floats(name: str) -> _Floats:
        return prepared.tensor(name)[number].copy()

    layer = _Layer(
        attention_in=matrix("attention.in"),
        attention_in_bias=floats("attention.in.bias"),
        attention_out=matrix("attention.out"),
        attention_out_bias=floats("attention.out.bias"),
        attention_norm=floats("attention.norm"),
        inner_in=matrix("inner.in"),
        inner_in_bias=floats("inner.in.bias"),
        inner_out=matrix("inner.out"),
        inner_out_bias=floats("inner.out.bias"),
        inner_norm=floats("inner.norm"),
    )
    # Attention divides query · key by the root of a head's width: done here, once.
    size, heads = prepared.model.dimension, prepared.model.heads
    layer.attention_in[:, :size] /= np.float32(np.sqrt(size / heads))
    layer.attention_in_bias[:size] /= np.float32(np.sqrt(size / heads))
    layer.inner_out[:] *= np.float32(0.5)  # the half that `_gelu` leaves out
    return layer


def _unpack(codes: NDArray[np.uint8]) -> _Floats:
    """Unpack 4-bit numbers, two a byte, to float32, not scaled yet."""
    return _PAIRS.view(np.float64)[:, 0].take(codes).view(np.float32)


def _normalise(states: _Floats, norm: _Floats, epsilon: float) -> None:
    states -= states.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", states, states)
    variance /= states.shape[1]
    variance += epsilon
    states *= (1 / np.sqrt(variance))[:, None]
    states *= norm[0]
    states += norm[1]


def _gelu(numbers: _Floats) -> None:
    """Twice GELU, by tanh (D. Hendrycks and K. Gimpel, arXiv:1606.08415)."""
    curve = numbers * numbers
    curve *= _GELU_SLOPE * _GELU_CUBIC
    curve += _GELU_SLOPE
    curve *= numbers
    np.tanh(curve, out=curve)
    curve += 1
    numbers *= curve


def _batches(order: Sequence[int], tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for i in order:
        if batch and size + len(tokens[i]) > _TOKENS_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(i)
        size += len(tokens[i])
    if batch:
        yield batch
