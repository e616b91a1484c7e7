"""What stands for a chunk: the text that an embedder reads, and the tokens that keyword search compares."""

import re
from collections.abc import Sequence

from kura.text.tokens import tokens

# Markdown headings that a chunk begins with; they are not in its heading trail.
_OPENING = re.compile(r"(?:\s*#{1,6}[ \t]+[^\n]+(?:\n|\Z))+")


def passage(heading: Sequence[str], content: str) -> str:
    """Put the heading trail above the content, one heading a line, outermost first.

    Blank headings are left out; with no heading left, the passage is the content itself. Headings that are part of
    the content are expected not to be in the trail.
    """
    return "\n".join([*_trail(heading), content])


def passage_tokens(heading: Sequence[str], content: str) -> list[str]:
    """Return the tokens of a chunk for the keyword index; those of its headings come twice.

    A word in a heading tells more about a passage than one in its text. Headings are the trail, and those that the
    content itself begins with. (Weighting a title like this is BM25F with whole weights: Robertson, Zaragoza, Taylor,
    "Simple BM25 extension to multiple weighted fields", CIKM 2004.)
    """
    opening = _OPENING.match(content)
    titles = [*_trail(heading), opening.group()] if opening else _trail(heading)
    return tokens("\n".join(titles)) + tokens(passage(heading, content))


def _trail(heading: Sequence[str]) -> list[str]:
    return [line for line in (" ".join(title.split()) for title in heading) if line]
