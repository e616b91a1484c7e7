"""Words to tokens: what keyword search knows of a text.

One function serves the index and the queries. Its tokens are stored space-joined in a column that FTS5 indexes with
`FTS_TOKENIZE`, and consist only of characters that this clause keeps: one token is one FTS5 term, whatever version of
SQLite or libSQL reads it, and a query never reaches FTS5's own syntax.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator

from kura.text.stem import stem

TOKENIZER_VERSION = 1
"""Grows with every change to the tokens of any text; a database of another version asks for a re-index."""

FTS_TOKENIZE = "unicode61 remove_diacritics 0 tokenchars '_'"
"""The value of FTS5's `tokenize` option under which every token is exactly one term."""

LONGEST_QUERY = 10_000
"""Characters of a query that are looked at."""

MOST_TERMS = 64
"""Terms of a query that are searched for. Where it has more, they are taken from all of it at even distances.

Each costs FTS5 a walk over its postings, about 8 ms at 100,000 passages. Half a pasted page says as well as the whole
what it is about, and of overlapping pairs every second one still covers all the characters.
"""

_LONGEST_TOKEN = 64
_MOST_PARTS = 8
_CACHED_WORDS = 32_768
_LONGEST_CACHED = 48

# Words that say nothing about what a text is about. They are in the index, so that "the who" can be found, and left out
# of a query that has other words. Those with apostrophes stand without them, as their tokens do.
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a am an and are as at be been being but by can could did do does for from had has have he her his how i if in
        into is it its me my no not of on or our she so such than that the their them then there these they this to
        was we were what when where which who why will with would you your
        arent cant couldnt didnt doesnt dont hadnt hasnt havent isnt shouldnt wasnt werent wont wouldnt
        """,
    )
)

# Scripts written without spaces between words, and Hangul, whose words are inflected compounds: Han with its
# extensions, kana, bopomofo, Thai, Lao, Burmese, Khmer.
_SPACELESS = (
    "\u3005-\u3007\u3041-\u3096\u3099-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af\u1100-\u11ff\uac00-\ud7a3"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
)
# Marks that belong to the word they stand in. Indic blocks are taken whole but for their full stops.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0971-\u0df3"
    "\u0f71-\u0f84\u0f90-\u0fbc\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f"
)
_LETTER = f"(?:[^\\W_{_SPACELESS}]|[{_MARKS}])"
_PARTS = r"\s!\"$%()*,/:;<=>?\[\\\]^`{|}~\u00ab\u00bb\u2012-\u2018\u201a-\u201f\u3001\u3002"

# A first, coarse cut at what never joins; its pieces are short and recur, so that their analysis can be remembered.
_PIECE = re.compile(rf"\d{{1,3}}(?:,\d{{3}})+(?![\d,])|[^{_PARTS}.]+(?:\.+[^{_PARTS}.]+)*")
_RUN = re.compile(
    rf"(?P<spaceless>[{_SPACELESS}]+)"
    rf"|(?P<word>{_LETTER}+(?:[-'._&@]{_LETTER}+)*(?:\+\+(?![^\W\d_])|#(?!{_LETTER}))?)"
    r"|(?P<symbol>[\U0001f1e6-\U0001f1ff]{2}|[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff])"
)
_IGNORED = re.compile("[\u00ad\u200c-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufe00-\ufe0f\ufeff]")
_JOINER = re.compile(r"[-'._&@]")
_POINTLESS = re.compile(r"[-'_&@]|(?<!\d)\.|\.(?!\d)")
_CLITIC = re.compile(r"'(?:s|m|re|ve|ll|d)$", re.IGNORECASE)
_NEGATION = re.compile(r"n't$", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_STEMMABLE = re.compile(r"[a-z]{3,}")

_DIACRITICS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]"
)
# Letters that people type differently and that no decomposition unites; decimal digits of other scripts.
_FOLDED = str.maketrans(
    {
        "ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th",
        "\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643", "\u0629": "\u0647",
    }
    | {chr(zero + n): str(n) for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50) for n in range(10)}
)  # fmt: skip
# Letters of which every version of unicode61 makes part of one term, unchanged. All others are written as `_hex_`.
_UNSAFE = re.compile(
    "[^0-9a-z\u0250-\u02ad\u03b1-\u03c1\u03c3-\u03c9\u0430-\u045f\u0561-\u0586\u05d0-\u05ea\u0621-\u063a\u0641-\u064a"
    "\u0671-\u06d3\u0905-\u0939\u0e01-\u0e30\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4db5\u4e00-\u9fa5\uac00-\ud7a3]"
)
_ENCODED = re.compile("_([0-9a-f]+)_")
_SPACELESS_CHARACTER = re.compile(f"[{_SPACELESS}]")


def tokens(text: str) -> list[str]:
    """Cut `text` into the tokens that keyword search compares, in their order.

    - Compatibility forms, case and diacritics do not matter (NFKC, case folding, `café` = `cafe`).
    - English words are stemmed; inflected forms meet.
    - Compounds give their parts and the whole: `state-of-the-art`, `node.js`, `snake_case`, `camelCase` are found
      by a part, as they are written, and written together (`nodejs`). `C++` and `C#` stay what they are.
    - Scripts without spaces give overlapping pairs of characters, and the last character of a run by itself; so every
      single character begins some token.
    - Emoji are tokens; other punctuation and symbols are not.

    Any string is allowed, lone surrogates and NUL among them. The time is linear in the length.
    """
    found: list[str] = []
    for piece in _PIECE.findall(_plain(text)):
        # Runs of unspaced scripts hardly recur: remembering them would push out the words that do.
        if piece[0] < "\u0e00" and len(piece) <= _LONGEST_CACHED:
            found += _remembered(piece)
        else:
            found += _analyse(piece)
    return found


def match_expression(query: str) -> str | None:
    """Turn whatever a person typed into an FTS5 MATCH expression: quoted terms joined by OR.

    Stop words are left out unless there is nothing else. Of a run of unspaced script its pairs are searched for, and a
    character that stands alone as the beginning of a pair. No more than `MOST_TERMS` terms of the first
    `LONGEST_QUERY` characters are used, so any query is answered in bounded time.

    Returns:
        The expression, or None if the query holds nothing that could be found.
    """
    terms: dict[str, None] = {}
    stopped: dict[str, None] = {}
    before = ""
    for token in tokens(query.strip()[:LONGEST_QUERY]):
        if _is_lone_character(token):
            # Where a pair ends with it, it is the last of its run, and the pair says more.
            if before == token or not before.endswith(token):
                terms[f'"{token}"*'] = None
        elif token in STOP_WORDS:
            stopped[f'"{token}"'] = None
        else:
            terms[f'"{token}"'] = None
        before = token
    chosen = list(terms or stopped)
    if len(chosen) > MOST_TERMS:
        chosen = [chosen[place * len(chosen) // MOST_TERMS] for place in range(MOST_TERMS)]
    return " OR ".join(chosen) or None


def _is_lone_character(token: str) -> bool:
    if token[0] == "_" and (encoded := _ENCODED.fullmatch(token)):
        token = chr(int(encoded[1], 16))
    return _SPACELESS_CHARACTER.fullmatch(token) is not None


def _plain(text: str) -> str:
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u02bc", "'").replace("\u2010", "-")
    return _IGNORED.sub("", text)


def _analyse(piece: str) -> tuple[str, ...]:
    if "," in piece:
        return (piece.replace(",", ""),)  # 1,000 is 1000
    found: list[str] = []
    for match in _RUN.finditer(piece):
        run = match.group()
        if match.lastgroup == "word":
            found += _word(run)
        elif match.lastgroup == "spaceless":
            found += _pairs(run)
        else:
            found.append(_encoded(run))
    return tuple(found)


_remembered = functools.lru_cache(maxsize=_CACHED_WORDS)(_analyse)


def _pairs(run: str) -> Iterator[str]:
    if _UNSAFE.search(run):
        characters = [_encoded(character) for character in run]
        yield from map(str.__add__, characters, characters[1:])
        yield characters[-1]
    else:
        yield from map(str.__add__, run, run[1:])
        yield run[-1]


def _word(word: str) -> list[str]:
    suffix = ""
    if word[-1] in "+#":
        suffix = word[-1] if word[-1] == "#" else "++"
        word = word[: -len(suffix)]
    elif "'" in word:
        word = _NEGATION.sub("nt", _CLITIC.sub("", word))
    found: list[str] = []
    parts = _JOINER.split(word)
    for part in parts:
        humps = [part] if part.islower() or part.istitle() or part.isupper() else _HUMP.split(part)
        if len(humps) > 1:
            found += map(_term, humps)
        found.append(_term(part))
    if 1 < len(parts) <= _MOST_PARTS and len(word) <= _LONGEST_TOKEN:
        found.append(_term(_POINTLESS.sub("", word)))
    if suffix:
        sharp = _encoded(_folded(parts[-1])[:_LONGEST_TOKEN] + suffix)
        # `C++` is not found by `c`, but `Notepad++` by `notepad`.
        found = [sharp] if len(word) == 1 else [*found, sharp]
    return [token for token in found if token]


def _term(part: str) -> str:
    folded = _folded(part)[:_LONGEST_TOKEN]
    if folded in STOP_WORDS:
        return folded
    if _STEMMABLE.fullmatch(folded):
        return stem(folded)
    return _encoded(folded)


def _folded(part: str) -> str:
    folded = part.casefold()
    if folded.isascii():
        return folded
    bare = _DIACRITICS.sub("", unicodedata.normalize("NFKD", folded)).casefold()
    return unicodedata.normalize("NFKC", bare).translate(_FOLDED)


def _encoded(token: str) -> str:
    return _UNSAFE.sub(lambda match: f"_{ord(match.group()):x}_", token)
