import pytest

from kura.text.tokens import match_expression, tokens


@pytest.mark.parametrize("text", ["", " \n\t", "%@#{", "\x00", "\ud800", "(", "^", "*"])
def test_a_text_without_words_has_no_tokens(text: str):
    assert tokens(text) == []
    assert match_expression(text) is None
