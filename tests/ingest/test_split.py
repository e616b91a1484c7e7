"""Text is cut into passages that are whole, small enough, and know where they stand."""

import re
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.ingest.parse import Kind
from kura.ingest.split import outlined, split
from kura.text.estimate import estimate_tokens


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def characters_and_two(text: str) -> int:
    return len(text) + 2


COUNTS: list[Callable[[str], int]] = [words, estimate_tokens, characters_and_two]
markdown = st.lists(
    st.sampled_from(
        ["# A", "## B b", "### C #", "Title\n===", "Sub\n---", "```", "~~~~", "```python\nx = 1\n```", "- item",
         "> quote", "", "", "    code", "word " * 40, "中文没有空格的一段话。" * 8,
         "x" * 300, "|a|b|\n|-|-|\n|1|2|", "<!-- # no -->", "---", "***", "\t"]
    )
    | st.text(max_size=60),
    max_size=25,
).map("\n".join)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(markdown, st.sampled_from(["markdown", "code", "text"]), st.sampled_from(COUNTS), st.sampled_from([12, 40, 256]))
def test_nothing_is_lost_and_every_chunk_is_where_it_says(
    text: str, kind: Kind, count: Callable[[str], int], limit: int
):
    text = text.replace("\r", "\n")
    chunks = split(text, kind, count, limit=limit)
    assert "".join("".join(chunk.content for chunk in chunks).split()) == "".join(text.split())
    assert [chunk.ordinal for chunk in chunks] == list(range(1, len(chunks) + 1))
    lines = text.split("\n")
    for chunk in chunks:
        assert chunk.content.strip()
        assert count(chunk.content) <= limit or len(chunk.content) == 1
        there = lines[chunk.first_line - 1 : chunk.last_line]
        inside = chunk.content.split("\n")
        assert len(there) == len(inside)
        assert all(part.strip() in line for part, line in zip(inside, there, strict=True))
    assert all(a.last_line <= b.first_line for a, b in pairwise(chunks))


GUIDE = """\
---
title: Guide
# not a heading
---
intro

# Install

## Linux

{text}

## macOS

{text}

Usage
=====

{text}

```sh
# a comment, no heading
run
```
"""


def test_a_chunk_has_the_headings_that_enclose_it_but_not_its_own():
    chunks = split(GUIDE.format(text="some words of text " * 12), "markdown", words, limit=60)
    assert [(chunk.content.split("\n")[0], chunk.heading) for chunk in chunks] == [
        ("---", ()),
        ("# Install", ()),
        ("## macOS", ("Install",)),
        ("Usage", ()),
        ("```sh", ("Usage",)),
    ]


def test_a_heading_does_not_stand_alone():
    text = "\n\n".join(f"# Title {n}\n\n## Section {n}\n\n" + "word " * 180 for n in range(9))
    chunks = split(text, "markdown", words, limit=220)
    assert len(chunks) == 9
    assert all(chunk.content.endswith("word") for chunk in chunks)


def test_the_parts_of_a_long_section_all_have_its_heading():
    text = "# Book\n\n## Chapter\n\n" + "\n\n".join(f"Paragraph {n} says something." for n in range(100))
    chunks = split(text, "markdown", words, limit=50)
    assert chunks[0].content.startswith("# Book\n\n## Chapter\n\nParagraph 0")
    assert {chunk.heading for chunk in chunks[1:]} == {("Book", "Chapter")}


@pytest.mark.parametrize("sentences", [1, 40, 59, 90, 119, 200, 1000])
def test_what_has_to_be_cut_comes_to_about_equal_parts(sentences: int):
    text = " ".join(f"Number {n} says a few words." for n in range(sentences))  # 7 words each
    sizes = [words(chunk.content) for chunk in split(text, "text", words, limit=448, aim=240)]
    assert len(sizes) == 1 or min(sizes) > max(sizes) / 2
    assert sum(sizes) == 7 * sentences
    assert (len(sizes) == 1) == (7 * sentences < 360)
    assert max(sizes) < 360


def test_small_sections_share_a_chunk():
    text = "\n\n".join(f"## Part {n}\n\nA few words." for n in range(8))
    assert len(split(text, "markdown", words, limit=256)) == 1


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# One\n## Two ##\n###### Six\n####### seven\n#none\n", ["One", "Two", "Six"]),
        ("Title\n=====\nSub\n---\n", ["Title", "Sub"]),
        ("two lines\nof title\n===\n", ["two lines of title"]),
        ("```\n# no\n```\n# yes\n", ["yes"]),
        ("~~~\n```\n# no\n~~~\n# yes\n", ["yes"]),
        ("````\n```\n# no\n````\n# yes\n", ["yes"]),
        ("# yes\n```\n# no, the fence is open to the end\n", ["yes"]),
        ("    # code\n\n# yes\n", ["yes"]),
        ("<!--\n# no\n-->\n# yes\n", ["yes"]),
        ("- item\n---\n\n> quote\n---\n", []),
        ("---\n# no\n---\n# yes\n", ["yes"]),
        ("a\n\n---\n\nb\n", []),
        ("|a|b|\n|-|-|\n", []),
        ("# [Link](http://x) and `code` **bold** {#id}\n", ["Link and code bold"]),
        ("#\n\n# 标题\n", ["", "标题"]),
    ],
)
def test_headings_are_told_from_what_looks_like_them(text: str, titles: list[str]):
    assert [heading.title for heading in outlined(text).headings] == titles


def test_code_in_a_fence_stays_whole_where_it_fits():
    fence = "```python\n" + "\n".join(f"value_{n} = compute({n})" for n in range(20)) + "\n```"
    text = "\n\n".join(f"Some text before number {n}. " * 12 + f"\n\n{fence}" for n in range(30))
    chunks = split(text, "markdown", words, limit=256)
    assert sum(fence in chunk.content for chunk in chunks) == 30


def test_indentation_of_code_is_kept():
    text = "\n\n".join(f"    def method_{n}(self):\n        return {n}" for n in range(100))
    chunks = split(text, "code", words, limit=60)
    assert len(chunks) > 5
    assert all(chunk.content.startswith("    def") for chunk in chunks)


@pytest.mark.parametrize("kind", ["markdown", "text"])
@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "abc9X" * 200_000, "a" + " " * 1_000_000 + "b", ">" * 20_000, "```\n" + "# x\n" * 20_000,
     "[" * 50_000, "\n".join("  " * n + "- x" for n in range(800)), "a'" * 100_000, "a\u200b" * 100_000],
    ids=["letters", "base64", "blanks", "quotes", "open fence", "brackets", "nested list", "apostrophes", "joiners"],
)  # fmt: skip
def test_monstrous_texts_are_split_in_time_that_grows_with_their_length(text: str, kind: Kind):
    started = time.process_time()
    chunks = split(text, kind, estimate_tokens)
    assert time.process_time() - started < 20
    assert "".join("".join(chunk.content.split()) for chunk in chunks) == "".join(text.split())
    assert max(len(chunk.content) for chunk in chunks) <= 256 * 16


def test_the_slow_exact_count_is_asked_for_little_more_than_the_text_itself():
    text = "\n\n".join(f"## Section {n}\n\n" + f"The number {n} is followed by {n + 1}. " * 30 for n in range(200))
    asked = 0

    def count(part: str) -> int:
        nonlocal asked
        asked += len(part)
        return words(part)

    split(text, "markdown", count)
    assert asked < 2 * len(text)


def test_a_text_of_blanks_has_no_chunks():
    assert split(" \n\t\n  ", "markdown", words) == []
    assert split("", "text", words) == []


class Counting:
    """Takes text to pieces as the pattern does, and counts the pieces."""

    def __init__(self) -> None:
        self.pieces = 0

    def findall(self, text: str, start: int = 0) -> list[str]:
        found = re.findall(r"\w{1,24}|\W{1,24}", text[start:])
        self.pieces += len(found)
        return found


@pytest.mark.parametrize("unit", ["a'", "f(1);", "\u0905\u200d"], ids=["apostrophes", "code", "joiners"])
def test_a_long_run_without_a_blank_is_taken_to_pieces_few_times(unit: str, monkeypatch: pytest.MonkeyPatch):
    text = unit * (200_000 // len(unit))
    counting = Counting()
    monkeypatch.setattr("kura.ingest.split._PIECE", counting)
    assert split(text, "text", estimate_tokens)
    assert counting.pieces < 12 * len(re.findall(r"\w+|\W+", text))


@pytest.mark.parametrize("unit", ["a\u200d", "of\u200d", "a'", "\u4e00", "x"], ids=ascii)
def test_parts_that_are_estimated_at_less_than_a_token_are_not_cut_twice(unit: str):
    asked = 0

    def count(part: str) -> int:
        nonlocal asked
        asked += len(part)
        return estimate_tokens(part)

    text = unit * (100_000 // len(unit))
    chunks = split(text, "text", count)
    assert asked < 1.5 * len(text)
    assert sum(len(chunk.content) for chunk in chunks) == len(text)
