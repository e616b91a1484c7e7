"""Text to chunks: passages that a reader understands, of a size that the embedder takes whole.

semantic-text-splitter finds the places to cut. It measures each candidate through a callback, which comes to ten times
the text's length, and its time grows with the square of a paragraph's. Therefore it is given blocks of a few thousand
characters, cut at headings and blank lines, and a measure that adds up remembered word sizes; only the chunks that
result are counted exactly, once.
"""

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from kura.ingest.parse import Kind
from kura.types import Chunk

LIMIT = 448
"""Tokens of a chunk, at most."""

AIM = 240
"""Tokens that a chunk should have: what is longer than the limit allows is cut into equal parts of about this size.

Filling chunks up to a limit leaves a small rest of most texts, which says too little to be found by.
"""

_DENSITY = 16
"""Characters of a token, on average in a chunk, at most: nobody reads a screen of blanks between two words."""

_SPARE = 20
"""One part in so many of a chunk is not filled: for a heading to be put in front, and where an estimate is short."""

_LEEWAY = 15
"""Equal parts may exceed their share by one part in so many of the limit, to end where a sentence or paragraph does."""

_BLOCK = 4096
_LONGEST_WORD = 24
_LONG_RUN = 200  # characters without a blank from which on it pays to remember their sizes
_MOST_WORDS = 100_000
_LONGEST_TITLE = 200
_LONGEST_INDENT = 80
_LONGEST_LINE = 1000  # so much of a line tells what it is

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a Markdown text: the range of its lines, what it says, and the titles that enclose it."""

    start: int
    end: int
    level: int
    title: str
    trail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    """What the lines of a Markdown text tell: its headings, and the ranges of its fenced code."""

    headings: tuple[Heading, ...] = ()
    fences: tuple[tuple[int, int], ...] = ()


def split(text: str, kind: Kind, count: Count, *, limit: int = LIMIT, aim: int = AIM) -> list[Chunk]:
    """Cut `text` into chunks, in order; all that is not whitespace is in exactly one of them.

    Args:
        text: Lines end in a line feed.
        kind: Markdown is cut by its structure and gets heading trails; code and plain text are cut at blank lines,
            line ends, sentences and words.
        count: Tokens of a text. Constant costs of a call (special tokens) are taken into account; a text's tokens
            are expected to be about the sum of its words'.
        limit: Tokens of a chunk at most. A single character that has more is a chunk all the same.
        aim: Tokens of a chunk where the text has to be cut, about; no more than `limit`.
    """
    aim = min(aim, limit)
    outline = outlined(text) if kind == "markdown" else Outline()
    measure = _Measure(count, limit)
    measure.exact(text[:_BLOCK])
    measure.learn()
    spans: list[tuple[int, int]] = []
    for start, end, is_markdown in _blocks(text, kind, outline, limit):
        block = text[start:end]
        if not block.strip():
            continue
        splitter = MarkdownSplitter if is_markdown else TextSplitter
        pieces = splitter.from_callback(measure, _capacity(measure(block), limit, aim), trim=False).chunk_indices(block)
        for offset, piece in _fitting(pieces, measure, limit):
            if piece.strip():
                spans.append((start + offset, start + offset + len(piece)))
    return list(_chunks(text, outline.headings, _with_text(text, spans, outline.headings, measure, limit)))


def _capacity(size: int, limit: int, aim: int) -> int:
    """Tokens up to which chunks are filled so that a text of `size` comes to equal parts of about `aim`."""
    most = max(limit - limit // _SPARE, 1)
    if size <= most and size < aim + aim // 2:
        return most
    parts = max(round(size / aim), math.ceil(size / most))
    return min(most, size // parts + limit // _LEEWAY)


def outlined(text: str) -> Outline:
    """Find the headings of a Markdown text (ATX and Setext, as in CommonMark) and its fenced code.

    What looks like a heading in front matter, in fenced or indented code, in a comment, a quote or a list is none for
    our purpose. A fence that is never closed reaches to the end.
    """
    fences: list[tuple[int, int]] = []
    headings: list[tuple[int, int, int, str]] = []
    paragraph: tuple[int, int] | None = None  # lines that a Setext underline would make a heading
    for start, end in _open_lines(text, fences):
        line = text[start : min(end, start + _LONGEST_LINE)]
        before = paragraph if paragraph and paragraph[1] == start else None
        paragraph = None
        if atx := _ATX.match(line):
            headings.append((start, end, len(atx[1]), atx[2] or ""))
        elif before and (underline := _SETEXT.match(line)):
            title = text[before[0] : min(before[1], before[0] + _LONGEST_LINE)]
            headings.append((before[0], end, 1 if underline[1] == "=" else 2, title))
        elif not line.strip():
            continue
        elif before and not _INTERRUPTS.match(line):
            paragraph = before[0], end
        elif not _NO_PARAGRAPH.match(line):
            paragraph = start, end
    return Outline(tuple(_nested(headings)), tuple(fences))


def _open_lines(text: str, fences: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges of the lines that are neither in front matter nor in a comment nor in a fence; fences are noted."""
    fence, opened, comment = "", 0, False
    position = _after_front_matter(text)
    while position < len(text):
        start, end = position, text.find("\n", position) + 1 or len(text)
        line, position = text[start : min(end, start + _LONGEST_LINE)], end
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fences.append((opened, end))
                fence = ""
        elif comment or line.lstrip().startswith("<!--"):
            comment = text.find("-->", start, end) < 0
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence, opened = mark[1], start
        else:
            yield start, end
    if fence:
        fences.append((opened, len(text)))


def _nested(found: Iterable[tuple[int, int, int, str]]) -> Iterator[Heading]:
    """Headings, given as start, end, level and text, with what encloses each."""
    enclosing: list[tuple[int, str]] = []
    for start, end, level, text in found:
        while enclosing and enclosing[-1][0] >= level:
            enclosing.pop()
        title = _title(text)
        yield Heading(start, end, level, title, tuple(name for _, name in enclosing if name))
        enclosing.append((level, title))


_PIECE = re.compile(rf"\w{{1,{_LONGEST_WORD}}}|\W{{1,{_LONGEST_WORD}}}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+([^\n]*))?[ \t]*\n?\Z")
_SETEXT = re.compile(r" {0,3}(=|-)\1*[ \t]*\n?\Z")
_NO_PARAGRAPH = re.compile(r"\s*$| {4}|\t| {0,3}(?:[>|<]|[-+*][ \t]|\d{1,9}[.)][ \t]|[-*_](?:[ \t]*[-*_]){2,}\s*$)")
_INTERRUPTS = re.compile(r" {0,3}(?:>|[-+*][ \t]+\S|1[.)][ \t]+\S|[-*_](?:[ \t]*[-*_]){2,}\s*$)")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?:(?!(?:---|\.\.\.)[ \t]*\n)[^\n]*\n){0,500}(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_ATTRIBUTES = re.compile(r"[ \t]*\{[#.][^{}]*\}\s*$")
_CLOSING = re.compile(r"(?:^|[ \t]+)#+\s*$")
_MARKUP = re.compile(r"\*\*|__|`")


class _Measure:
    """The size of a text as the sum of its words' sizes, each counted once. It learns, so there is one for each text.

    Words are short runs without whitespace, so for a tokeniser that never joins words across blanks the sum is exact
    where they are. For all else there is a factor, learned from the exact counts of what was cut before.
    """

    def __init__(self, count: Count, limit: int) -> None:
        self._count = count
        self._constant = count("")
        self._longest = limit * _DENSITY
        self._sizes = _Sizes(count, self._constant, least=0)
        self._run = _Run(_Sizes(count, self._constant, least=1))
        self._factor = 1.0
        self._summed = self._exact = 0

    def __call__(self, text: str) -> int:
        length = len(text)
        if length > self._longest:
            return length
        return max(self._constant + math.ceil(self._sum(text) * self._factor), -(-length // _DENSITY))

    def exact(self, text: str) -> int:
        """The size by the one who knows, of what a chunk would keep of the text."""
        text = _trimmed(text)
        size = self._count(text)
        self._summed += self._sum(text)
        self._exact += max(size - self._constant, 0)
        return size

    def learn(self) -> None:
        """Adjust the factor to what was counted exactly since the last time."""
        if self._summed:
            self._factor = min(max(self._exact / self._summed, 0.25), 4.0)
            self._summed = self._exact = 0

    def _sum(self, text: str) -> int:
        sizes, total = self._sizes, 0
        for word in text.split():
            if len(word) <= _LONGEST_WORD:
                total += sizes[word]
            else:
                total += self._run.size(word)
        return total


class _Sizes(dict[str, int]):
    """The tokens of short words, `least` or more, each counted when it is first asked for."""

    def __init__(self, count: Count, constant: int, least: int) -> None:
        super().__init__()
        self._count = count
        self._constant = constant
        self._least = least

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_WORDS:
            self.clear()  # numbers in tables do not recur
        size = self[word] = max(self._count(word) - self._constant, self._least)
        return size


class _Run:
    """The size of a long run without a blank: of letters, of Han, of minified code, of base64.

    Runs differ at their ends from call to call, so they are taken to pieces, which recur. There may be as many of those
    as characters, and a splitter in search of a place to cut asks about ever other ends of what begins at one place:
    the sums up to each piece of the last run are remembered.
    """

    def __init__(self, sizes: _Sizes) -> None:
        # Sizes of at least one token: an estimate of less is rounded to none, and a thousand of those would be none.
        self._sizes = sizes
        self._text = ""
        self._ends = [0]
        self._sums = [0]

    def size(self, run: str) -> int:
        """The sum of the sizes of its pieces."""
        if len(run) <= _LONG_RUN:
            return sum(map(self._sizes.__getitem__, _PIECE.findall(run)))
        if not self._text.startswith(run):
            self._remember(run)
        last = bisect.bisect_right(self._ends, len(run)) - 1
        rest = run[self._ends[last] :]
        return self._sums[last] + (self._sizes[rest] if rest else 0)

    def _remember(self, run: str) -> None:
        # The last piece of what is known may have been cut off by its end.
        kept = max(len(self._ends) - 1, 1) if run.startswith(self._text) else 1
        del self._ends[kept:], self._sums[kept:]
        end, total = self._ends.pop(), self._sums.pop()
        pieces = _PIECE.findall(run, end)
        self._ends.extend(accumulate(map(len, pieces), initial=end))
        self._sums.extend(accumulate(map(self._sizes.__getitem__, pieces), initial=total))
        self._text = run


def _blocks(text: str, kind: Kind, outline: Outline, limit: int) -> Iterator[tuple[int, int, bool]]:
    """Ranges of `text`, in order and without gaps, each with whether it is to be read as Markdown."""
    if kind != "markdown":
        yield from ((start, end, False) for start, end in _plain_blocks(text, 0, len(text)))
        return
    headings = [heading.start for heading in outline.headings]
    position = 0
    for start, end in outline.fences:
        if end - start > limit * _DENSITY:  # it can be no chunk: cut by its lines, and only those between as Markdown
            yield from _markdown_blocks(text, position, start, outline, headings)
            yield from ((a, b, False) for a, b in _plain_blocks(text, start, end))
            position = end
    yield from _markdown_blocks(text, position, len(text), outline, headings)


def _markdown_blocks(
    text: str, start: int, end: int, outline: Outline, headings: Sequence[int]
) -> Iterator[tuple[int, int, bool]]:
    """Blocks that begin, where possible, at a heading; else after a blank line or at a fence; never inside one."""
    while end - start > _BLOCK:
        low, high = _window(start, end)
        inside = outline.headings[bisect.bisect_left(headings, low) : bisect.bisect_right(headings, high)]
        if inside:
            cut = min(inside, key=lambda heading: (heading.level, -heading.start)).start
        else:
            cut = _outside(outline.fences, _last_break(text, low, high), start)
        yield start, min(cut, end), True
        start = cut
    if start < end:
        yield start, end, True


def _outside(fences: Sequence[tuple[int, int]], cut: int, start: int) -> int:
    """The place to cut, moved to the beginning of the fence that it lies in, or to its end where that is `start`."""
    at = bisect.bisect_left(fences, (cut, 0)) - 1
    if at >= 0 and fences[at][0] < cut < fences[at][1]:
        return fences[at][0] if fences[at][0] > start else fences[at][1]
    return cut


def _plain_blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > _BLOCK:
        cut = _last_break(text, *_window(start, end))
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _window(start: int, end: int) -> tuple[int, int]:
    """Where a block that begins at `start` may end so that what is left up to `end` is no mere rest."""
    return start + _BLOCK // 2, min(start + _BLOCK, end - _BLOCK // 4)


def _last_break(text: str, low: int, high: int) -> int:
    """The best place to cut in the range, as late as possible."""
    for gap in ("\n\n", "\n", " "):
        found = text.rfind(gap, low, high)
        if found >= 0:
            return found + len(gap)
    return high


def _fitting(pieces: Sequence[tuple[int, str]], measure: _Measure, limit: int) -> Iterator[tuple[int, str]]:
    """The pieces; those that an exact count finds too long are cut again, into equal parts."""
    for offset, piece in pieces:
        size = measure.exact(piece)
        if size <= limit:
            yield offset, piece
        else:
            parts = size // limit + 1
            capacity = min(limit, size // parts + limit // 8 + 1)
            again = TextSplitter.from_callback(measure.exact, capacity, trim=False)
            yield from ((offset + inner, part) for inner, part in again.chunk_indices(piece))
    measure.learn()


def _with_text(
    text: str, spans: Sequence[tuple[int, int]], headings: Sequence[Heading], measure: _Measure, limit: int
) -> Iterator[tuple[int, int]]:
    """The spans; one that holds nothing but headings is put in front of the next, if it fits."""
    ends = [heading.end for heading in headings]
    front: tuple[int, int] | None = None
    for start, end in spans:
        begin = start
        if front is not None:
            if measure.exact(text[front[0] : end]) <= limit:
                begin = front[0]
            else:
                yield front
        front = None
        if headings and _is_bare(text, (begin, end), headings, bisect.bisect_right(ends, begin)):
            front = begin, end
        else:
            yield begin, end
    if front is not None:
        yield front


def _is_bare(text: str, span: tuple[int, int], headings: Sequence[Heading], at: int) -> bool:
    position = span[0]
    while at < len(headings) and headings[at].end <= span[1] and not text[position : headings[at].start].strip():
        position = headings[at].end
        at += 1
    return position > span[0] and not text[position : span[1]].strip()


def _chunks(text: str, headings: Sequence[Heading], spans: Iterable[tuple[int, int]]) -> Iterator[Chunk]:
    ends = [heading.end for heading in headings]
    line, counted = 1, 0
    for ordinal, (start, end) in enumerate(spans, 1):
        content = _trimmed(text[start:end])
        begin = text.index(content, start)
        line += text.count("\n", counted, begin)
        counted = begin
        trail = _trail(headings, bisect.bisect_right(ends, begin), begin)
        yield Chunk(ordinal, content, trail, line, line + content.count("\n"))


def _trimmed(piece: str) -> str:
    """Without blank lines around it, and without its first line's indent if that is of no use."""
    indented = len(piece) - len(piece.lstrip())
    line = piece.rfind("\n", 0, indented) + 1
    return piece[line if line or indented <= _LONGEST_INDENT else indented :].rstrip()


def _trail(headings: Sequence[Heading], above: int, begin: int) -> tuple[str, ...]:
    """The titles in force at `begin`, with `above` headings before it; one that begins there is not its own title."""
    if above < len(headings) and headings[above].start <= begin:
        return headings[above].trail
    if not above:
        return ()
    last = headings[above - 1]
    return (*last.trail, last.title) if last.title else last.trail


def _title(text: str) -> str:
    text = _CLOSING.sub("", _ATTRIBUTES.sub("", text))
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", text)).split())[:_LONGEST_TITLE]


def _after_front_matter(text: str) -> int:
    found = _FRONT_MATTER.match(text[:_BLOCK])
    return found.end() if found else 0
