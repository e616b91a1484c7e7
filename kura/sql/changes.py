"""Statements that change a table: bound like those that read, and such that no row but the session's is touched.

Rows to change are chosen from the session's rows, as a select would see them, and named by their keys. What a row
becomes is checked by an expression that is returned with it; whoever runs the statement takes everything back where one
is not true.
"""

from typing import Literal, cast

from sqlglot import exp

from kura.errors import StatementRefused
from kura.sql.dialect import written
from kura.sql.grammar import nodes, require_allowed
from kura.sql.guard import KNOWLEDGE, Binding, Guarded
from kura.sql.schema import Table
from kura.store.engine import folded

CHECK = "kura check"
"""The name of the returned column that says whether a row may be written."""

_ROWIDS = ("rowid", "oid", "_rowid_")


def change(tree: exp.Insert | exp.Update | exp.Delete, binding: Binding) -> Guarded:
    """Bind an insert, update or delete.

    Raises:
        StatementRefused: if it is not allowed.
    """
    require_allowed(tree, change=True)
    node, alias = _target(tree)
    if folded(node.name) in KNOWLEDGE:
        raise StatementRefused(f'"{node.name}" holds knowledge, which is written by indexing alone')
    table = binding.find(node.name)
    if table.kind != "table":
        raise StatementRefused(f'"{table.name}" is a {table.kind}; only tables can be changed here')
    _require_no_query(tree)
    # Names in it are bound without the target, which stands for the table itself.
    node.replace(exp.Var(this=_target_sql(table, alias)))
    tree = cast("exp.Insert | exp.Update | exp.Delete", binding.bind(tree))
    policed = binding.policed(table)
    if policed:
        binding.filtered.add(table.name)
        _limit(tree, table, alias, binding)
    does: Literal["insert", "update", "delete"] = _DOES[type(tree)]
    shown = tree.args.get("returning") is not None
    checks = policed and does != "delete"
    if checks:
        _return_check(tree, binding.allowed(table, "insert" if does == "insert" else "update", new=True))
    sql = binding.with_bound(tree)
    # Foreign keys are checked, and acted upon, by the engine: what the owner has laid down, on the owner's behalf.
    related = binding.schema.related(folded(table.name))
    tables = frozenset(binding.tables | {folded(table.name)})
    return Guarded(
        sql,
        binding.values(),
        does,
        explain=False,
        tables=tables,
        filtered=frozenset(binding.filtered),
        target=folded(table.name),
        related=related,
        checks=checks,
        shown=shown,
    )


_DOES: dict[type[exp.Expr], Literal["insert", "update", "delete"]] = {
    exp.Insert: "insert",
    exp.Update: "update",
    exp.Delete: "delete",
}


def _target(tree: exp.Expr) -> tuple[exp.Table, str | None]:
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise StatementRefused("what is changed must be named by one name")
    return node, node.alias or None


def _target_sql(table: Table, alias: str | None) -> str:
    name = written(exp.to_identifier(table.name, quoted=True))
    return f"main.{name}" + (f" AS {written(exp.to_identifier(alias, quoted=True))}" if alias else "")


def _require_no_query(tree: exp.Expr) -> None:
    """Refuse queries where common table expressions do not reach: names there would mean the tables themselves."""
    for part in ("returning", "conflict"):
        clause = tree.args.get(part)
        if clause is not None and any(isinstance(node, exp.Query | exp.Values) for node in nodes(clause)):
            raise StatementRefused(
                f"a query in {'RETURNING' if part == 'returning' else 'ON CONFLICT'} is not supported"
            )


def _limit(tree: exp.Expr, table: Table, alias: str | None, binding: Binding) -> None:
    """Keep a statement to the rows that the session may change."""
    if isinstance(tree, exp.Insert):
        if str(tree.args.get("alternative") or "").upper() == "REPLACE":
            raise StatementRefused(
                f'INSERT OR REPLACE is not allowed on "{table.name}", which has policies: it could replace rows of'
                " others; use ON CONFLICT … DO UPDATE"
            )
        conflict = tree.args.get("conflict")
        if conflict is not None and conflict.expressions:
            allowed = _changeable(table, "update", binding)
            where = conflict.args.get("where")
            if where is not None:
                # Nothing of the agent's is evaluated for a row of others.
                allowed = exp.Case(ifs=[exp.If(this=allowed, true=where.this)])
            conflict.set("where", exp.Where(this=allowed))
        return
    command: Literal["update", "delete"] = "update" if isinstance(tree, exp.Update) else "delete"
    keys = _keys(table)
    mine = binding.visible(table)
    mine.set("where", exp.Where(this=_changeable(table, command, binding)))
    named = [exp.Alias(this=exp.column(key), alias=exp.to_identifier(f"key {key}", quoted=True)) for key in keys]
    mine.set("expressions", [*named, *mine.expressions])
    rows = f"{table.name} of the session"
    binding.bound[rows] = ("policies", mine)
    binding.tables.add(folded(rows))
    columns = [exp.column(exp.to_identifier(f"key {key}", quoted=True)) for key in keys]
    source = exp.Table(
        this=exp.to_identifier(rows, quoted=True),
        alias=exp.TableAlias(this=exp.to_identifier(alias or table.name, quoted=True)),
    )
    chosen = exp.Select(expressions=columns, from_=exp.From(this=source))
    where = tree.args.get("where")
    if where is not None:
        chosen.set("where", where.copy())
    own: exp.Expr = exp.Tuple(expressions=[exp.column(key) for key in keys]) if len(keys) > 1 else exp.column(keys[0])
    tree.set("where", exp.Where(this=exp.In(this=own, query=exp.Subquery(this=chosen))))


def _changeable(table: Table, command: Literal["update", "delete"], binding: Binding) -> exp.Expr:
    """The rows that may be seen and changed."""
    seen = binding.allowed(table, "select", new=False)
    changed = binding.allowed(table, command, new=False)
    return exp.And(this=exp.Paren(this=seen), expression=exp.Paren(this=changed))


def _keys(table: Table) -> list[exp.Identifier]:
    """What names a row: its number, or its primary key where it has none."""
    if table.rowid:
        free = next((name for name in _ROWIDS if name not in table.names), None)
        if free is not None:
            return [exp.to_identifier(free)]
    keys = sorted((column for column in table.columns if column.key), key=lambda column: column.key)
    if not keys:
        raise StatementRefused(f'the rows of "{table.name}" have no key to name them by')
    return [exp.to_identifier(column.name, quoted=True) for column in keys]


def _return_check(tree: exp.Expr, allowed: exp.Expr) -> None:
    returning = tree.args.get("returning") or exp.Returning(expressions=[])
    check = exp.Alias(this=exp.Paren(this=allowed), alias=exp.to_identifier(CHECK, quoted=True))
    tree.set("returning", exp.Returning(expressions=[*returning.expressions, check]))
