"""Keyword search: one FTS5 statement over tokens that Kura makes itself."""

from kura.library.knowledge import KnowledgeBase
from kura.search.rank import Found
from kura.store.engine import Connection
from kura.store.statements import matching
from kura.text.tokens import TOKENIZER_VERSION, match_expression
from kura.types import Hit


async def keyword(base: KnowledgeBase, q: str, count: int) -> tuple[Found, str | None]:
    """The `count` chunks that match the words of `q` best, best first; none where `q` has no word.

    Returns:
        What was found, all as of one version, and a notice where the words were indexed in another way than `q` is.

    Raises:
        StoreError: if the database cannot be read, or belongs to another owner by now.
    """
    expression = match_expression(q)

    def read(connection: Connection) -> tuple[Found, str | None]:
        found, current = matching(connection, expression, count)
        base.note(current)
        hits = [Hit(passage.chunk_id, score) for passage, score in found]
        return Found(hits, {passage.chunk_id: passage for passage, _ in found}, current), _notice(current.tokenizer)

    return await base.reader.read(read, whole=False)


def _notice(indexed: int) -> str | None:
    if indexed == TOKENIZER_VERSION:
        return None
    return (
        f"keyword search may miss passages: the words were indexed by version {indexed} of the tokeniser, this process"
        f" has version {TOKENIZER_VERSION}; the operator can run `kura index`"
    )
