from collections.abc import Sequence
from pathlib import Path

import pytest

from kura.embed.hashing import HashingEmbedder
from tests.quality.cache import CachedEmbedder
from tests.quality.collection import Collection, Document
from tests.quality.floor import Scores, lines, score

RELEVANT = [n / 1000 for n in range(400, 1000)]
SCORES = Scores("made", RELEVANT, [[0.5, 0.3], [0.39], []])


def test_the_highest_floor_loses_half_a_percent_of_the_relevant_hits_and_no_more():
    floor = SCORES.highest_floor()
    assert floor in RELEVANT
    assert SCORES.lost(floor) <= 0.005 < SCORES.lost(floor + 0.002)


def test_a_floor_drops_passages_and_leaves_questions_with_none():
    assert SCORES.dropped(0.4) == pytest.approx(2 / 3)
    assert SCORES.silent(0.4) == pytest.approx(2 / 3)
    assert (SCORES.dropped(0.2), SCORES.silent(0.2)) == (0, pytest.approx(1 / 3))


def test_the_table_says_whose_floor_it_shows():
    own, would_do = list(lines([SCORES], 0.4)), list(lines([SCORES], None))
    assert own[0] == "floor 0.4000"
    assert own[2].split() == ["made", "600", "0.4000", f"{SCORES.highest_floor():.4f}", "0.00%", "66.7%", "66.7%"]
    assert would_do[0].startswith(f"floor {SCORES.highest_floor():.4f} (the embedder has none")


def collection(name: str, texts: Sequence[str]) -> Collection:
    documents = tuple(Document(f"{name}{n}", "", text) for n, text in enumerate(texts))
    queries = {f"q{n}": text for n, text in enumerate(texts)}
    return Collection(name, documents, queries, {f"q{n}": {f"{name}{n}": 1} for n in range(len(texts))})


def test_relevant_hits_and_those_of_strange_questions_are_told_apart(tmp_path: Path):
    ours = collection("ours", ["the tide follows the moon", "bread rises in the warmth"])
    others = collection("others", ["engines of locomotives"])
    found = score(ours, [others], tmp_path, CachedEmbedder(HashingEmbedder(256), tmp_path / "cache"))
    assert found.collection == "ours"
    assert found.relevant == pytest.approx([1, 1], abs=0.05)
    assert [max(scores) < 0.5 for scores in found.strange] == [True]
