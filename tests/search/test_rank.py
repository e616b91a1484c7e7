import pytest

from kura.search.rank import Found, page
from kura.store.statements import Passage
from kura.types import Hit


def found(*sources: str) -> Found:
    """Hits in these sources, the first one best."""
    passages = {n: Passage(n, source, n, f"text {n}", (), 1, 1) for n, source in enumerate(sources, 1)}
    return Found([Hit(n, 1 / n) for n in passages], passages)


def shown(found: Found, limit: int) -> list[tuple[str, list[int]]]:
    return [(group.source, [match.chunk for match in group.matches]) for group in page(found, limit)]


def test_nothing_makes_an_empty_page():
    assert page(found(), 10) == ()


def test_hits_of_one_source_stand_together_where_its_best_one_is():
    assert shown(found("a", "b", "a", "c"), 10) == [("a", [1, 3]), ("b", [2]), ("c", [4])]


def test_no_source_takes_more_than_a_third_while_others_have_something_to_say():
    assert shown(found(*"aaaaaa", *"bcdefg"), 9) == [
        ("a", [1, 2, 3]), ("b", [7]), ("c", [8]), ("d", [9]), ("e", [10]), ("f", [11]), ("g", [12])
    ]  # fmt: skip


def test_what_is_left_of_the_page_is_filled_in_order():
    assert shown(found(*"aaaaaa", "b"), 6) == [("a", [1, 2, 3, 4, 5]), ("b", [7])]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 20])
def test_a_source_alone_fills_the_page(limit: int):
    assert shown(found(*"aaaaaaa"), limit) == [("a", list(range(1, min(limit, 7) + 1)))]


def test_equal_scores_keep_their_order():
    hits = found(*"ababab")
    level = Found([Hit(hit.chunk_id, 1.0) for hit in hits.hits], hits.passages)
    assert shown(level, 10) == [("a", [1, 3, 5]), ("b", [2, 4, 6])]
