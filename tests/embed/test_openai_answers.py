"""Answers that are no vectors, and good ones in unusual dress."""

import base64
import gzip
import json

import numpy as np
import pytest

from kura.errors import EmbedderError
from tests.embed.endpoints import GOOD, Answer, asked, vectors


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (vectors([1, 2]), "sent 1 vectors for 2 texts"),
        (vectors([1, 2], [1, 2], [1, 2]), "sent 3 vectors for 2 texts"),
        (vectors([1, 2], [1, 2, 3]), "2, 3 dimensions in one answer"),
        (vectors([], []), "0 dimensions"),
        (vectors([1, 2], [1, float("nan")]), "not finite"),
        (vectors([1, 2], [1, float("inf")]), "not finite"),
        (vectors([1, 2], [0, 0.0]), "all zeros"),
        (vectors([1, 2], [1, None]), "neither a list of numbers"),
        (vectors([1, 2], [1, "2"]), "neither a list of numbers"),
        (vectors([1, 2], [1, True]), "neither a list of numbers"),
        (vectors([1, 2], [1, 10**400]), "neither a list of numbers"),
        (vectors([1, 2], [[1], [2]]), "neither a list of numbers"),
        (vectors([1, 2], "no base64!"), "neither a list of numbers"),
        (vectors([1, 2], base64.b64encode(b"12345").decode()), "neither a list of numbers"),
        (vectors([1, 2], {"int8": [1, 2]}), "neither a list of numbers"),
        (Answer(b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}'), "from 0 to 1"),
        (Answer(b'{"data": [{"index": true, "embedding": [1]}, {"index": 0, "embedding": [1]}]}'), "from 0 to 1"),
        (Answer(b'{"data": [{"index": 0}, {"index": 1, "embedding": [1]}]}'), 'without an "embedding"'),
        (Answer(b'{"data": {}}'), 'without a list "data"'),
        (Answer(b"[1]"), 'without a list "data"'),
        (Answer(b"  <!doctype html><p>Welcome"), "a web page in place of vectors"),
        (Answer(b'{"data": [{"index": 0, "emb'), "no JSON, or only a part"),
        (Answer(b"[" * 200_000), "no JSON, or only a part"),
        (Answer(b"\xff\xfe\x00"), "no JSON, or only a part"),
        (Answer(b""), "nothing in place of vectors"),
        (Answer(b"no gzip", headers={"content-encoding": "gzip"}), "cannot be decompressed"),
    ],
    ids=lambda value: "" if isinstance(value, Answer) else value,
)
def test_an_answer_that_is_no_vectors_is_told_and_not_asked_for_again(answer: Answer, says: str) -> None:
    with asked(answer) as (server, embedder, _):
        with pytest.raises(EmbedderError, match=says):
            embedder.embed(["x", "y"], "passage")
        assert len(server.requests) == 1


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kura.embed.openai._MOST_BYTES", 1000)
    bomb = Answer(gzip.compress(b" " * 10_000_000), headers={"content-encoding": "gzip"})
    with asked(bomb) as (_, embedder, _), pytest.raises(EmbedderError, match="sent more than 1,000 bytes"):
        embedder.embed(["x"], "query")


def test_vectors_of_another_length_than_set_or_than_before_are_refused() -> None:
    refused = pytest.raises(EmbedderError, match="sent vectors of 2 dimensions, KURA_EMBEDDING_DIMENSIONS says 3")
    with asked(GOOD, dimensions=3) as (_, embedder, _), refused:
        embedder.embed(["x"], "query")
    with asked(GOOD, vectors([1, 2, 3])) as (_, embedder, _):
        embedder.embed(["x"], "query")
        with pytest.raises(EmbedderError, match="sent vectors of 3 dimensions, it sent before 2"):
            embedder.embed(["x"], "query")


def test_vectors_come_in_the_order_of_the_texts_whatever_the_order_of_the_answer() -> None:
    body = {"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [2, 0]}]}
    with asked(Answer(json.dumps(body).encode())) as (_, embedder, _):
        assert embedder.embed(["a", "b"], "passage").tolist() == [[1, 0], [0, 1]]
    without = {"data": [{"embedding": [0, 2]}, {"embedding": [2, 0]}]}
    with asked(Answer(json.dumps(without).encode())) as (_, embedder, _):
        assert embedder.embed(["a", "b"], "passage").tolist() == [[0, 1], [1, 0]]


def test_base64_and_gzip_and_extreme_numbers_are_understood() -> None:
    coded = base64.b64encode(np.array([3, 4], "<f4").tobytes()).decode()
    packed = Answer(gzip.compress(vectors(coded, [6e-320, 8e-320]).body), headers={"content-encoding": "gzip"})
    with asked(packed, vectors([3e300, 4e300], [3, 4])) as (_, embedder, _):
        for _ in range(2):
            found = embedder.embed(["a", "b"], "passage")
            np.testing.assert_allclose(found, [[0.6, 0.8]] * 2, rtol=1e-3)
