"""Tables that are not Kura's, published by name: whole, and never over what was written on the server meanwhile.

What is published is watched there by triggers, which count each change in `published_tables`. A push that would replace
a table with changes fails as a whole, in the same batch that would have replaced it.
"""

from collections.abc import Iterator, Sequence

from kura.errors import ArgumentError, Conflict, StoreError
from kura.store.engine import Connection, Row, Statement, quoted
from kura.store.own import is_own
from kura.store.publish.difference import batches, insert
from kura.store.publish.published import require
from kura.store.publish.staging import Progress

_RECORD = """
  create table if not exists published_tables (name text primary key, rows integer not null, changed integer not null)
"""


def push_tables(local: Connection, remote: Connection, names: Sequence[str], told: Progress, *, force: bool) -> None:
    """Put tables of a local database, with their indexes, in the place of those of the same names on the server.

    Args:
        local: Inside a read transaction.
        remote: Where something is published already.
        names: The tables.
        told: Called after each request with how many rows of how many have arrived.
        force: Replace what was changed on the server, or was never published from here.

    Raises:
        ArgumentError: if one is not a table of the user's.
        Conflict: if one would replace what was written on the server.
    """
    schemas = {name: _schema(local, name) for name in names}
    counts = {name: int(local.one(f"select count(*) from {quoted(name)}")[0]) for name in names}
    total, done = sum(counts.values()), 0
    remote.atomically([(_RECORD, ())])
    for name in names:
        _require_unchanged(remote, name, force=force)
        staged = f"next_table_{name}"
        columns = [row[0] for row in local.rows("select name from pragma_table_info(?) order by cid", (name,))]
        untyped = ", ".join(quoted(column) for column in columns)
        remote.atomically(
            [(f"drop table if exists {quoted(staged)}", ()), (f"create table {quoted(staged)} ({untyped})", ())]
        )
        for batch in batches(_rows(local, name)):
            remote.atomically([insert(quoted(staged), batch)])
            done += len(batch)
            told(done, total)
        steps = list(_replace(name, staged, schemas[name], counts[name], force=force))
        try:
            remote.atomically(steps)
        except StoreError as error:
            _require_unchanged(remote, name, force=force)
            raise StoreError(f'the table "{name}" cannot be published: {error}') from error


def _schema(local: Connection, name: str) -> list[str]:
    """What makes the table and its indexes."""
    if is_own(name):
        raise ArgumentError(f'invalid argument: the table "{name}" is one of Kura\'s, which travel by themselves')
    found = local.rows(
        "select sql, type from sqlite_schema where tbl_name = ? and sql is not null order by type desc", (name,)
    )
    if not any(kind == "table" for _, kind in found):
        known = [
            row[0]
            for row in local.rows("select name from sqlite_schema where type = 'table' order by name")
            if not is_own(row[0])
        ]
        there = ", ".join(f'"{table}"' for table in known) or "none"
        raise ArgumentError(f'invalid argument: there is no table "{name}"; tables of yours: {there}')
    if any(sql.lower().startswith("create virtual") for sql, kind in found if kind == "table"):
        raise ArgumentError(f'invalid argument: "{name}" is a virtual table, which cannot be published')
    return [sql for sql, kind in found if kind in {"table", "index"}]


def _rows(local: Connection, name: str) -> Iterator[Row]:
    last, step = 0, 500
    while page := local.rows(f"select * from {quoted(name)} limit ? offset ?", (step, last)):
        yield from page
        last += len(page)


def _require_unchanged(remote: Connection, name: str, *, force: bool) -> None:
    if force:
        return
    there = remote.row("select 1 from sqlite_schema where type = 'table' and name = ?", (name,))
    record = remote.row("select changed from published_tables where name = ?", (name,))
    if there is not None and record is None:
        raise Conflict(f'the server has a table "{name}" that was not published by Kura; --force replaces it')
    if record is not None and record[0]:
        raise Conflict(
            f'the table "{name}" was changed on the server since it was published, {record[0]} times;'
            " --force replaces it all the same"
        )


def _replace(name: str, staged: str, schema: Sequence[str], count: int, *, force: bool) -> Iterator[Statement]:
    if not force:
        yield require("not exists (select 1 from published_tables where name = ? and changed > 0)", name)
        yield require(
            "not exists (select 1 from sqlite_schema where type = 'table' and name = ?)"
            " or exists (select 1 from published_tables where name = ?)",
            name,
            name,
        )
    yield require(f"(select count(*) from {quoted(staged)}) = ?", count)
    yield f"drop table if exists {quoted(name)}", ()
    for sql in schema:
        yield sql, ()
    yield f"insert into {quoted(name)} select * from {quoted(staged)}", ()
    yield f"drop table {quoted(staged)}", ()
    yield "insert or replace into published_tables (name, rows, changed) values (?, ?, 0)", (name, count)
    literal = "'{}'".format(name.replace("'", "''"))
    for event in ("insert", "update", "delete"):
        yield (
            f"create trigger {quoted(f'kura_{event}_{name}')} after {event} on {quoted(name)}"
            f" begin update published_tables set changed = changed + 1 where name = {literal}; end",
            (),
        )
