"""A large change: staged beside the tables that are read, in as many requests as it needs, then renamed into place.

What is staged stays if the push is killed; the next one goes on from there.
"""

import secrets
from collections.abc import Callable, Sequence

import numpy as np

from kura.errors import Busy, Conflict, StoreError
from kura.store.engine import Connection, Statement
from kura.store.migrations import MIGRATIONS
from kura.store.policies import policies, replacing
from kura.store.publish.difference import MOST_ROWS, ROWS, Ids, as_json, batches, insert, remote_ids, rows_of
from kura.store.publish.plan import Plan
from kura.store.publish.published import (
    STAGING_SECONDS,
    TABLES,
    Publication,
    announce,
    drop,
    forget_words,
    former_state,
    fresh_records,
    require,
    require_token,
    schema,
)
from kura.store.sources import state

_APART = "."
"""Between the owner of a push and the name of its run, which has hex digits, as it stands in `staging`."""

Progress = Callable[[int, int], None]
"""Called with how many rows of how many have arrived."""


def stage(local: Connection, remote: Connection, planned: Plan, owner: str, told: Progress) -> str:
    """Fill the `next_…` tables, keeping what an earlier run of ours has put there.

    Returns:
        Whose they are: this run's, so that what an earlier one sent and the server gets late does no harm.
    """
    wanted = planned.content
    whose = f"{owner}{_APART}{secrets.token_hex(8)}"
    _claim(remote, whose, _form(local, planned))
    total = sum(len(wanted.ids[table]) for table in ROWS)
    there = remote_ids(remote, ROWS, "next_")
    done = 0
    for table in ROWS:
        ours = wanted.ids[table]
        stale = np.setdiff1d(there[table], ours, assume_unique=True)
        if table in {"roots", "sources"}:
            stale = there[table]  # their rows do change under their id, and are small
        for start in range(0, len(stale), MOST_ROWS):
            _staged(remote, whose, _forget(table, stale[start : start + MOST_ROWS]))
        here = np.setdiff1d(there[table], stale, assume_unique=True)
        missing = np.setdiff1d(ours, here, assume_unique=True)
        if planned.related and table in {"chunk_vectors", "segments", "chunks"}:
            kept = np.setdiff1d(missing, planned.changes[table].added, assume_unique=True)
            for start in range(0, len(kept), MOST_ROWS):
                some = kept[start : start + MOST_ROWS]
                _staged(remote, whose, _copy(table, some, wanted.above))
                told(done + len(here) + start + len(some), total)
            # A row that the server has, but without numbers, was not copied where numbers are wanted.
            here = remote_ids(remote, (table,), "next_")[table]
            missing = np.setdiff1d(ours, here, assume_unique=True)
        done += len(ours) - len(missing)
        for batch in batches(rows_of(local, table, missing, wanted.above)):
            steps = [insert(f"next_{table}", batch)]
            if table == "chunks":
                steps.append(_index_words([row[0] for row in batch]))
            _staged(remote, whose, steps)
            done += len(batch)
            told(done, total)
    return whose


def _form(local: Connection, planned: Plan) -> str:
    """What staged rows have in common; those of another form cannot be gone on with."""
    ours = state(local)
    return f"{MIGRATIONS[-1].version}/{ours.tokenizer}/{ours.generation}/{planned.all_vectors}"


def _claim(remote: Connection, whose: str, form: str) -> None:
    found = remote.row("select owner, form, seen, unixepoch() - seen from staging where id = 1")
    ours = found is not None and _owner(found[0]) == _owner(whose)
    if found is not None and not ours and found[3] < STAGING_SECONDS:
        raise Busy(
            f"another push is being staged there, last seen {found[3]} seconds ago; wait until it is done, or"
            f" {STAGING_SECONDS} seconds if it is dead"
        )
    steps: list[Statement]
    if found is None:
        steps = [("insert into staging (id, owner, form, seen) values (1, ?, ?, unixepoch())", (whose, form))]
    else:
        steps = [
            require("exists (select 1 from staging where owner = ? and seen = ?)", found[0], found[2]),
            ("update staging set owner = ?, form = ?, seen = unixepoch()", (whose, form)),
        ]
    if found is None or not ours or found[1] != form:
        steps += [*drop("next_", remote), *schema("next_", secrets.token_hex(6))]
    try:
        remote.atomically(steps)
    except StoreError as error:
        now_there = remote.row("select owner, seen from staging where id = 1")
        if now_there is not None and now_there[0] == whose:
            return  # it was done, and the answer was lost
        if now_there != (None if found is None else (found[0], found[2])):
            raise Busy("another push is being staged there at the same moment; wait until it is done") from error
        raise


def _owner(whose: str) -> str:
    return whose.partition(_APART)[0]


def _staged(remote: Connection, whose: str, steps: Sequence[Statement]) -> None:
    """Change the staged tables, as long as they are ours."""
    own = [
        _require_ours(whose),
        ("update staging set seen = unixepoch()", ()),
    ]
    try:
        remote.atomically([*own, *steps])
    except StoreError as error:
        require_not_taken_over(remote, whose, error)
        raise


def require_not_taken_over(remote: Connection, whose: str, cause: StoreError) -> None:
    """Tell, after a request failed, whether that was because the staged tables are another push's by now.

    Raises:
        Conflict: if so.
    """
    found = remote.row("select owner from staging where id = 1")
    if found is None or found[0] != whose:
        raise Conflict("another push took over while this one had paused; run it again") from cause


def _require_ours(whose: str) -> Statement:
    return require("exists (select 1 from staging where owner = ?)", whose)


def _forget(table: str, ids: Ids) -> list[Statement]:
    among = "id in (select value from json_each(?))"
    words = [forget_words("next_", among, as_json(ids))] if table == "chunks" else []
    return [*words, (f"delete from next_{table} where {among}", (as_json(ids),))]


def _copy(table: str, ids: Ids, above: int) -> list[Statement]:
    """Take rows from the tables that are read, which the server does by itself."""
    among = "id in (select value from json_each(?))"
    if table == "chunk_vectors":
        return [
            (
                "insert into next_chunk_vectors (id, text_hash, embedding)"
                " select id, text_hash, case when id > ? then embedding else x'' end from chunk_vectors"
                f" where {among} and (id <= ? or embedding <> x'')",
                (above, as_json(ids), above),
            )
        ]
    if table == "segments":
        return [(f"insert into next_segments select * from segments where {among}", (as_json(ids),))]
    return [
        (
            f"""
            insert into next_chunks
            select id, source_id, ordinal, heading, first_line, last_line, content, tokens, text_hash,
                   (select v.id from next_chunk_vectors v where v.text_hash = chunks.text_hash)
            from chunks where {among}
            """,
            (as_json(ids),),
        ),
        _index_words(ids.tolist()),
    ]


def _index_words(ids: Sequence[int]) -> Statement:
    return (
        "insert into next_chunks_fts (rowid, tokens) select id, tokens from next_chunks"
        " where id in (select value from json_each(?))",
        (as_json(ids),),
    )


def renames(local: Connection, remote: Connection, planned: Plan, fresh: Publication, whose: str) -> list[Statement]:
    """What puts the staged tables in the place of those that are read."""
    ours = state(local)
    wanted = planned.content.ids
    steps = [_require_ours(whose), require_token(planned.base.token if planned.base else None)]
    steps += [require(f"(select count(*) from next_{table}) = ?", len(wanted[table])) for table in ROWS]
    if planned.base is not None:
        steps += former_state(remote)
        steps += [(f"alter table {table} rename to former_{table}", ()) for table in TABLES]
    steps += [
        # Staged while it waited for its vector, which has come since.
        (
            "update next_chunks set vector_id ="
            " (select v.id from next_chunk_vectors v where v.text_hash = next_chunks.text_hash)"
            " where vector_id is null",
            (),
        ),
        *((f"alter table next_{table} rename to {table}", ()) for table in TABLES),
        (
            "insert into removed_vectors (vector_id, version)"
            " select value, coalesce((select version from state), 0) + 1 from json_each(?)",
            (as_json(wanted["removed_vectors"]),),
        ),
        (
            """
            insert into state (id, generation, version, tokenizer, embedder, dimension, centre, tenant, created_at)
            values (1, 0, 0, ?, ?, ?, ?, ?, ?)
            on conflict (id) do update set tokenizer = excluded.tokenizer, embedder = excluded.embedder,
              dimension = excluded.dimension, centre = excluded.centre, tenant = excluded.tenant,
              created_at = excluded.created_at
            """,
            (ours.tokenizer, ours.embedder, ours.dimension, _centre(local), ours.tenant, ours.created_at),
        ),
        *replacing(policies(local)),
        *fresh_records(),
        *announce(fresh, moved=True),
        ("delete from staging", ()),
    ]
    return steps


def _centre(local: Connection) -> bytes | None:
    (centre,) = local.one("select centre from state where id = 1")
    return centre


def steps_back() -> list[Statement]:
    """What puts the tables that the last push replaced back into their place."""
    return [
        *((f"drop table {table}", ()) for table in TABLES),
        *((f"alter table former_{table} rename to {table}", ()) for table in TABLES),
    ]
