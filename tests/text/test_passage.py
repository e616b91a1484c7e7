from kura.text.passage import passage, passage_tokens
from kura.text.tokens import tokens


def test_a_passage_without_headings_is_its_content():
    assert passage((), "text\n\nmore") == "text\n\nmore"
    assert passage(("", " \n"), "text") == "text"


def test_headings_stand_above_the_content_outermost_first():
    assert passage(("Guide", " Install\n on  Linux "), "Run it.") == "Guide\nInstall on Linux\nRun it."


def test_words_of_headings_count_twice_and_others_once():
    found = passage_tokens(("Guide",), "## Setup\n\nRun guidance\n\n## Later\nDone")
    assert sorted(found) == sorted(tokens("guide guide setup setup run guidance later done"))


def test_content_that_is_nothing_but_a_heading_counts_twice():
    assert passage_tokens((), "# Title") == ["titl", "titl"]


def test_a_text_without_headings_has_its_tokens_once():
    assert passage_tokens((), "#hashtag and text") == tokens("#hashtag and text")
