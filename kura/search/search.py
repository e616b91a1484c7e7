"""The use case: one question to one database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

from kura.errors import ArgumentError, BranchFailed, EmbedderError, NotReady, StoreError, Unavailable
from kura.search.keyword import keyword
from kura.search.library import KnowledgeBase, Library
from kura.search.rank import CANDIDATES, page
from kura.search.semantic import ready, semantic
from kura.store.sources import state
from kura.store.statements import passages
from kura.text.tokens import TOKENIZER_VERSION
from kura.types import Hit, Mode, SearchResult, Session, SourceGroup

MAX_QUERY = 10_000
MAX_LIMIT = 100
DEFAULT_LIMIT = 10

Groups = tuple[SourceGroup, ...]


async def search(
    library: Library, session: Session, db: str, q: str, mode: Mode | None = None, limit: int = DEFAULT_LIMIT
) -> SearchResult:
    """Search one database by keyword, by meaning, or both at once.

    Args:
        library: The process's databases.
        session: On whose behalf; it decides which databases there are.
        db: Name of the database.
        q: The question, 1 to 10,000 characters once trimmed.
        mode: The one branch to run; None runs both.
        limit: At most this many passages for each branch, 1 to 100.

    Raises:
        ArgumentError: if an argument is out of its bounds.
        UnknownDatabase: if there is no such database for this session.
        Unavailable: if there is, but it cannot be read now.
        BranchFailed: if a branch that was asked for cannot run, or one that runs fails.
    """
    q = _checked(q, mode, limit)
    base = await library.open(session, db)
    try:
        if mode == "keyword":
            groups, notices = await _keyword(base, q, limit)
            return SearchResult(groups, None, notices)
        if mode == "semantic":
            groups, notices = await _semantic(library, base, q, limit)
            return SearchResult(None, groups, notices)
        by_word, by_meaning = await asyncio.gather(
            _keyword(base, q, limit), _optional(_semantic(library, base, q, limit)), return_exceptions=True
        )
        # Both are through, so no branch goes on by itself after an error of the other.
        if isinstance(by_word, BaseException):
            raise by_word
        if isinstance(by_meaning, BaseException):
            raise by_meaning
        return SearchResult(by_word[0], by_meaning[0], by_word[1] + by_meaning[1])
    except StoreError as error:
        raise Unavailable(db, str(error)) from error
    except EmbedderError as error:
        raise BranchFailed(f"semantic search failed: {error}") from error


def _checked(q: str, mode: Mode | None, limit: int) -> str:
    q = q.strip()
    if not q or len(q) > MAX_QUERY:
        raise ArgumentError(f'invalid argument: "q" must have 1 to {MAX_QUERY:,} characters besides blanks')
    if mode is not None and mode not in get_args(Mode):
        raise ArgumentError('invalid argument: "mode" must be "keyword" or "semantic"; leave it out for both')
    if not 1 <= limit <= MAX_LIMIT:
        raise ArgumentError(f'invalid argument: "limit" must be a whole number from 1 to {MAX_LIMIT}')
    return q


async def _keyword(base: KnowledgeBase, q: str, limit: int) -> tuple[Groups, tuple[str, ...]]:
    known = await base.reader.read(state)
    notices: tuple[str, ...] = ()
    if known.tokenizer != TOKENIZER_VERSION:
        notices = (
            f"keyword search may miss passages: the words were indexed by version {known.tokenizer} of the tokeniser,"
            f" this process has version {TOKENIZER_VERSION}; the operator can run `kura index`",
        )
    return await _answered(base, limit, lambda: keyword(base, q, limit * CANDIDATES)), notices


async def _semantic(library: Library, base: KnowledgeBase, q: str, limit: int) -> tuple[Groups, tuple[str, ...]]:
    embedder, vectors, notice = await ready(library, base)

    async def hits() -> list[Hit]:
        return await semantic(library, base, embedder, base.vectors or vectors, q, limit * CANDIDATES)

    return await _answered(base, limit, hits), (notice,) if notice else ()


async def _answered(base: KnowledgeBase, limit: int, hits: Callable[[], Awaitable[list[Hit]]]) -> Groups:
    """Fetch the contents of the hits; where a newer version has removed one meanwhile, catch up and ask once more."""
    found = await hits()
    contents = await passages(base.reader, [hit.chunk_id for hit in found])
    if len(contents) < len({hit.chunk_id for hit in found}):
        await asyncio.wrap_future(base.catch_up(at_once=True))
        found = await hits()
        contents = await passages(base.reader, [hit.chunk_id for hit in found])
    return page(found, contents, limit)


async def _optional(
    branch: Awaitable[tuple[Groups, tuple[str, ...]]],
) -> tuple[Groups | None, tuple[str, ...]]:
    try:
        return await branch
    except NotReady as reason:
        return None, (str(reason),)
