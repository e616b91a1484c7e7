"""Row-level policies as a database keeps them: on either engine, and from one to the other."""

from collections.abc import Sequence
from typing import Protocol

from kura.errors import ArgumentError
from kura.store.engine import Connection, Row, Statement
from kura.store.own import is_own
from kura.types import Policy

TABLE = """
  create table if not exists policies (
    name text not null collate nocase,
    table_name text not null collate nocase,
    command text not null check (command in ('all', 'select', 'insert', 'update', 'delete')),
    using_expression text,
    check_expression text,
    primary key (table_name, name)
  )
"""


class Rows(Protocol):
    """What can run a statement that reads."""

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        ...


def policies(connection: Rows) -> list[Policy]:
    """All policies of a database, by table and name; none in one of a schema that had none."""
    if not connection.rows("select 1 from sqlite_schema where type = 'table' and name = 'policies'"):
        return []
    rows = connection.rows(
        "select name, table_name, command, using_expression, check_expression from policies order by table_name, name"
    )
    return [Policy(*row) for row in rows]


def tables(connection: Rows) -> list[str]:
    """Names of the user's tables, which can have policies."""
    found = connection.rows("select name from pragma_table_list where schema = 'main' and type in ('table', 'virtual')")
    return sorted(row[0] for row in found if not is_own(row[0]))


def columns(connection: Rows, table: str) -> list[str]:
    """Names of a table's columns, those that are computed too."""
    return [row[0] for row in connection.rows("select name from pragma_table_xinfo(?) where hidden <> 1", (table,))]


def add_policy(connection: Connection, policy: Policy) -> None:
    """Keep a policy, whose expressions were checked.

    Raises:
        ArgumentError: if the table has one of that name.
    """
    with connection.transaction():
        if any(each.name == policy.name for each in _on(connection, policy.table)):
            raise ArgumentError(
                f'invalid argument: the table "{policy.table}" has a policy "{policy.name}" already; remove it'
                " first, or take another name"
            )
        connection.run(*_insert(policy))


def remove_policy(connection: Connection, table: str, name: str) -> None:
    """Forget a policy.

    Raises:
        ArgumentError: if there is none of that name on the table.
    """
    with connection.transaction():
        changed = connection.run("delete from policies where table_name = ? and name = ?", (table, name))
        if not changed:
            there = ", ".join(f'"{each.name}"' for each in _on(connection, table)) or "none"
            raise ArgumentError(
                f'invalid argument: the table "{table}" has no policy "{name}"; policies on it: {there}'
            )


def replacing(kept: Sequence[Policy]) -> list[Statement]:
    """What puts these policies in the place of all that a database has."""
    return [(TABLE, ()), ("delete from policies", ()), *map(_insert, kept)]


def _insert(policy: Policy) -> Statement:
    return (
        "insert into policies (name, table_name, command, using_expression, check_expression) values (?, ?, ?, ?, ?)",
        (policy.name, policy.table, policy.command, policy.using, policy.check),
    )


def _on(connection: Connection, table: str) -> list[Policy]:
    rows = connection.rows(
        "select name, table_name, command, using_expression, check_expression from policies where table_name = ?"
        " order by name",
        (table,),
    )
    return [Policy(*row) for row in rows]
