import numpy as np
import pytest

from kura.embed.hashing import HashingEmbedder
from kura.embed.threads import Threaded


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64])
def test_texts_shared_out_among_threads_give_the_same_vectors_in_the_same_order(count: int):
    embedder = HashingEmbedder()
    texts = [f"text number {n} " * (n % 5 + 1) for n in range(count)]
    assert np.array_equal(Threaded(embedder, 3).embed(texts, "passage"), embedder.embed(texts, "passage"))
