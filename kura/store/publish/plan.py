"""What a push would do: found out first, so that nothing is sent that would be refused."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kura.errors import Conflict, EmbedderMismatch, WrongSchema
from kura.store.engine import Connection
from kura.store.migrations import MIGRATIONS, applied_version
from kura.store.policies import policies
from kura.store.publish.descent import descent
from kura.store.publish.difference import (
    ALL,
    MOST_ROWS,
    ROWS,
    Change,
    Content,
    Ids,
    as_json,
    content,
    difference,
    remote_ids,
    rows_of,
    weight,
)
from kura.store.publish.published import Publication, publication
from kura.store.sources import State, state
from kura.text.tokens import TOKENIZER_VERSION

DIRECT_BYTES = 2_000_000
"""A change up to this size goes as one request."""

DIRECT_ROWS = 2_000
"""A change up to this many rows, those that go among them, is applied to the tables that are read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a push would do, and from what to what.

    Attributes:
        how: `nothing` where the server is up to date, `rows` for one batch, `tables` for a staged push.
        base: The push that the server has now; None is none.
        content: What is to be there.
        changes: By table.
        size: Bytes that would travel, roughly; for `tables` without what the server copies from what it has.
        related: Whether the server's rows are ours, so that the same id means the same row.
        all_vectors: Whether every vector goes as float32.
    """

    how: Literal["nothing", "rows", "tables"]
    base: Publication | None
    content: Content
    changes: dict[str, Change]
    size: int
    related: bool
    all_vectors: bool


def plan(
    local: Connection,
    remote: Connection,
    *,
    all_vectors: bool = False,
    force: bool = False,
    upgrade: bool = False,
) -> Plan:
    """Find out what there is to do, and refuse what would harm. To be called inside a read transaction of `local`.

    Args:
        local: The database to publish.
        remote: Where to; nothing is written.
        all_vectors: Send every vector as float32, for servers that compare vectors themselves; once sent, always.
        force: Replace a push that this database does not descend from.
        upgrade: Change the embedder, the tokeniser or the schema that running servers work with.

    Raises:
        Conflict: if somebody else published there since this database last did or was pulled.
        EmbedderMismatch: if the embedder would be another one.
        WrongSchema: if the schema or the tokeniser would be, or the local database is not ready to be published.
    """
    ours = state(local)
    if ours.tokenizer != TOKENIZER_VERSION:
        raise WrongSchema("some sources have keywords of an older Kura; run `kura index` before publishing")
    base = publication(remote)
    ancestors = descent(local)
    related = base is not None and base.token in ancestors
    if base is not None and not related and not force:
        raise Conflict(
            f"the server has a push of {base.pushed_at} that this database does not descend from; run `kura pull` first"
            " and index again, or replace what is there with --force"
        )
    if base is not None and not force and state(remote).tenant != ours.tenant:
        raise Conflict(
            f"what is published belongs to {owned_by(state(remote).tenant)}, this database to {owned_by(ours.tenant)};"
            " --force gives it to the latter"
        )
    if base is not None and not upgrade:
        _require_same(ours, state(remote), applied_version(remote))
    all_vectors = all_vectors or (base is not None and base.all_vectors)
    wanted = content(local, ours.dimension, all_vectors=all_vectors)
    theirs = (
        remote_ids(remote, ALL) if base is not None and related else {table: np.empty(0, np.int64) for table in ALL}
    )
    changes = {table: difference(wanted.ids[table], theirs[table]) for table in ALL}
    changes["sources"] = _with_changed_sources(local, remote, changes, theirs["sources"])
    if base is None or not related:
        return Plan("tables", base, wanted, changes, _size(local, wanted, changes), related, all_vectors)
    same_form = (
        ancestors[base.token] == ours.generation
        and base.all_vectors == all_vectors
        and _described(ours) == _described(state(remote))
        and applied_version(remote) == MIGRATIONS[-1].version
    )
    if same_form and not any(changes.values()) and policies(local) == policies(remote):
        return Plan("nothing", base, wanted, changes, 0, related, all_vectors)
    touched = sum(len(change.added) + len(change.removed) for change in changes.values())
    size = _size(local, wanted, changes)
    how = "rows" if same_form and touched <= DIRECT_ROWS and size <= DIRECT_BYTES else "tables"
    return Plan(how, base, wanted, changes, size, related, all_vectors)


def owned_by(tenant: str | None) -> str:
    """Whom a database belongs to, in words."""
    return "nobody" if tenant is None else f'tenant "{tenant}"'


def _require_same(ours: State, theirs: State, schema_there: int) -> None:
    if theirs.embedder is not None and (ours.embedder, ours.dimension) != (theirs.embedder, theirs.dimension):
        raise EmbedderMismatch(
            f"servers there search what was embedded by {theirs.embedder} ({theirs.dimension} dimensions), this"
            f" database by {ours.embedder} ({ours.dimension}); give the servers that embedder and push with"
            " --upgrade, or index anew with theirs"
        )
    if ours.tokenizer != theirs.tokenizer:
        raise WrongSchema(
            f"servers there split words as version {theirs.tokenizer} of the tokeniser does, this Kura as version"
            f" {ours.tokenizer}; upgrade the servers, then push with --upgrade"
        )
    known = MIGRATIONS[-1].version
    if schema_there != known:
        raise WrongSchema(
            f"published with schema {schema_there}, this Kura writes schema {known}; upgrade the servers, then push"
            " with --upgrade"
        )


def _with_changed_sources(local: Connection, remote: Connection, changes: dict[str, Change], theirs: Ids) -> Change:
    """Sources that are new or gone, and those whose passages changed: they were indexed again under their id."""
    change, passages = changes["sources"], changes["chunks"]
    again = np.union1d(_sources_of(local, passages.added), _sources_of(remote, passages.removed))
    kept = np.setdiff1d(theirs, change.removed, assume_unique=True)
    return Change(np.union1d(change.added, np.intersect1d(again, kept)), change.removed)


def _sources_of(connection: Connection, passages: Ids) -> Ids:
    found: set[int] = set()
    for start in range(0, len(passages), MOST_ROWS):
        sql = "select distinct source_id from chunks where id in (select value from json_each(?))"
        found.update(row[0] for row in connection.rows(sql, (as_json(passages[start : start + MOST_ROWS]),)))
    return np.array(sorted(found), np.int64)


def _described(of: State) -> tuple[object, ...]:
    return of.tokenizer, of.embedder, of.dimension, of.tenant, of.created_at


def _size(local: Connection, wanted: Content, changes: dict[str, Change]) -> int:
    return sum(
        weight(row) for table in ROWS for row in rows_of(local, table, changes[table].added, wanted.above)
    ) + 20 * sum(len(change.removed) for change in changes.values())
