from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Kind
from tests.quality.cache import CachedEmbedder
from tests.quality.collection import Document, load, ndcg, recall
from tests.quality.pipeline import write_files


def test_ndcg_is_one_for_the_ideal_order_and_zero_for_nothing():
    assert ndcg(["a", "b"], {"a": 3, "b": 1}) == 1
    assert ndcg(["x", "y"], {"a": 3}) == 0
    assert ndcg([], {"a": 3}) == 0


def test_ndcg_discounts_by_the_logarithm_of_the_rank():
    # gains 0/1, 1/log2(3), 3/2; ideally 3/1 + 1/log2(3)
    assert ndcg(["x", "b", "a"], {"a": 3, "b": 1}) == pytest.approx((0.63093 + 1.5) / (3 + 0.63093), abs=1e-5)


def test_ndcg_looks_at_the_first_ten_only():
    ranked = [f"x{n}" for n in range(10)]
    assert ndcg([*ranked, "a"], {"a": 1}) == 0
    assert ndcg([*ranked[:9], "a"], {"a": 1}) == pytest.approx(0.28906, abs=1e-5)
    assert ndcg([f"r{n}" for n in range(10)], {f"r{n}": 1 for n in range(20)}) == 1


def test_recall_is_the_share_of_relevant_documents_found():
    assert recall(["a", "x", "b"], {"a": 3, "b": 1, "c": 1, "d": 1}) == 0.5
    assert recall([*"xyzuvwrst", "o", "a"], {"a": 1}) == 0


def test_a_collection_is_read_with_either_name_of_an_id(tmp_path: Path):
    (tmp_path / "corpus.jsonl").write_text('{"id": 7, "title": "T", "text": "x"}\n\n{"_id": "8", "text": "y"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x?"}\n{"id": "none", "text": "z?"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\t7\t2\nq\t8\t0\nnone\t8\t0\n")
    collection = load(tmp_path)
    assert collection.documents == (Document("7", "T", "x"), Document("8", "", "y"))
    assert collection.queries == {"q": "x?"}
    assert collection.relevant == {"q": {"7": 2}}


def test_every_document_becomes_a_file_whatever_its_id(tmp_path: Path):
    documents = [Document("../a/b", "A\nb", "x"), Document(".._a_b", "", "y"), Document("é" * 300, "", "")]
    ids = write_files(documents, tmp_path / "files")
    assert list(ids.values()) == [document.id for document in documents]
    assert sorted(file.name for file in (tmp_path / "files").iterdir()) == sorted(ids)
    assert (tmp_path / "files" / next(iter(ids))).read_text() == "# A b\n\nx\n"


class Counting:
    """An embedder that counts what it is asked."""

    name = "counting/1"
    dimension = 2
    floor = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        self.asked += texts
        return np.array([[len(text), kind == "query"] for text in texts], np.float32).reshape(-1, 2)


def test_no_text_is_embedded_twice_even_by_another_run(tmp_path: Path):
    first, second = Counting(), Counting()
    CachedEmbedder(first, tmp_path).embed(["a", "bb", "a"], "passage")
    vectors = CachedEmbedder(second, tmp_path).embed(["bb", "ccc", "a"], "passage")
    assert first.asked == ["a", "bb"]
    assert second.asked == ["ccc"]
    assert vectors.tolist() == [[2, 0], [3, 0], [1, 0]]


def test_a_text_as_query_and_as_passage_are_two(tmp_path: Path):
    cached = CachedEmbedder(Counting(), tmp_path)
    assert cached.embed(["a"], "query").tolist() == [[1, 1]]
    assert cached.embed(["a"], "passage").tolist() == [[1, 0]]
    assert cached.embed([], "passage").shape == (0, 2)
