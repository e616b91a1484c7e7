"""Reading knowledge: the statements that answer a search. Each is one round trip that brings the contents along."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kura.store.engine import Connection, Row, Statement
from kura.store.sources import STATE, State


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


_PASSAGE = """
  c.id, case when (select count(*) from roots) > 1 then r.label || '/' || s.path else s.path end,
  c.ordinal, c.content, c.heading, c.first_line, c.last_line
"""


def matching(connection: Connection, expression: str | None, limit: int) -> tuple[list[tuple[Passage, float]], State]:
    """Passages that match an FTS5 expression, best first, each with its score; a higher score is better.

    The score is FTS5's bm25 (k1 = 1.2, b = 0.75; Robertson and Zaragoza 2009) with its sign turned.

    Returns:
        What was found, nothing where there is no expression, and the state of the database that it was found in.
    """
    search: Statement = (
        # Materialised, so that contents are fetched for the few best alone and not for all that match.
        f"""
        with best as materialized (
          select rowid as id, -bm25(chunks_fts) as score from chunks_fts where chunks_fts match ?
          order by score desc, rowid limit ?
        )
        select best.score, {_PASSAGE}
        from best join chunks c on c.id = best.id join sources s on s.id = c.source_id join roots r on r.id = s.root_id
        order by best.score desc, best.id
        """,
        (expression, limit),
    )
    described, *found = connection.together([(STATE, ()), search] if expression is not None else [(STATE, ())])
    return [(_passage(row[1:]), row[0]) for rows in found for row in rows], State(*described[0])


def bearing(connection: Connection, vector_ids: Sequence[int], limit: int) -> tuple[list[tuple[int, Passage]], State]:
    """The first `limit` passages that bear these vectors, each with its vector's id, in the order of the ids given.

    Passages that share a vector come oldest first; a vector that is gone has none.

    Returns:
        What was found, and the state of the database that it was found in: in another generation than that of the
        vectors, an id may mean another passage.
    """
    search: Statement = (
        f"""
        with best as materialized (
          select v.key as place, v.value as vector_id, c.id from json_each(?) v join chunks c on c.vector_id = v.value
          order by v.key, c.id limit ?
        )
        select best.vector_id, {_PASSAGE}
        from best join chunks c on c.id = best.id join sources s on s.id = c.source_id join roots r on r.id = s.root_id
        order by best.place, best.id
        """,
        (json.dumps(vector_ids), limit),
    )
    described, rows = connection.together([(STATE, ()), search])
    return [(row[0], _passage(row[1:])) for row in rows], State(*described[0])


def nearest(connection: Connection, query: bytes, limit: int) -> tuple[list[tuple[float, Passage]], State]:
    """The passages whose vectors are nearest to a query's, as the server itself compares them, best first.

    Args:
        connection: To a libSQL server that has every vector as float32.
        query: The query's vector, little-endian float32.
        limit: How many passages.

    Returns:
        Each with its cosine similarity, and the state of the database that they were found in.
    """
    search: Statement = (
        f"""
        with near as materialized (
          select id as vector_id, 1 - vector_distance_cos(embedding, ?) as score from chunk_vectors
          order by score desc, id limit ?
        ), best as materialized (
          select near.score, near.vector_id, c.id from near join chunks c on c.vector_id = near.vector_id
          order by near.score desc, near.vector_id, c.id limit ?
        )
        select best.score, {_PASSAGE}
        from best join chunks c on c.id = best.id join sources s on s.id = c.source_id join roots r on r.id = s.root_id
        order by best.score desc, best.vector_id, best.id
        """,
        (query, limit, limit),
    )
    described, rows = connection.together([(STATE, ()), search])
    return [(row[0], _passage(row[1:])) for row in rows], State(*described[0])


def _passage(row: Row) -> Passage:
    chunk_id, source, ordinal, content, heading, first, last = row
    return Passage(chunk_id, source, ordinal, content, tuple(json.loads(heading)), first, last)
