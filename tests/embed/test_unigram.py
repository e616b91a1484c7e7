"""The tokeniser against Hugging Face's, which is built here from the same pieces."""

import random
import time
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from kura.embed.unigram import Unigram, normalise
from tests.embed.conftest import Vocabulary

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "A state-of-the-art retriever; see section 38.101 (DEC-0054) for gpt-4.",
    "知识库可以通过关键词和语义两种方式进行检索，结果按来源分组。",
    "東京都は日本の首都であり、人口は約1400万人です。カタカナとひらがな。",
    "검색 증강 생성은 외부 지식 기반을 활용하는 기술입니다.",
    "البحث الدلالي يجد المقاطع حسب المعنى وليس حسب الكلمات فقط.",
    "Поиск по смыслу находит нужные отрывки даже без общих слов.",
    "Größere Änderungen müssen überprüft werden, naïve façade, Ångström.",
    "हिन्दी में खोज करने का तरीका और उसके परिणाम।",
    "ค้นหาข้อความภาษาไทยที่ไม่มีการเว้นวรรค",
    "def f(x: int) -> dict[str, int]:\n    return {'a': x ** 2, \"b\": x // 3}  # noqa\n",
    "SELECT * FROM users WHERE age >= 25 AND name LIKE '%o_%';",
    "curl -sS https://example.org/a/b?c=d&e=%20f | jq '.[] | .id'",
    "3.14159 -273.15 1,000,000 0xDEADBEEF 2026-11-30T22:09:00Z ½ ² ³ ① Ⅷ",
    "emoji 😀👍🏽👨‍👩‍👧‍👦🇨🇭 ✨ and arrows → ⇒ ≤ ≥ ∑ √",
    "<s> </s> <pad> <unk> <mask> are pieces, too; <S> is not",
)
SPACES = (" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u200b", "\u2028", "\ufeff", " \t \n ", "")
ODDITIES = (
    *("e\u0301", "n\u0303", "\u1112\u1161\u11ab", "か\u3099", "ﾊﾞ", "ﬁ", "Ａ", "㎏", "ǆ", "\ufdfa", "\u0d4c"),
    *("\x00", "\x01", "\x7f", "\x85", "\u00ad", "\ue000", "\U0001f9ff", "\U0002a6df", "\U000e0001", "ꙮ", "𓂀𓂀𓂀"),
    *("\u2581", "\u2581a", "a\u2581", "x" * 300, "哈" * 200, "ab" * 150, "𒀀" * 50, "-" * 80, "\ufffd"),
)


def mixed_texts(vocabulary: Vocabulary, count: int) -> Iterator[str]:
    yield from SENTENCES
    yield from ODDITIES
    yield from SPACES
    draw = random.Random(20261130)  # noqa: S311 - nothing secret
    for _ in range(count):
        parts: list[str] = []
        for _ in range(draw.randint(1, 12)):
            sentence = draw.choice(SENTENCES)
            start = draw.randrange(len(sentence))
            parts.append(
                draw.choice(
                    (
                        sentence[start : start + draw.randint(1, 40)],
                        draw.choice(vocabulary.pieces).replace("▁", " "),
                        "".join(draw.choice(vocabulary.pieces)[-1] for _ in range(draw.randint(1, 8))),
                        draw.choice(ODDITIES),
                        str(draw.randrange(10 ** draw.randint(1, 12))),
                        chr(draw.choice((draw.randrange(0x20, 0x2FF), draw.randrange(0x3000, 0xD7FF)))),
                    )
                )
            )
            parts.append(draw.choice(SPACES))
        text = "".join(parts)
        if in_canonical_order(text):  # the reference would reorder it, and the original not
            yield text


def in_canonical_order(text: str) -> bool:
    classes = [unicodedata.combining(mark) for character in text for mark in unicodedata.normalize("NFKD", character)]
    return all(second == 0 or first <= second for first, second in pairwise(classes))


@pytest.fixture(scope="module")
def reference(vocabulary: Vocabulary) -> Tokenizer:
    pieces = list(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"[\x00-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"), ""),
            normalizers.Replace(
                Regex(r"[\t\n\f\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]"), " "
            ),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" +"), " "),
            normalizers.Replace(Regex("^ | $"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def test_mixed_texts_are_cut_as_the_reference_cuts_them(
    unigram: Unigram, vocabulary: Vocabulary, reference: Tokenizer
) -> None:
    texts = list(mixed_texts(vocabulary, 2200))
    expected = [encoding.ids for encoding in reference.encode_batch(texts)]
    different = [
        (text, unigram.ids(text), ids) for text, ids in zip(texts, expected, strict=True) if unigram.ids(text) != ids
    ]
    assert different == []
    assert len(texts) > 2000
    assert {vocabulary.unknown} < {token for ids in expected for token in ids}


def test_every_piece_that_is_a_word_is_cut_as_the_reference_cuts_it(
    unigram: Unigram, vocabulary: Vocabulary, reference: Tokenizer
) -> None:
    words = [piece[1:] for piece in vocabulary.pieces if piece.startswith("▁") and in_canonical_order(piece)]
    some = words[:: len(words) // 10_000]
    assert [unigram.ids(word) for word in some] == [encoding.ids for encoding in reference.encode_batch(some)]


# What SentencePiece's own `nmt_nfkc` makes of each, with XLM-RoBERTa's table.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\u0301", "é"),
        ("\u0651\u064e", "\u0651\u064e"),
        ("\u064e\u0651", "\u064e\u0651"),
        ("a\u0323\u0302", "ậ"),
        ("a\u0302\u0323", "â\u0323"),
        ("q\u0301\u0323", "q\u0301\u0323"),
        ("a\u0301\u0301", "á\u0301"),
        ("\u1112\u1161\u11ab", "한"),
        ("か\u3099", "が"),
        ("ﾊﾞ", "バ"),
        ("ก\u0e33", "ก\u0e4d\u0e32"),
        ("①~～", "1~～"),
        ("e\u0301～q\u0301\u0323ﬁ", "é～q\u0301\u0323fi"),
        ("a\u200bb\u00a0c\x01d", "a b cd"),
        ("a\ud800b\udfffc\ufffd", "a b c "),
    ],
    ids=ascii,
)
def test_characters_are_composed_but_never_reordered(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_spaces_around_a_text_do_not_count(unigram: Unigram) -> None:
    assert unigram.ids("\n  two   words\t ") == unigram.ids("two words")


@pytest.mark.parametrize("text", ["", " ", "\n\t\u200b", "\x00", "\ud800"], ids=ascii)
def test_a_text_without_characters_has_no_tokens(unigram: Unigram, text: str) -> None:
    assert unigram.count(text) == 0


def test_nul_is_as_if_it_were_not_there(unigram: Unigram) -> None:
    assert unigram.ids("data\x00base") == unigram.ids("database")


@pytest.mark.parametrize("unit", ["word ", "abcdefg", "知识库检索", "\U0001f9ff"], ids=ascii)
def test_the_time_to_count_grows_with_the_length_alone(unigram: Unigram, unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        began = time.process_time()
        unigram.count(text)
        return time.process_time() - began

    assert min(seconds(200_000) for _ in range(2)) < 40 * max(min(seconds(20_000) for _ in range(3)), 0.002)


def test_a_line_of_a_megabyte_is_counted_in_full(unigram: Unigram, reference: Tokenizer) -> None:
    line = "语义检索abc" * 70_000
    assert len(line.encode()) > 1_000_000
    assert unigram.count(line) == len(reference.encode(line).ids)


@pytest.mark.parametrize("unit", ["word ", "知识库检索", "\U0001f9ff"], ids=ascii)
def test_a_limit_bounds_the_work_however_long_the_text(unigram: Unigram, unit: str) -> None:
    text = unit * 200_000
    began = time.process_time()
    tokens = unigram.ids(text, 510)
    assert time.process_time() - began < 0.5
    assert len(tokens) <= 510
    assert tokens[:500] == unigram.ids(text)[:500]


def test_a_run_of_unknown_characters_is_one_token(unigram: Unigram, vocabulary: Vocabulary) -> None:
    assert unigram.ids("\U0001f9ff" * 9)[1:] == [vocabulary.unknown]
