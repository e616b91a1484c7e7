"""The use case: one question to one database."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import get_args

from kura.errors import ArgumentError, BranchFailed, EmbedderError, NotReady, StoreError, Unavailable
from kura.events import span
from kura.library.library import Library
from kura.search.keyword import keyword
from kura.search.rank import CANDIDATES, Found, page
from kura.search.semantic import semantic
from kura.store.sources import State
from kura.types import Mode, SearchResult, Session, SourceGroup

MAX_QUERY = 10_000
MAX_LIMIT = 100
DEFAULT_LIMIT = 10
_MORE_TRIES = 4

Search = Callable[[], Awaitable[tuple[Found, str | None]]]
Branch = tuple[tuple[SourceGroup, ...] | None, tuple[str, ...], State | None]
"""What is shown of it, its notices, and the state of the database that it was read in."""


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
    # Functions to call rather than calls that wait: a caller that goes away at once leaves none of those behind.
    by_keyword = partial(_timed, "search.keyword", partial(keyword, base, q, limit * CANDIDATES))
    by_semantic = partial(_timed, "search.semantic", partial(semantic, library, base, q, limit * CANDIDATES))
    try:
        if mode == "keyword":
            groups, notices, _ = await _paged(by_keyword, limit)
            return SearchResult(groups, None, notices)
        if mode == "semantic":
            groups, notices, _ = await _paged(by_semantic, limit)
            return SearchResult(None, groups, notices)
        by_word, by_meaning = await _both(by_keyword, by_semantic, limit)
        for _ in range(_MORE_TRIES):
            if base.one_push(by_word[2], by_meaning[2]):
                return SearchResult(by_word[0], by_meaning[0], by_word[1] + by_meaning[1])
            by_word, by_meaning = await _both(by_keyword, by_semantic, limit)
        return SearchResult(by_word[0], None, (*by_word[1], _CHANGING))
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


_CHANGING = "semantic search is left out: what is published kept changing while it was searched; ask again soon"


async def _both(by_keyword: Search, by_semantic: Search, limit: int) -> tuple[Branch, Branch]:
    by_word, by_meaning = await asyncio.gather(
        _paged(by_keyword, limit),
        _optional(by_semantic, limit),
        return_exceptions=True,
    )
    # Both are through, so no branch goes on by itself after an error of the other.
    if isinstance(by_word, BaseException):
        raise by_word
    if isinstance(by_meaning, BaseException):
        raise by_meaning
    return by_word, by_meaning


async def _timed(name: str, branch: Search) -> tuple[Found, str | None]:
    with span(name):
        return await branch()


async def _paged(branch: Search, limit: int) -> Branch:
    found, notice = await branch()
    return page(found, limit), (notice,) if notice else (), found.state


async def _optional(branch: Search, limit: int) -> Branch:
    try:
        return await _paged(branch, limit)
    except NotReady as reason:
        return None, (str(reason),), None
