"""Questions to a library of a few files, and what of the answers is looked at."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kura.library.library import Library
from kura.search.search import search
from kura.types import Mode, SearchResult, Session, SourceGroup

T = TypeVar("T")

FILES = {
    "en/rag.md": ["Retrieval augments generation with passages.", "A passage is a part of a file."],
    "en/bread.md": ["Bread needs flour, water and salt.", "Knead the dough and let it rest."],
    "en/code.md": [
        "Write C++ or node.js; the state-of-the-art in DEC-0054.",
        "Run with --error-on-warnings, don't ask.",
    ],
    "zh/shuju.md": ["数据库的备份应当每天进行。", "番茄种植需要充足的阳光。"],
}

EVERYBODY = Session()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, on which nothing may be left behind."""

    async def watched() -> T:
        result = await coroutine
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(watched())


def ask(library: Library, q: str, mode: Mode | None = None, limit: int = 10, db: str = "notes") -> SearchResult:
    return run(search(library, EVERYBODY, db, q, mode, limit))


def sources_of(groups: tuple[SourceGroup, ...] | None) -> list[str]:
    assert groups is not None
    return [group.source for group in groups]


def contents(groups: tuple[SourceGroup, ...] | None) -> list[str]:
    assert groups is not None
    return [match.content for group in groups for match in group.matches]
