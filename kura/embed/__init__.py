"""Text to vectors: the protocol that every embedder keeps, and the embedders."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # importing this room costs nothing; each embedder brings numpy itself
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["query", "passage"]


class Embedder(Protocol):
    """Turns texts into vectors whose dot product is their cosine similarity."""

    @property
    def name(self) -> str:
        """Model and weights; vectors of different names never mix in one database."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector; asking for it may take as long as `embed` where nothing was embedded yet."""
        ...

    @property
    def floor(self) -> float | None:
        """Cosine similarity below which a hit says nothing; None where it is not known."""
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> "NDArray[np.float32]":
        """Embed `texts` as queries or as passages.

        Returns:
            Shape (len(texts), dimension), float32, each row of unit length, in the order of the texts.

        Raises:
            EmbedderError: if there is a text that cannot be embedded.
        """
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """An embedder that can say how long a text is to it."""

    def count_tokens(self, text: str) -> int:
        """Tokens of the text itself, without what the embedder adds to it."""
        ...
