"""Which encoding a text is in, or that it is no text at all."""

import codecs
import re
from collections.abc import Iterator

from kura.errors import Unreadable

HEAD = 8192
"""So many bytes from the beginning decide whether something is text."""

SAMPLE = 65_536
"""So many bytes, from lines that are not ASCII where those are few, decide about what nothing else gives away."""


def decode(data: bytes) -> str:
    """Decode text whose encoding is not known.

    In this order: byte order marks; what other files begin with; UTF-16 and UTF-32 without a mark, told by their zeros;
    UTF-8, also with a few broken bytes; Western European; then what charset-normalizer finds (GB 18030, Big5,
    Shift-JIS, EUC, KOI8, …).

    Raises:
        Unreadable: if it is no text, or in an encoding that cannot be told.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _checked(data[len(mark) :].decode(encoding, "replace"))
    # Before the zeros are looked at: those of a short binary file may lie as in UTF-16.
    if magic := _magic(data):
        raise Unreadable(f"is not text but {magic}")
    if wide := _wide(data):
        return _checked(wide)
    try:
        return _checked(data.decode())
    except UnicodeDecodeError:
        text = _checked(_legacy(data))
        if text.count("\ufffd") * 20 > len(text):
            raise Unreadable("is not text in any encoding that can be told") from None
        return text


def is_binary(head: bytes) -> bool:
    """Whether the first `HEAD` bytes of a file show that it is no text."""
    if any(head.startswith(mark) for mark, _ in _MARKS):
        return False
    if _magic(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return _too_many(controls, len(head)) and not _wide(head[: len(head) // 4 * 4], complete=False)


_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"RIFF", "a media file"),
    (b"OggS", "a media file"),
    (b"fLaC", "a media file"),
    (b"ID3", "a media file"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a", "a RAR archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old office document"),
    (b"\x7fELF", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\0asm", "a program"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"wOF", "a font"),
)
# ASCII letters could begin a text as well; these need something that no text has, soon after.
_NEEDS_CONTROLS = frozenset({b"GIF8", b"RIFF", b"OggS", b"fLaC", b"ID3", b"BZh", b"wOF"})

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CONTROL_BYTES = bytes(n for n in range(0x20) if chr(n) not in "\t\n\v\f\r\x1b") + b"\x7f"
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_HIGH = re.compile(rb"[\x80-\xff]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WESTERN = re.compile("[A-Za-zÀ-ÖØ-öø-ÿŒœŠšŽžŸ\\s\x20-\x7e€‚ƒ„…‹‘’“”•–—›\xa0¡£§©ª«®°²³´µ·º»¼½¾¿™]*")
_SYMBOL_IN_WORD = re.compile(r"[A-Za-z][¡£§ª²³µº¼½¾¿][a-z]")
_HAN = re.compile("[\u4e00-\u9fff]")
_HANGUL = re.compile("[\uac00-\ud7a3]")


def _magic(data: bytes) -> str | None:
    for magic, what in _MAGIC:
        if data.startswith(magic):
            if magic in _NEEDS_CONTROLS and len(data[:512].translate(None, _CONTROL_BYTES)) == len(data[:512]):
                continue
            return what
    return None


def _too_many(controls: int, length: int) -> bool:
    return controls > 4 + length // 20


def _checked(text: str) -> str:
    beginning = text[: 1 << 20]
    if _too_many(len(_CONTROLS.findall(beginning)), len(beginning)):
        raise Unreadable("is not text: it is full of control characters")
    if "\0" in text:
        text = text.replace("\0", "")
    return _SURROGATE.sub("\ufffd", text)


def _wide(data: bytes, *, complete: bool = True) -> str | None:
    """The text, if the bytes are UTF-16 or UTF-32 without a mark, as the places of zeros and the characters tell."""
    if len(data) < 4 or (complete and len(data) % 2):
        return None
    head = data[:HEAD]
    zeros = [head[n::4].count(0) * 4 / len(head) for n in range(4)]
    if min(zeros[2], zeros[3]) > 0.9 and zeros[0] < 0.5:
        candidates = ("utf-32-le",)
    elif min(zeros[0], zeros[1]) > 0.9 and zeros[3] < 0.5:
        candidates = ("utf-32-be",)
    elif zeros[1] + zeros[3] > 0.02 and zeros[0] + zeros[2] < 0.02:
        candidates = ("utf-16-le",)
    elif zeros[0] + zeros[2] > 0.02 and zeros[1] + zeros[3] < 0.02:
        candidates = ("utf-16-be",)
    else:
        return None
    for encoding in candidates:
        try:
            text = data.decode(encoding) if complete else data.decode(encoding, "replace")
        except UnicodeDecodeError:
            continue
        strange = sum(1 for c in text[:HEAD] if (c < " " and c not in "\t\n\r\f\x1b") or "\ud800" <= c <= "\uf8ff")
        if strange * 50 <= len(text[:HEAD]):
            return text
    return None


def _legacy(data: bytes) -> str:
    """Text that is not valid UTF-8, and neither UTF-16 nor UTF-32 by its zeros."""
    sample = _sample(data)
    if sample.decode("utf-8", "replace").count("\ufffd") * 10 < len(_MULTIBYTE.findall(sample)):
        return data.decode("utf-8", "replace")  # with a few broken bytes: a log that was cut, a stray paste
    if _is_western(sample):
        return data.decode("cp1252", "replace")
    from charset_normalizer import from_bytes  # noqa: PLC0415  (40 ms, and most people's files are UTF-8)

    best = from_bytes(sample, cp_isolation=list(_ENCODINGS)).best()
    encoding = best.encoding if best is not None else None
    if (likely := _short_chinese(sample, encoding)) is not None:
        encoding = likely
    if encoding is None:
        raise Unreadable("is not text in any encoding that can be told")
    return data.decode(_SUPERSETS.get(encoding, encoding), "replace")


# What people's files are in; a guess among all that Python knows ends in curiosities.
_ENCODINGS = (
    "utf_16_le", "utf_16_be", "gb18030", "big5", "shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr",
    "cp949", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "koi8_r",
    "koi8_u", "cp866", "cp874", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_8", "iso8859_9", "iso8859_15",
    "cp437", "cp850", "mac_roman",
)  # fmt: skip
# A sample may lack the characters that only the larger set has.
_SUPERSETS = {"big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949"}


def _sample(data: bytes) -> bytes:
    """The beginning, or, where that is nearly all ASCII, lines that are not; `SAMPLE` bytes of them at most."""
    beginning = data[:SAMPLE]
    if sum(map(len, _HIGH.findall(beginning))) * 10 > len(beginning):
        if len(beginning) < SAMPLE:
            return beginning
        # Not to end in the middle of a character.
        return beginning[: max(beginning.rfind(b"\n"), beginning.rfind(b" ")) + 1] or beginning
    return b"".join(_telling_lines(data))[:SAMPLE]


def _telling_lines(data: bytes) -> Iterator[bytes]:
    gathered, start = 0, 0
    while gathered < SAMPLE and (found := _HIGH.search(data, start)):
        begin = max(data.rfind(b"\n", start, found.start()) + 1, start, found.start() - 1024)
        end = data.find(b"\n", found.end(), found.end() + 1024) + 1 or found.end() + 1024
        yield data[begin:end]
        gathered += end - begin
        start = end


def _is_western(sample: bytes) -> bool:
    """Whether it reads as Windows-1252: accented letters that mostly stand alone, all at home in Western Europe."""
    runs = _HIGH.findall(sample)
    alone = sum(1 for run in runs if len(run) == 1)
    if alone * 10 < len(runs) * 6 or len(runs) * 3 > len(sample):
        return False
    text = sample.decode("cp1252", "replace")
    return bool(_WESTERN.fullmatch(text)) and not _SYMBOL_IN_WORD.search(text)


def _short_chinese(sample: bytes, encoding: str | None) -> str | None:
    """GB 18030 or Big5, where statistics have too little to go by but the characters are all of the usual ones.

    Both sets put those first: the lead bytes of level 1 are B0 to D7 in GB 2312 and A4 to C6 in Big5.
    """
    if encoding in {"cp949", "euc_kr"}:
        # Some GBK is valid EUC-KR too, but then Hangul stands mixed with Han, as nobody writes it today.
        korean = sample.decode(encoding, "replace")
        if len(_HAN.findall(korean)) * 10 < len(_HANGUL.findall(korean)):
            return encoding
    elif len(sample) > 256 or (encoding or "").startswith(_SURE):
        return None
    usual = [name for name, leads in _USUAL.items() if _all_usual(sample, name, leads)]
    return usual[0] if usual and encoding not in usual else None


_SURE = (
    "utf",
    "shift_jis",
    "cp932",
    "euc_jp",
    "iso2022",
    "cp1251",
    "koi8",
    "cp866",
    "iso8859_5",
    "cp1253",
    "iso8859_7",
)
_USUAL = {"gb18030": range(0xB0, 0xD8), "big5": range(0xA4, 0xC7)}


def _all_usual(sample: bytes, encoding: str, leads: range) -> bool:
    text = sample.decode(encoding, "replace")
    han = _HAN.findall(text)
    return "\ufffd" not in text[:-1] and bool(han) and all(c.encode(encoding)[0] in leads for c in han)
