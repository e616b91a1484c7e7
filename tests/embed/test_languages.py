import pytest

from kura.embed.languages import SCRIPTS, is_needed, parse_languages, script, scripts
from kura.errors import ConfigurationError


def test_codes_are_read_in_any_order_and_case_and_each_once() -> None:
    assert parse_languages("zh, EN,,zh") == ("en", "zh")


@pytest.mark.parametrize("text", ["english", "en,xx", "en-GB", "en zh"], ids=str)
def test_an_unknown_language_is_named_beside_those_that_are_known(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'^unknown language "[a-z- ]+"; known: af, am, .*\bzh\b.*, zu'):
        parse_languages(text)


@pytest.mark.parametrize("text", ["", " , "], ids=ascii)
def test_naming_no_language_is_an_error_rather_than_all_of_them(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no language is named; known: "):
        parse_languages(text)


def test_every_language_has_its_scripts_and_the_ones_that_are_everywhere() -> None:
    assert all({"LATIN", "GREEK"} <= found for found in SCRIPTS.values())
    assert SCRIPTS["en"] == SCRIPTS["de"] == {"LATIN", "GREEK"}
    assert scripts(["ru", "zh"]) - SCRIPTS["en"] == {"CYRILLIC", "CJK", "BOPOMOFO", "HIRAGANA", "KATAKANA"}


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        ("aéřŁệʃ", "LATIN"),
        ("αΩὀς", "GREEK"),
        ("жЇ", "CYRILLIC"),
        ("ع٣۴", "ARABIC"),
        ("की३", "DEVANAGARI"),
        ("知𠀀㐀", "CJK"),
        ("がァー", ("HIRAGANA", "KATAKANA")),
        ("ㄅ", "BOPOMOFO"),
        ("한", "HANGUL"),
        ("7.,;'()[]{}<>#@$€₹฿½→∑≤°©™😀✨\u2581，。、「」…—„“।؟\ue000\u0301", None),
    ],
    ids=str,
)
def test_a_character_belongs_to_a_script_or_to_all(characters: str, expected: str | tuple[str, ...] | None) -> None:
    allowed = expected if isinstance(expected, tuple) else (expected,)
    assert {script(character) for character in characters} <= set(allowed)


@pytest.mark.parametrize(
    ("piece", "needed"),
    [
        ("\u2581São", True),
        ("ungen", True),
        ("βγ", True),
        ("2026", True),
        ("\u2581א", True),
        ("ಠ_", True),
        ("ів", False),
        ("\u2581知", False),
        ("한", False),
    ],
    ids=ascii,
)
def test_english_needs_latin_greek_signs_and_single_letters_of_other_alphabets(piece: str, needed: bool) -> None:
    assert is_needed(piece, scripts(["en"])) is needed
