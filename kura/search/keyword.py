"""Keyword search: one FTS5 statement over tokens that Kura makes itself."""

from kura.search.library import KnowledgeBase
from kura.store.statements import matching
from kura.text.tokens import match_expression
from kura.types import Hit


async def keyword(base: KnowledgeBase, q: str, count: int) -> list[Hit]:
    """The `count` chunks that match the words of `q` best, best first; none where `q` has no word."""
    expression = match_expression(q)
    if expression is None:
        return []
    return [Hit(chunk_id, score) for chunk_id, score in await matching(base.reader, expression, count)]
