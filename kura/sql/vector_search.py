"""The use case: the nearest rows of a table to a vector, exactly, among those that the session may see."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kura.errors import ArgumentError, NotReady, StatementRefused, StoreError, Unavailable
from kura.library.columns import LoadedColumn
from kura.library.knowledge import KnowledgeBase
from kura.library.library import Library
from kura.sql.columns import (
    VectorColumn,
    declared_dimension,
    joined,
    parts_of,
    rows_named,
    selection,
    size_of_column,
    vector_columns,
)
from kura.sql.guard import KNOWLEDGE_COLUMNS, Binding, Known, Value
from kura.sql.query import context, database
from kura.sql.ranking import Ranked, Seeing, among, other_length
from kura.store.engine import Asked, Connection, folded, quoted
from kura.store.segments import Vectors
from kura.store.sources import STATE, State
from kura.types import Rules, Session
from kura.vectors.metrics import Metric, nearest

MOST_RESULTS = 1000
CHUNKS, EMBEDDING = "chunks", "embedding"

_CHUNK_COLUMNS = (*KNOWLEDGE_COLUMNS[CHUNKS], "path")
_TRIES = 3
_PATH = "case when (select count(*) from roots) > 1 then r.label || '/' || s.path else s.path end"

Filter = tuple[str, Value]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Near:
    """A row that was found: its primary key or its number, how far it is, and its other columns."""

    id: tuple[object, ...]
    distance: float
    metadata: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Found:
    """What a vector search found.

    Attributes:
        table: As it was declared.
        column: The same.
        index_size: How many rows with a usable vector the session may see, whatever the filter.
        results: The nearest, nearest first.
        left_out: How many visible rows were not ranked, by reason.
    """

    table: str
    column: str
    index_size: int
    results: tuple[Near, ...]
    left_out: dict[str, int]


async def vector_search(
    library: Library,
    session: Session,
    db: str | None,
    table: str,
    column: str,
    query_vector: Sequence[float],
    k: int = 10,
    metric: Metric = "cosine",
    filtered: Filter | None = None,
    *,
    rules: Rules | None = None,
) -> Found:
    """Find the rows whose vectors are nearest to one.

    Args:
        library: The process's databases.
        session: On whose behalf; policies say which rows there are.
        db: Name of the database; None where the session sees exactly one.
        table: The table, or `chunks` for the passages of the knowledge base.
        column: Its column of vectors: blobs of little-endian float32. For `chunks`, `embedding`.
        query_vector: The vector to compare with, of the same length.
        k: How many, 1 to 1,000.
        metric: How distances are measured; the nearest has the smallest.
        filtered: A column of the table, and the value that it is to have.
        rules: What agents may do; left out, what the library says.

    Raises:
        ArgumentError: if there is no such table or column, or the vector does not fit; the message says what there is.
        UnknownDatabase: if there is no such database for this session.
        Unavailable: if there is, but it cannot be read now.
    """
    rules = rules or library.rules
    vector = _checked(query_vector, k, metric)
    name, base = await database(library, session, db)
    try:
        if folded(table) == CHUNKS:
            if folded(column) != EMBEDDING:
                raise ArgumentError(f'invalid argument: "column" of {CHUNKS} must be "{EMBEDDING}"')
            return await base.in_thread(_in_chunks, base, vector, k, metric, filtered)
        return await base.in_thread(_in_table, base, session, (table, column), vector, k, metric, filtered, rules)
    except StoreError as error:
        raise Unavailable(name, str(error)) from error


def _checked(query_vector: Sequence[float], k: int, metric: Metric) -> NDArray[np.float32]:
    if not 1 <= k <= MOST_RESULTS:
        raise ArgumentError(f'invalid argument: "k" must be a whole number from 1 to {MOST_RESULTS}')
    with np.errstate(over="ignore"):
        vector = np.array(query_vector, np.float64).astype(np.float32)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise ArgumentError('invalid argument: "query_vector" must be a list of finite numbers, at least one')
    if metric == "cosine" and not vector.any():
        raise ArgumentError('invalid argument: "query_vector" must not be all zeros, which has no direction to compare')
    return vector


def _in_table(
    base: KnowledgeBase,
    session: Session,
    named: tuple[str, str],
    vector: NDArray[np.float32],
    k: int,
    metric: Metric,
    filtered: Filter | None,
    rules: Rules,
) -> Found:
    for _ in range(_TRIES - 1):
        before = base.version()
        found = _in_table_once(base, session, named, vector, k, metric, filtered, rules, before)
        if before == base.version():
            return found
    # Somebody changes the database all the time: what is read now, and not kept, is of one version by itself.
    return _in_table_once(base, session, named, vector, k, metric, filtered, rules, None)


def _in_table_once(
    base: KnowledgeBase,
    session: Session,
    named: tuple[str, str],
    vector: NDArray[np.float32],
    k: int,
    metric: Metric,
    filtered: Filter | None,
    rules: Rules,
    version: object,
) -> Found:
    with base.reader.guarded() as connection, connection.transaction(write=False):
        known = context(connection, base)
        wanted = _column(known, *named)
        if filtered is not None and folded(filtered[0]) not in wanted.table.names:
            there = ", ".join(f'"{column.name}"' for column in wanted.table.columns)
            raise ArgumentError(f'invalid argument: "filter_column" must be a column of "{wanted.table.name}": {there}')
        if wanted.dimension not in {None, len(vector)}:
            raise other_length(wanted, len(vector), str(wanted.dimension))
        parts = _parts(base, connection, wanted, len(vector), version)
        seeing = Seeing(base, connection, wanted, len(vector), version if isinstance(parts, list) else None, rules)
        visible = selection(Binding("", (), session, known), wanted, None)
        passing = visible if filtered is None else selection(Binding("", (), session, known), wanted, filtered)
        ranked = Ranked(wanted, vector, k, metric)
        for part in parts:
            ranked.add(part, seeing.of(part, visible), seeing.of(part, passing).mask)
        ranked.require_fitting()
        results = _described(connection, Binding("", (), session, known), wanted, ranked.best, rules)
    return Found(wanted.table.name, wanted.column.name, ranked.size, results, ranked.left_out)


def _parts(
    base: KnowledgeBase, connection: Asked, wanted: VectorColumn, dimension: int, version: object
) -> Iterable[LoadedColumn]:
    """The column as one where memory allows, and kept; else a part at a time, and again for each search."""
    key = (wanted.table.name, wanted.column.name, dimension)
    loaded = base.columns.get(key, version)
    if loaded is None:
        parts = parts_of(connection, wanted, dimension, version)
        if size_of_column(connection, wanted, dimension) > base.columns.most:
            return parts
        loaded = joined(list(parts), dimension, version)
        base.columns.keep(key, loaded)
    return [loaded]


def _column(known: Known, table: str, column: str) -> VectorColumn:
    """The column of a table that vectors are in.

    Raises:
        ArgumentError: if there is none of that name; the message lists those that there are.
    """
    there = vector_columns(known.schema)
    listed = [f'"{each.table.name}"."{each.column.name}"' for each in there]
    listed += [f'"{CHUNKS}"."{EMBEDDING}"']
    hint = f"columns that may hold vectors: {', '.join(listed)}"
    found = known.schema.tables.get(folded(table))
    if found is None or found.kind != "table":
        raise ArgumentError(f'invalid argument: there is no table "{table[:100]}"; {hint}')
    for each in found.columns:
        if folded(each.name) == folded(column):
            return VectorColumn(found, each, declared_dimension(each))
    raise ArgumentError(f'invalid argument: "{found.name}" has no column "{column[:100]}"; {hint}')


def _described(
    connection: Asked,
    binding: Binding,
    wanted: VectorColumn,
    best: Sequence[tuple[float, tuple[object, ...]]],
    rules: Rules,
) -> tuple[Near, ...]:
    rows = rows_named(connection, binding, wanted, [name for _, name in best], rules.seconds)
    primary = sorted((each for each in wanted.table.columns if each.key), key=lambda each: each.key)
    results: list[Near] = []
    for distance, name in best:
        metadata = rows.get(name)
        if metadata is None:
            continue  # gone since it was loaded
        own = name
        if len(primary) == 1 and primary[0].name in metadata:
            own = (metadata[primary[0].name],)
        results.append(Near(own, distance, metadata))
    return tuple(results)


def _in_chunks(
    base: KnowledgeBase, vector: NDArray[np.float32], k: int, metric: Metric, filtered: Filter | None
) -> Found:
    if filtered is not None and folded(filtered[0]) not in _CHUNK_COLUMNS:
        there = ", ".join(_CHUNK_COLUMNS)
        raise ArgumentError(f'invalid argument: "filter_column" of {CHUNKS} must be one of {there}')
    vectors = base.catch_up().result()
    for _ in range(_TRIES):
        found = _in_chunks_once(base, vectors, vector, k, metric, filtered)
        if found is not None:
            return found
        vectors = base.catch_up(at_once=True).result()
    raise NotReady("the vectors of what was newly published are still being loaded; ask again soon")


def _in_chunks_once(
    base: KnowledgeBase,
    vectors: Vectors,
    vector: NDArray[np.float32],
    k: int,
    metric: Metric,
    filtered: Filter | None,
) -> Found | None:
    """The nearest passages; None where the database has other ones by now than those whose vectors we have."""
    if vectors.state.dimension not in {None, len(vector)}:
        raise ArgumentError(
            f'invalid argument: "query_vector" has {len(vector)} numbers; the vectors of {CHUNKS} have'
            f" {vectors.state.dimension}"
        )
    if vectors.place in {"server", "nowhere"}:
        raise StatementRefused(
            "the vectors of this knowledge base are too many for the memory of this process; search_rag finds passages"
        )
    if vectors.matrix is None or not len(vectors.matrix):
        return Found(CHUNKS, EMBEDDING, 0, (), {})
    ids, _, dead = vectors.matrix.parts()
    condition, params = "", tuple[Value, ...]()
    if filtered is not None:
        own = _PATH if folded(filtered[0]) == "path" else f"c.{quoted(folded(filtered[0]))}"
        condition, params = f" and {own} = ?", (filtered[1],)
    joined = "from chunks c join sources s on s.id = c.source_id join roots r on r.id = s.root_id"

    def read(connection: Connection) -> Found | None:
        state = State(*connection.one(STATE))
        base.note(state)
        if (state.generation, state.created_at) != (vectors.state.generation, vectors.state.created_at):
            return None
        size = int(connection.one("select count(*) from chunks where vector_id is not null")[0])
        rows = base.measured(vectors)
        mask = ~dead & (rows.norms > 0)
        if filtered is not None:
            sql = f"select distinct c.vector_id {joined} where c.vector_id is not null{condition}"
            passing = np.array([row[0] for row in connection.rows(sql, params)], np.int64)
            passing.sort()
            mask &= among(ids, passing)
        places, distances = nearest(rows, vector, k, metric, None if mask.all() else mask)
        wanted = ids[places].tolist()
        shown = "c.id, c.source_id, c.ordinal, c.heading, c.first_line, c.last_line, c.content"
        sql = f"""
          select c.vector_id, {shown}, {_PATH} {joined}
          where c.vector_id in (select value from json_each(?)){condition} order by c.id
        """
        bearing: dict[int, list[Near]] = {}
        distance_of = dict(zip(wanted, distances.tolist(), strict=True))
        for vector_id, chunk_id, *others in connection.rows(sql, (json.dumps(wanted), *params)):
            metadata = dict(zip(_CHUNK_COLUMNS[1:], others, strict=True))
            bearing.setdefault(vector_id, []).append(Near((chunk_id,), distance_of[vector_id], metadata))
        results = [near for vector_id in wanted for near in bearing.get(vector_id, ())]
        return Found(CHUNKS, EMBEDDING, size, tuple(results[:k]), {})

    return base.reader.read_here(read)
