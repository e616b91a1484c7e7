"""Which characters texts of a language are written in: what a model may forget, and what it must keep.

The alphabet of a language is

- what all languages share: every character that is not a letter, mark or digit of one of the scripts named here, so
  ASCII digits, punctuation, currency signs, emoji, arrows, mathematics and other symbols; letters of scripts that are
  named nowhere here have so few pieces that they count among these;
- the Latin script with all its letters, because names, loanwords, units, addresses and code stand in texts of every
  language, and English holds names from all the others (São Paulo, Dvořák, Łódź);
- the Greek script, because science in every language uses its letters;
- the scripts of the language itself (`SCRIPTS`). Chinese is Han, bopomofo and, for the titles it quotes, kana.

Characters count after the tokeniser's normalisation (`kura.embed.unigram.normalise`), so that full-width forms,
ligatures and mathematical letters are what they stand for.

Why whole scripts: the tokeniser weighs the pieces that occur in a text against each other. As long as all pieces
survive whose characters a text can hold, it cuts that text as before, whatever the text says; a vocabulary chosen by
frequency, or by a list of words, promises nothing for the next text. Letters that are kept only one by one do not
suffice either: "São Paulo", cut around the ã, has a cosine of .93 to itself.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kura.errors import ConfigurationError

_EVERYWHERE: Final = frozenset({"LATIN", "GREEK"})

_LATIN: Final = (
    "af az ca cs cy da de en eo es et eu fi fil fr fy ga gd gl ha hr hu id is it la lb lt lv ms mt nb nl nn no pl pt "
    "ro sk sl so sq sv sw tl tr uz vi xh yo zu"
)
_OTHERS: Final = {
    "CYRILLIC": "be bg kk ky mk mn ru sr tg tt uk uz",
    "ARABIC": "ar fa ps sd ug ur",
    "HEBREW": "he yi",
    "DEVANAGARI": "hi mr ne sa",
    "BENGALI": "as bn",
    "GURMUKHI": "pa",
    "GUJARATI": "gu",
    "ORIYA": "or",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "SINHALA": "si",
    "THAI": "th",
    "LAO": "lo",
    "MYANMAR": "my",
    "KHMER": "km",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "ETHIOPIC": "am ti",
    "CJK": "ja ko zh",
    "HIRAGANA": "ja zh",
    "KATAKANA": "ja zh",
    "BOPOMOFO": "zh",
    "HANGUL": "ko",
    "GREEK": "el",
}

SCRIPTS: Final = {
    code: frozenset(script for script, codes in _OTHERS.items() if code in codes.split()) | _EVERYWHERE
    for code in sorted({*_LATIN.split(), *" ".join(_OTHERS.values()).split()})
}
"""Code of a language (ISO 639) → the scripts that its texts are written in, by the names that Unicode gives them."""

_NAMED: Final = _EVERYWHERE | _OTHERS.keys()
_SYLLABIC: Final = frozenset({"CJK", "HANGUL"})
_FIRST_WORD: Final = re.compile(r"(?:EXTENDED )?([A-Z]+)")


def parse_languages(text: str) -> tuple[str, ...]:
    """Read codes separated by commas: in order, each once.

    Raises:
        ConfigurationError: if one is not known, or there is none.
    """
    codes = {code.strip().lower() for code in text.split(",") if code.strip()}
    unknown = ", ".join(f'"{code}"' for code in sorted(codes - SCRIPTS.keys()))
    if unknown or not codes:
        wrong = f"unknown language {unknown}" if unknown else "no language is named"
        raise ConfigurationError(f"{wrong}; known: {', '.join(SCRIPTS)} (all others: leave languages out)")
    return tuple(sorted(codes))


def scripts(languages: Iterable[str]) -> frozenset[str]:
    """All scripts that texts of these languages are written in."""
    return frozenset(name for code in languages for name in SCRIPTS[code])


@lru_cache(maxsize=32_768)
def script(character: str) -> str | None:
    """The script of a letter, mark or digit; None for what all languages share."""
    # Punctuation and currency signs wander: Bengali ends its sentences with what is named after Devanagari.
    if unicodedata.category(character)[0] not in "LMN":
        return None
    found = _FIRST_WORD.match(unicodedata.name(character, ""))
    return found[1] if found is not None and found[1] in _NAMED else None


def is_needed(piece: str, kept: frozenset[str]) -> bool:
    """Say whether a text in the scripts `kept` can hold this piece of a vocabulary.

    A text may also hold single letters of other scripts, as mathematics (ℵ) and faces (ಠ_ಠ) do: so a piece may hold
    one. Not so Han and Hangul, each of whose characters is a syllable or a word, and of which there are thousands.
    """
    foreign = [name for character in piece if (name := script(character)) is not None and name not in kept]
    return not foreign or (len(foreign) == 1 and foreign[0] not in _SYLLABIC)
