import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kura.embed.trie import DoubleArray, build


def find(trie: DoubleArray, string: str) -> int:
    node = 0
    for character in string:
        if character not in trie.alphabet:
            return -1
        child = int(trie.base[node]) + trie.alphabet.index(character) + 1
        if trie.check[child] != node:
            return -1
        node = child
    return int(trie.value[node])


@given(st.lists(st.text("ab知識\U0001f600", min_size=1, max_size=6), min_size=1, max_size=60, unique=True))
def test_every_string_is_found_and_nothing_else(strings: list[str]) -> None:
    trie = build(strings)
    assert [find(trie, string) for string in strings] == list(range(len(strings)))
    absent = {string + tail for string in strings for tail in ("a", "b", "c", "知")} - set(strings)
    assert {find(trie, string) for string in absent} == {-1}


def test_a_lookup_with_any_symbol_stays_inside_the_arrays() -> None:
    trie = build(["a", "ab", "abc", "xyz", "zzzz"])
    assert int(trie.base.min()) >= 0
    assert int(trie.base.max()) + len(trie.alphabet) < len(trie.check)


def test_symbol_zero_has_no_child() -> None:
    trie = build(["a", "ab", "abc", "xyz", "zzzz"])
    slots = np.flatnonzero(trie.check >= 0)
    assert not np.any(trie.check[trie.base[slots]] == slots)
    assert trie.check[0] == -1


@pytest.mark.parametrize("strings", [[], ["a", ""], ["a", "b", "a"]], ids=["none", "empty", "twice"])
def test_strings_that_make_no_trie_are_refused(strings: list[str]) -> None:
    with pytest.raises(ValueError, match="no two the same"):
        build(strings)
