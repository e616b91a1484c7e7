import subprocess
import sys

import numpy as np
import pytest

from kura.embed.hashing import HashingEmbedder


def similarity(first: str, second: str) -> float:
    a, b = HashingEmbedder().embed([first, second], "passage")
    return float(a @ b)


def test_it_is_an_embedder_of_64_dimensions() -> None:
    embedder = HashingEmbedder()
    assert (embedder.name, embedder.dimension, embedder.floor) == ("hashing-64", 64, None)


def test_the_name_says_the_dimension() -> None:
    assert HashingEmbedder(16).name == "hashing-16"
    assert HashingEmbedder(16).embed(["text"], "query").shape == (1, 16)


@pytest.mark.parametrize("text", ["", " ", "!?", "\x00", "\ud800", "a", "知", "word " * 10_000, "😀"], ids=repr)
def test_every_text_has_a_vector_of_length_one(text: str) -> None:
    vectors = HashingEmbedder().embed([text], "query")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_no_texts_give_no_vectors() -> None:
    assert HashingEmbedder().embed([], "query").shape == (0, 64)


def test_the_kind_makes_no_difference() -> None:
    embedder = HashingEmbedder()
    np.testing.assert_array_equal(embedder.embed(["a text"], "query"), embedder.embed(["a text"], "passage"))


def test_shared_words_bring_texts_closer() -> None:
    assert similarity("how to back up a database", "backing up the database") > 0.4
    assert similarity("how to back up a database", "growing tomatoes on balconies") < 0.2
    assert similarity("Straße NODE.js", "STRASSE node.js") > 0.99
    assert similarity("数据库备份的方法", "如何备份数据库") > 0.4
    assert similarity("数据库备份的方法", "阳台上种植番茄") < 0.2


def test_another_process_gives_the_same_vector() -> None:
    program = (
        "from kura.embed.hashing import HashingEmbedder;"
        "print(HashingEmbedder().embed(['the same 知识 everywhere'], 'query').tobytes().hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {HashingEmbedder().embed(["the same 知识 everywhere"], "query").tobytes().hex()}


def test_the_vector_of_a_text_stays_what_it_is() -> None:
    vector = HashingEmbedder(8).embed(["kura 知識"], "query")[0]
    expected = np.array([-1, 0, 0, 2, -1, 0, 0, -1]) / np.sqrt(7)
    np.testing.assert_allclose(vector, expected, atol=1e-6)
