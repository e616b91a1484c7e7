"""A small change, as one batch over the tables that are read; what it touches is kept, for the way back."""

import json
from collections.abc import Iterator

import numpy as np

from kura.errors import StoreError
from kura.store.engine import Connection, Statement
from kura.store.policies import policies, replacing
from kura.store.publish.difference import ALL, ROWS, Ids, as_json, batches, insert, rows_of
from kura.store.publish.plan import Plan
from kura.store.publish.published import KEYS, Publication, announce, forget_words, former_state, require_token

_AMONG = "in (select value from json_each(?))"
_TOUCHED = "in (select id from former_touched where kind = '{}')"


def steps(local: Connection, remote: Connection, planned: Plan, fresh: Publication) -> Iterator[Statement]:
    """What brings the published tables from the push that the plan starts from to this one."""
    if planned.base is None:
        raise StoreError("nothing is published there that rows could be added to")
    changes, above = planned.changes, planned.content.above
    yield require_token(planned.base.token)
    yield from former_state(remote)
    yield "create table former_touched (kind text not null, id integer not null, primary key (kind, id))", ()
    for table in ALL:
        touched = np.union1d(changes[table].added, changes[table].removed)
        yield "insert into former_touched select ?, value from json_each(?)", (table, as_json(touched))
    # Two kinds of rows change under their id: vectors that came one by one and are in a segment now,
    # and passages whose vector has come.
    hashes = [row[1] for row in rows_of(local, "chunk_vectors", changes["chunk_vectors"].added, above)]
    packed = "embedding <> x'' and id > ? and id <= ?", (_below(local, changes["segments"].added), above)
    waiting = f"vector_id is null and text_hash {_AMONG}", (json.dumps(hashes),)
    for table, (condition, params) in (("chunk_vectors", packed), ("chunks", waiting)):
        yield f"insert or ignore into former_touched select '{table}', id from {table} where {condition}", params
    for table in ALL:
        key = KEYS.get(table, "id")
        yield f"create table former_{table} as select * from {table} where {key} {_TOUCHED.format(table)}", ()
    yield forget_words("", f"id {_AMONG}", as_json(changes["chunks"].removed))
    for table in ALL:
        yield f"delete from {table} where {KEYS.get(table, 'id')} {_AMONG}", (as_json(changes[table].removed),)
    for table in ROWS:
        for batch in batches(rows_of(local, table, changes[table].added, above)):
            yield insert(table, batch)
    yield f"update chunk_vectors set embedding = x'' where {packed[0]}", packed[1]
    vector = "(select v.id from chunk_vectors v where v.text_hash = chunks.text_hash)"
    yield f"update chunks set vector_id = {vector} where {waiting[0]}", waiting[1]
    added = as_json(changes["chunks"].added)
    yield f"insert into chunks_fts (rowid, tokens) select id, tokens from chunks where id {_AMONG}", (added,)
    yield (
        "insert into removed_vectors (vector_id, version)"
        " select value, (select version + 1 from state) from json_each(?)",
        (as_json(changes["removed_vectors"].added),),
    )
    yield from replacing(policies(local))
    yield from announce(fresh, moved=False)


def steps_back() -> Iterator[Statement]:
    """What puts everything that the last push touched back as it was."""
    yield forget_words("", f"id {_TOUCHED.format('chunks')}")
    for table in ALL:
        yield f"delete from {table} where {KEYS.get(table, 'id')} {_TOUCHED.format(table)}", ()
        yield f"insert into {table} select * from former_{table}", ()
    yield "insert into chunks_fts (rowid, tokens) select id, tokens from former_chunks", ()
    for table in (*ALL, "touched"):
        yield f"drop table former_{table}", ()


def _below(local: Connection, segments: Ids) -> int:
    """The id below the first vector of these segments; above all there are, where there are none of them."""
    first = local.one(f"select min(first_id) from segments where id {_AMONG}", (as_json(segments),))[0]
    return 2**62 if first is None else int(first) - 1
