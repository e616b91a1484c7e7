"""The schema, as an append-only list of steps. Portable SQL: it runs on SQLite 3.40 and on libSQL alike.

One database holds one knowledge base:

- `state`       one row. `version` goes up by one with every committed change; `generation` with every change that a
                reader cannot follow by difference (then it loads everything anew). `centre` is what segments are
                packed around.
- `roots`       folders (or single files) that were registered for indexing. `device` is the one that a folder's files
                were last found on.
- `sources`     the files below them, with what is needed to see whether one changed.
- `chunks`      passages. A chunk's row never changes but for its vector: an edited source gets new rows with new ids,
                so an id read a moment ago means the same passage or nothing.
- `chunks_fts`  the keyword index over `chunks.tokens`.
- `chunk_vectors`  one float32 vector for each distinct text; equal passages share it. Ids only grow.
- `segments`    the same vectors again, packed 1,024 to a row, for a quick start. Derived: can be made anew at any time.
- `kura_migrations`  which steps it has, and that it is Kura's at all.
- `publications`  the pushes that were made from this database or that it was pulled from, each with the state that it
                had then: it descends from them. `publisher` tells its pushes from those of another database.
- `policies`    row-level policies on the user's tables, for agents' SQL.
- `removed_vectors`  ids that are gone, with the version in which they went, until segments without them are packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kura.errors import Damaged, WrongSchema
from kura.store import sqlite
from kura.store.engine import Connection, Row
from kura.text.tokens import TOKENIZER_VERSION


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema: its number, its name, and the statements that make it."""

    version: int
    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "knowledge",
        (
            """
            create table state (
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
            """
            create table roots (
              id integer primary key autoincrement,
              label text not null unique,
              path text not null unique
            )
            """,
            """
            create table sources (
              id integer primary key autoincrement,
              root_id integer not null references roots (id),
              path text not null,
              content_hash text not null,
              size integer not null,
              mtime_ns integer not null,
              indexed_at text not null,
              unique (root_id, path)
            )
            """,
            """
            create table chunk_vectors (
              id integer primary key autoincrement,
              text_hash text not null unique,
              embedding blob not null
            )
            """,
            """
            create table chunks (
              id integer primary key autoincrement,
              source_id integer not null references sources (id),
              ordinal integer not null,
              heading text not null,
              first_line integer not null,
              last_line integer not null,
              content text not null,
              tokens text not null,
              text_hash text not null,
              vector_id integer references chunk_vectors (id),
              unique (source_id, ordinal)
            )
            """,
            "create index chunks_by_vector on chunks (vector_id)",
            "create index chunks_pending on chunks (text_hash) where vector_id is null",
            """
            create virtual table chunks_fts using fts5 (
              tokens, content = 'chunks', content_rowid = 'id',
              tokenize = 'unicode61 remove_diacritics 0 tokenchars ''_'''
            )
            """,
            """
            create table segments (
              id integer primary key autoincrement,
              codec text not null,
              first_id integer not null,
              last_id integer not null,
              count integer not null,
              ids blob not null,
              scales blob not null,
              along blob not null,
              codes blob not null
            )
            """,
            """
            create table removed_vectors (
              vector_id integer primary key,
              version integer not null
            )
            """,
        ),
    ),
    Migration(2, "devices", ("alter table roots add column device text",)),
    Migration(
        3,
        "publications",
        (
            """
            create table publications (
              token text primary key,
              url text not null,
              generation integer not null,
              version integer not null,
              at text not null
            )
            """,
            "create table publisher (id integer primary key check (id = 1), owner text not null)",
        ),
    ),
    Migration(
        4,
        "policies",
        (
            """
            create table policies (
              name text not null collate nocase,
              table_name text not null collate nocase,
              command text not null check (command in ('all', 'select', 'insert', 'update', 'delete')),
              using_expression text,
              check_expression text,
              primary key (table_name, name)
            )
            """,
        ),
    ),
)

_TABLES = frozenset(
    {"state", "roots", "sources", "chunks", "chunks_fts", "chunk_vectors", "segments", "removed_vectors"}
)


# What records which steps a database has.
RECORD = (
    "create table if not exists kura_migrations"
    " (version integer primary key, name text not null, applied_at text not null)"
)
STEPS = "select version, name from kura_migrations order by version"
RECORDED = "insert into kura_migrations (version, name, applied_at) values (?, ?, ?)"


def migrate(connection: sqlite.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring a database up to the newest schema; each step is one transaction together with its record.

    Raises:
        WrongSchema: if the database was written by a newer Kura, or holds tables but is not Kura's. It is untouched.
    """
    if connection.row("select 1 from sqlite_schema limit 1") and not _has_record(connection):
        raise WrongSchema("the file is a SQLite database, but not one of Kura's")
    _require_kind(connection, migrations)
    if applied_version(connection) < migrations[-1].version:
        for migration in migrations:
            with connection.transaction():
                _apply(connection, migration)
    require_readable(connection, migrations)
    # A database that was handed around as a single file is not in WAL mode.
    sqlite.prefer_wal(connection)


def create(connection: Connection, tenant: str | None, created_at: str) -> None:
    """Make an empty knowledge base where nothing is yet, on either engine, in one transaction.

    Args:
        connection: For writing.
        tenant: Whom it belongs to; None is nobody.
        created_at: As `now` gives it.
    """
    connection.atomically(
        [
            (RECORD, ()),
            *((statement, ()) for migration in MIGRATIONS for statement in migration.statements),
            *((RECORDED, (migration.version, migration.name, now())) for migration in MIGRATIONS),
            (
                "insert into state (id, generation, version, tokenizer, tenant, created_at) values (1, 1, 1, ?, ?, ?)",
                (TOKENIZER_VERSION, tenant, created_at),
            ),
        ]
    )


def applied_version(connection: Connection) -> int:
    """The newest step that this database has; 0 where it has none."""
    if not _has_record(connection):
        return 0
    return int(connection.one("select coalesce(max(version), 0) from kura_migrations")[0])


def require_readable(connection: Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Check, without changing anything, that this Kura understands the database.

    Raises:
        WrongSchema: if it does not; the message says which side has to be renewed.
    """
    _require_steps(connection.rows(STEPS) if _has_record(connection) else [], migrations)


def _require_steps(steps: Sequence[Row], migrations: tuple[Migration, ...]) -> None:
    if not steps:
        raise WrongSchema(
            "it is not one of Kura's databases, or was never finished; add the database again, or publish it"
        )
    _require_name(steps[0][1], migrations)
    applied, known = steps[-1][0], migrations[-1].version
    if applied > known:
        raise WrongSchema(f"written by a newer Kura (schema {applied}, this one reads up to {known}); upgrade Kura")
    if applied < known - 1:
        raise WrongSchema(f"schema {applied} is too old to be served; run `kura index` on it once with this Kura")


def require_whole(connection: Connection) -> None:
    """Check, in two round trips, that this Kura understands the database and that none of its tables was dropped.

    Raises:
        WrongSchema: if it does not; the message says which side has to be renewed.
        Damaged: if a table is missing; the message names it.
    """
    present = {row[0] for row in connection.rows("select name from sqlite_schema where type = 'table'")}
    _require_steps(connection.rows(STEPS) if "kura_migrations" in present else [], MIGRATIONS)
    missing = sorted(_TABLES - present)
    if missing:
        raise Damaged(f"the database lacks its table {missing[0]}; restore it from a copy, or index into a new one")


def now() -> str:
    """The present moment as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _apply(connection: Connection, migration: Migration) -> None:
    # Looked at under the write lock: another process may have taken this step a moment ago.
    if applied_version(connection) >= migration.version:
        return
    connection.run(RECORD)
    for statement in migration.statements:
        connection.run(statement)
    connection.run(RECORDED, (migration.version, migration.name, now()))


def _require_kind(connection: Connection, migrations: tuple[Migration, ...]) -> None:
    first = (
        connection.row("select name from kura_migrations order by version limit 1") if _has_record(connection) else None
    )
    if first is not None:
        _require_name(first[0], migrations)


def _require_name(name: str, migrations: tuple[Migration, ...]) -> None:
    if name != migrations[0].name:
        raise WrongSchema(f"the file is one of Kura's, but holds {name} and not {migrations[0].name}")


def _has_record(connection: Connection) -> bool:
    # Many frameworks keep a table called `migrations`; by this name no other's database is taken for one of ours.
    sql = "select 1 from sqlite_schema where type = 'table' and name = 'kura_migrations'"
    return connection.row(sql) is not None
