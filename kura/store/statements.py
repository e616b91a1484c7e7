"""Reading knowledge: the statements that answer a search. Each is one round trip, on any engine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kura.store.sqlite import Reader


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with all that an answer shows of it. `source` carries the root's label where there are several roots."""

    chunk_id: int
    source: str
    ordinal: int
    content: str
    heading: tuple[str, ...]
    first_line: int
    last_line: int


async def matching(reader: Reader, expression: str, limit: int) -> list[tuple[int, float]]:
    """Chunks that match an FTS5 expression, best first, as (chunk id, score); a higher score is better.

    The score is FTS5's bm25 (k1 = 1.2, b = 0.75; Robertson and Zaragoza 2009) with its sign turned.
    """
    rows = await reader.rows(
        """
        select rowid, -bm25(chunks_fts) as score from chunks_fts where chunks_fts match ?
        order by score desc, rowid limit ?
        """,
        (expression, limit),
    )
    return [(chunk_id, score) for chunk_id, score in rows]


async def bearing(reader: Reader, vector_ids: Sequence[int]) -> dict[int, list[int]]:
    """The chunks that share each of these vectors, oldest first; a vector that is gone has none."""
    rows = await reader.rows(
        "select vector_id, id from chunks where vector_id in (select value from json_each(?)) order by vector_id, id",
        (json.dumps(vector_ids),),
    )
    chunks: dict[int, list[int]] = {}
    for vector_id, chunk_id in rows:
        chunks.setdefault(vector_id, []).append(chunk_id)
    return chunks


async def passages(reader: Reader, chunk_ids: Sequence[int]) -> dict[int, Passage]:
    """The contents of these chunks, by id; one that is gone is left out."""
    rows = await reader.rows(
        """
        select c.id, case when (select count(*) from roots) > 1 then r.label || '/' || s.path else s.path end,
               c.ordinal, c.content, c.heading, c.first_line, c.last_line
        from chunks c join sources s on s.id = c.source_id join roots r on r.id = s.root_id
        where c.id in (select value from json_each(?))
        """,
        (json.dumps(chunk_ids),),
    )
    return {
        chunk_id: Passage(chunk_id, source, ordinal, content, tuple(json.loads(heading)), first, last)
        for chunk_id, source, ordinal, content, heading, first, last in rows
    }
