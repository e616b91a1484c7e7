import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.engine import Connection
from kura.store.sources import state
from kura.store.statements import bearing, matching
from kura.text.tokens import match_expression
from tests.store.writing import put


def found(connection: Connection, q: str, limit: int = 10) -> list[str]:
    return [passage.content for passage, _ in matching(connection, match_expression(q) or "", limit)[0]]


def test_the_best_match_comes_first_and_no_more_than_are_asked_for(connection: Connection):
    put(connection, "a.md", "fox and a long text about many other things that are not one", "fox fox fox")
    put(connection, "b.md", "nothing of that kind")
    hits = matching(connection, match_expression("fox") or "", 10)[0]
    assert hits[0][0].content == "fox fox fox"
    assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
    assert len(found(connection, "fox", limit=1)) == 1
    assert found(connection, "absent") == []


def test_without_words_there_is_nothing_but_the_state_of_the_database(connection: Connection):
    put(connection, "a.md", "fox")
    assert matching(connection, None, 10) == ([], state(connection))


def test_equal_matches_come_in_the_order_in_which_they_were_written(connection: Connection):
    for name in ("c", "a", "b"):
        put(connection, f"{name}.md", "same")
    hits = matching(connection, match_expression("same") or "", 10)[0]
    assert [passage.source for passage, _ in hits] == ["c.md", "a.md", "b.md"]


@pytest.mark.parametrize(
    ("q", "text"),
    [
        ("段落", "檢索會先找到段落，模型再根據段落回答。"),
        ("C++", "C++ code"),
        ("naïve café", "the naïve café"),
        ("state-of-the-art", "a state-of-the-art thing"),
        ('say "hello"', 'they say "hello" to all'),
        ("🚲 bike", "🚲 a bike"),
    ],
    ids=["chinese", "signs", "accents", "hyphens", "quotes", "emoji"],
)
def test_a_text_is_found_by_its_words_on_either_engine(connection: Connection, q: str, text: str):
    put(connection, "a.md", text, "something else")
    assert found(connection, q) == [text]


def test_passages_that_bear_vectors_come_in_the_order_of_the_vectors(connection: Connection, embedder: HashingEmbedder):
    put(connection, "a.md", "one", "two", "three", embedder=embedder)
    put(connection, "b.md", "two", embedder=embedder)
    ids = dict(connection.rows("select c.content, c.vector_id from chunks c"))
    asked = [ids["three"], ids["two"], 4711]
    hits, known = bearing(connection, asked, 10)
    assert known == state(connection)
    assert [(vector, passage.source, passage.content) for vector, passage in hits] == [
        (ids["three"], "a.md", "three"),
        (ids["two"], "a.md", "two"),
        (ids["two"], "b.md", "two"),
    ]
    assert len(bearing(connection, asked, 2)[0]) == 2
    assert bearing(connection, [], 10)[0] == []
