"""A knowledge base on a server, as `kura push` leaves it there.

The tables that are read have the names and columns of a local database. What differs serves publishing:

- `chunks_fts` is over no other table's content, so that it can be renamed. Not with `contentless_delete`: what goes is
  still counted there, so scores would differ from those of the same passages indexed anew.
- `chunk_vectors.embedding` is empty for vectors that are in a segment, unless all rows were wanted.
- `state` counts versions and generations of its own: they go up with each push and with each return to the former one.
- `publication`  one row: the token of the push that is read, and how to return to the one before.
- `staging`      one row while a push is under way that is too large for one request: who stages, and over what.
- `next_…`       tables of that push, filled in many requests and unseen until one batch renames them.
- `former_…`     what the last push replaced: whole tables, or the rows that it touched.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kura.errors import StoreError, WrongSchema
from kura.store.engine import Connection, Statement
from kura.store.migrations import MIGRATIONS, RECORD, RECORDED, applied_version, now
from kura.store.policies import policies
from kura.text.tokens import FTS_TOKENIZE

Undo = Literal["rows", "tables"]

TABLES = ("roots", "sources", "chunk_vectors", "chunks", "chunks_fts", "segments", "removed_vectors")
"""What a push replaces, apart from `state`."""

KEYS = {"removed_vectors": "vector_id"}
"""The key of each of these tables where it is not `id`."""

STAGING_SECONDS = 60
"""A push that gave no sign of life for so long is taken to be dead."""

_OURS = {
    "": (*TABLES, "state", "publication"),
    "next_": TABLES,
    "former_": (*TABLES, "state", "publication", "touched"),
}
"""Tables of Kura's on a server, by what stands before their names; `staging` and `kura_migrations` are the others."""

_CLAUSE = FTS_TOKENIZE.replace("'", "''")

_BOOKKEEPING = (
    """
    create table if not exists publication (
      id integer primary key check (id = 1),
      token text not null,
      parent text,
      undo text check (undo in ('rows', 'tables')),
      all_vectors integer not null,
      last_ids text not null,
      pushed_at text not null
    )
    """,
    """
    create table if not exists staging (
      id integer primary key check (id = 1),
      owner text not null,
      form text not null,
      seen integer not null
    )
    """,
    RECORD,
    """
    create table if not exists state (
      id integer primary key check (id = 1),
      generation integer not null,
      version integer not null,
      tokenizer integer not null,
      embedder text,
      dimension integer,
      centre blob,
      tenant text,
      created_at text not null
    )
    """,
)


@dataclass(frozen=True, slots=True)
class Publication:
    """The push that readers of a server see.

    Attributes:
        token: Its name, unlike that of any other push.
        parent: The push before it, to which a rollback returns.
        undo: What the server keeps of that one: the rows that changed, or whole tables; None is nothing.
        all_vectors: Whether the server has each vector as float32, so that it can compare them itself.
        last_ids: By table, the highest id that was ever given; it is never given again.
        pushed_at: When, in UTC.
    """

    token: str
    parent: str | None
    undo: Undo | None
    all_vectors: bool
    last_ids: Mapping[str, int]
    pushed_at: str


def publication(connection: Connection) -> Publication | None:
    """What is published; None where nothing is.

    Raises:
        WrongSchema: if tables of another kind are in the way, or it was published by a newer Kura.
    """
    if not _prepared(connection):
        return None
    row = connection.row("select token, parent, undo, all_vectors, last_ids, pushed_at from publication where id = 1")
    if row is None:
        return None
    applied, known = applied_version(connection), MIGRATIONS[-1].version
    if applied > known:
        raise WrongSchema(f"published by a newer Kura (schema {applied}, this one knows up to {known}); upgrade Kura")
    token, parent, undo, all_vectors, last_ids, pushed_at = row
    return Publication(token, parent, undo, bool(all_vectors), json.loads(last_ids), pushed_at)


def _prepared(connection: Connection) -> bool:
    """Whether a push has been here, though it may not have come to its end."""
    present = {row[0] for row in connection.rows("select name from sqlite_schema where type in ('table', 'view')")}
    if {"publication", "kura_migrations"} <= present:
        return True
    ours = {prefix + table for prefix, tables in _OURS.items() for table in tables}
    in_the_way = sorted(present & {*ours, "staging", "kura_migrations"})
    if in_the_way:
        raise WrongSchema(
            f"the server's database holds a table {in_the_way[0]} that no push of Kura's made;"
            " publish into another database"
        )
    return False


def prepare(connection: Connection) -> None:
    """Make the tables that publishing itself needs; nothing that is there changes."""
    connection.atomically([(sql, ()) for sql in _BOOKKEEPING])


def schema(prefix: str, tag: str) -> list[Statement]:
    """What makes the tables of a knowledge base, empty.

    Args:
        prefix: Stands before each table's name.
        tag: Stands behind each index's name: those keep their names when tables are renamed.
    """
    statements = (
        f"create table {prefix}roots"
        " (id integer primary key, label text not null unique, path text not null unique, device text)",
        f"""
        create table {prefix}sources (
          id integer primary key, root_id integer not null, path text not null, content_hash text not null,
          size integer not null, mtime_ns integer not null, indexed_at text not null, unique (root_id, path)
        )
        """,
        f"create table {prefix}chunk_vectors"
        " (id integer primary key, text_hash text not null unique, embedding blob not null)",
        f"""
        create table {prefix}chunks (
          id integer primary key, source_id integer not null, ordinal integer not null, heading text not null,
          first_line integer not null, last_line integer not null, content text not null, tokens text not null,
          text_hash text not null, vector_id integer, unique (source_id, ordinal)
        )
        """,
        f"create index chunks_by_vector_{tag} on {prefix}chunks (vector_id)",
        f"create index chunks_pending_{tag} on {prefix}chunks (text_hash) where vector_id is null",
        f"""
        create virtual table {prefix}chunks_fts using fts5 (
          tokens, content = '', tokenize = '{_CLAUSE}'
        )
        """,
        f"""
        create table {prefix}segments (
          id integer primary key, codec text not null, first_id integer not null, last_id integer not null,
          count integer not null, ids blob not null, scales blob not null, along blob not null, codes blob not null
        )
        """,
        f"create table {prefix}removed_vectors (vector_id integer primary key, version integer not null)",
    )
    return [(sql, ()) for sql in statements]


def drop(prefix: str, connection: Connection) -> list[Statement]:
    """What drops those of the tables with this prefix that are there."""
    names = {row[0] for row in connection.rows("select name from sqlite_schema where type = 'table'")}
    return [(f"drop table {prefix}{table}", ()) for table in _OURS[prefix] if prefix + table in names]


def require(condition: str, *params: object) -> Statement:
    """A statement that fails, and the batch that it is in with it, unless the condition holds.

    What breaks the rules of a table is the one thing that raises an error inside a batch.
    """
    return f"insert into staging (id) select 2 where not ({condition})", params


def require_token(token: str | None) -> Statement:
    """As `require`: that the push of this token is the one that is read, or with None, that there is none."""
    return require("(select token from publication) is ?", token)


def forget_words(prefix: str, condition: str, *params: object) -> Statement:
    """What takes passages out of the keyword index; to come before their rows go, which tell what it holds of them."""
    index, passages = f"{prefix}chunks_fts", f"{prefix}chunks"
    return (
        f"insert into {index} ({index}, rowid, tokens) select 'delete', id, tokens from {passages} where {condition}",
        params,
    )


def former_state(connection: Connection) -> list[Statement]:
    """What makes room for what a push replaces, and keeps what the database said of itself before it."""
    return [
        *drop("former_", connection),
        ("create table former_state as select * from state", ()),
        ("create table former_publication as select * from publication", ()),
    ]


def announce(fresh: Publication, *, moved: bool) -> list[Statement]:
    """What makes a push the one that is read. `moved`: readers cannot follow by difference."""
    return [
        ("delete from publication", ()),
        (
            "insert into publication (id, token, parent, undo, all_vectors, last_ids, pushed_at)"
            " values (1, ?, ?, ?, ?, ?, ?)",
            (
                fresh.token,
                fresh.parent,
                fresh.undo,
                int(fresh.all_vectors),
                json.dumps(dict(fresh.last_ids)),
                fresh.pushed_at,
            ),
        ),
        (
            "update state set version = version + 1, generation = generation + ? where id = 1",
            (int(moved),),
        ),
    ]


def remove(connection: Connection) -> None:
    """Take everything of Kura's off the server, also what an interrupted push left; tables of others stay.

    Raises:
        StoreError: if nothing is published there.
    """
    if publication(connection) is None and not _prepared(connection):
        raise StoreError("nothing is published there")
    steps = [*drop("next_", connection), *drop("former_", connection), *drop("", connection)]
    # Tables of the user's stay, what watches them, and who may see which of their rows.
    if not policies(connection):
        steps.append(("drop table if exists policies", ()))
    connection.atomically([*steps, ("drop table staging", ()), ("drop table kura_migrations", ())])


def fresh_records() -> list[Statement]:
    """What records, for whoever looks, that the tables have this Kura's schema."""
    return [
        ("delete from kura_migrations", ()),
        *(
            (
                RECORDED,
                (migration.version, migration.name, now()),
            )
            for migration in MIGRATIONS
        ),
    ]
