"""The text that stands for a chunk, in the keyword index and before the embedder alike."""

from collections.abc import Sequence


def passage(heading: Sequence[str], content: str) -> str:
    """Put the heading trail above the content, one heading a line, outermost first.

    Blank headings are left out; with no heading left, the passage is the content itself. Headings that are part of
    the content are expected not to be in the trail.
    """
    trail = [line for line in (" ".join(title.split()) for title in heading) if line]
    return "\n".join([*trail, content])
