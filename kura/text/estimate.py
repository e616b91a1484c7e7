"""About how many tokens an embedder will see in a text, where none is there to ask."""

# What a byte of UTF-8 begins: a small or capital ASCII letter, a digit, punctuation; a letter of an alphabet beyond
# ASCII; one of Indic scripts and Thai; one of Han, kana and Hangul; or something further out. Blanks, control
# characters and the bytes that go on with a character count nothing.
_CLASSES = bytes(
    ord(
        "a" if 0x61 <= byte <= 0x7A
        else "A" if 0x41 <= byte <= 0x5A
        else "1" if 0x30 <= byte <= 0x39
        else "." if 0x20 < byte < 0x80
        else "2" if 0xC0 <= byte < 0xE0
        else "3" if 0xE0 <= byte < 0xE3
        else "4" if 0xE3 <= byte < 0xF0
        else "5" if byte >= 0xF0
        else " "
    )
    for byte in range(256)
)  # fmt: skip
_TOKENS_EACH = {b"a": 0.24, b"A": 0.55, b"1": 0.65, b".": 1.15, b"2": 0.35, b"3": 0.35, b"4": 0.92, b"5": 1.2}
_TOKENS_A_WORD = 0.35
_SPECIAL_TOKENS = 3


def estimate_tokens(text: str) -> int:
    """Estimate, rather too high than too low, the tokens of `text` for multilingual-e5 and its relatives (XLM-R).

    Fitted to the real tokeniser on English, Chinese, code, Markdown, JSON and CSV in chunks of 80 to 1,500
    characters: not less than the truth for 97 of 100 of them, 1.2 times the truth on average. Long runs that are not
    language (base64, hexadecimal) have up to 1.7 times as many tokens as estimated. The time is linear, in C.
    """
    classes = text.encode("utf-8", "surrogatepass").translate(_CLASSES)
    counted = sum(classes.count(kind) * weight for kind, weight in _TOKENS_EACH.items())
    return round(_SPECIAL_TOKENS + _TOKENS_A_WORD * len(text.split()) + counted + 0.5)
