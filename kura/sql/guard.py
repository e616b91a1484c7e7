"""From what an agent wrote to what is sent: one statement, bound to the rows that its session may see.

Every table with policies is bound to a common table expression of the same name, which holds those rows alone. It is
materialised: SQLite would otherwise merge it with the statement and evaluate the agent's expressions on other rows
too, whose errors then tell of them. Where no expression can fail (`grammar.total`), there is nothing that could tell,
and SQLite is left to use its indexes. What is sent is written anew from the tree that was checked, never the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from kura.errors import StatementRefused
from kura.sql.dialect import Question, Setting, written
from kura.sql.grammar import require_allowed, total
from kura.sql.policies import condition, with_settings
from kura.sql.schema import Schema, Table
from kura.sql.statement import Statement, content_of, name_columns, read_text, view_body
from kura.store.engine import folded
from kura.types import Policy, Session

Value = None | bool | int | float | str | bytes
Does = Literal["read", "insert", "update", "delete"]

KNOWLEDGE: Mapping[str, str] = {
    "sources": """
      select s.id as id, case when (select count(*) from main.roots) > 1 then r.label || '/' || s.path else s.path end
      as path, s.size as size, s.indexed_at as indexed_at
      from main.sources as s join main.roots as r on r.id = s.root_id
    """,
    "chunks": """
      select id, source_id, ordinal, heading, first_line, last_line, content from main.chunks
    """,
}
"""What is shown of Kura's own tables, by name."""

KNOWLEDGE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "sources": ("id", "path", "size", "indexed_at"),
    "chunks": ("id", "source_id", "ordinal", "heading", "first_line", "last_line", "content"),
}

_BEHIND_KNOWLEDGE = {"sources": ("sources", "roots"), "chunks": ("chunks",)}
_ROWID = frozenset({"rowid", "oid", "_rowid_"})
_MODULES: Mapping[str, tuple[str, ...]] = {
    "fts5": ("data", "idx", "content", "docsize", "config"),
    **dict.fromkeys(("rtree", "rtree_i32", "geopoly"), ("node", "parent", "rowid")),
}
"""Virtual tables that can be used, with what stands behind their names in those of the tables that they keep."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a database is at the moment of a statement: its tables, and the policies on them by folded name."""

    schema: Schema
    policies: Mapping[str, Sequence[Policy]]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A statement that may be sent.

    Attributes:
        sql: The statement, written anew.
        params: Its values, in the order of `?1`, `?2`, ….
        does: What it does.
        explain: Whether the plan is asked for rather than the rows.
        tables: Folded names of the tables and common table expressions that it reads, as the engine knows them.
        filtered: Names of those with policies.
        target: Folded name of the table that is written.
        related: Folded names of those that foreign keys tie to it.
        checks: Whether the last column of each returned row says if that row may be written.
        shown: Whether rows were asked for, rather than returned for the check alone.
    """

    sql: str
    params: tuple[Value, ...]
    does: Does
    explain: bool
    tables: frozenset[str]
    filtered: frozenset[str]
    target: str | None = None
    related: frozenset[str] = frozenset()
    checks: bool = False
    shown: bool = True


def known(schema: Schema, policies: Iterable[Policy]) -> Known:
    """Put together what a statement is guarded by."""
    by_table: dict[str, list[Policy]] = {}
    for policy in policies:
        by_table.setdefault(folded(policy.table), []).append(policy)
    return Known(schema, by_table)


def guard(
    statement: Statement,
    params: Sequence[Value],
    session: Session,
    database: Known,
    *,
    writable: bool = False,
    most: int | None = None,
) -> Guarded:
    """Check one statement and bind it to what the session may see.

    Args:
        statement: As it was read; it is used up.
        params: A value for each `?`.
        session: On whose behalf.
        database: Its tables and policies.
        writable: Whether tables may be changed.
        most: At most so many rows are to be made; None is no limit beside the statement's own.

    Raises:
        StatementRefused: if it is not allowed, or does not fit the tables; the message says why.
    """
    tree = statement.tree
    binding = Binding(statement.text, params, session, database)
    if isinstance(tree, exp.Select | exp.SetOperation | exp.Values):
        require_allowed(tree)
        return binding.query(tree, explain=statement.explain, most=most)
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete):
        if not writable:
            raise StatementRefused("only reading is allowed here: the operator has not switched on writing")
        if statement.explain:
            raise StatementRefused("EXPLAIN QUERY PLAN is for statements that read")
        from kura.sql.changes import change  # noqa: PLC0415 - it stands on this module

        return change(tree, binding)
    also = ", inserts, updates or deletes" if writable else ""
    raise StatementRefused(f"one statement that reads{also} is allowed here; {_kind(tree)} is none")


class Binding:
    """Binds the names in one statement to what the session may see of the tables."""

    def __init__(self, text: str, params: Sequence[Value], session: Session, database: Known) -> None:
        """Begin; nothing is bound yet.

        Args:
            text: The statement.
            params: A value for each `?` in it.
            session: On whose behalf.
            database: Its tables and policies.
        """
        self.known, self.schema, self.policies, self.session = database, database.schema, database.policies, session
        self._text = text
        self._params: list[Value] = list(params)
        self._settings: dict[str, int] = {}
        self._views: list[str] = []
        self.bound: dict[str, tuple[str, exp.Expr | str]] = {}
        self.tables: set[str] = set()
        self.filtered: set[str] = set()

    def query(self, tree: exp.Expr, *, explain: bool, most: int | None = None) -> Guarded:
        """A statement that reads."""
        name_columns(tree, self._text)
        tree = self.bind(tree)
        if most is not None:
            _limit(tree, most)
        # A view's own expressions are evaluated too.
        plain = total(tree) and all(kind != "view" for kind, _ in self.bound.values())
        sql = self.with_bound(tree, materialized=not plain)
        prefix = "EXPLAIN QUERY PLAN " if explain else ""
        return Guarded(
            prefix + sql, tuple(self._params), "read", explain, frozenset(self.tables), frozenset(self.filtered)
        )

    def bind(self, tree: exp.Expr, *, questions: bool = True) -> exp.Expr:
        """Bind all names in a tree that was found to be allowed.

        Args:
            tree: The statement, or a view's body.
            questions: Whether it may hold `?`.
        """
        self._require_own_names(tree)
        tree = self.numbered(with_settings(tree), questions=questions)
        expressions = {folded(cte.alias) for cte in tree.find_all(exp.CTE)}
        self.tables |= expressions
        for table in list(tree.find_all(exp.Table)):
            if isinstance(table.this, exp.Anonymous):
                self.tables.add(folded(table.this.name))
            elif folded(table.name) not in expressions:
                self._bind_table(table)
        self._require_possible(tree, expressions)
        return tree

    def numbered(self, tree: exp.Expr, *, questions: bool = True) -> exp.Expr:
        """Give each `?` its number, in the order of the text, and each value of the session one behind those."""
        found = sorted(tree.find_all(Question), key=lambda node: int(node.name))
        if questions and len(found) != len(self._params):
            raise StatementRefused(
                f"the statement has {len(found)} placeholders `?`, but {len(self._params)} params were given"
            )
        if found and not questions:
            raise StatementRefused("a view cannot hold placeholders")
        for number, node in enumerate(found, 1):
            node.set("this", str(number))
        return self.settled(tree)

    def settled(self, tree: exp.Expr) -> exp.Expr:
        """A tree in which values of the session are bound."""
        return tree.transform(self._settled)

    def policed(self, table: Table) -> bool:
        """Whether a table has policies."""
        return folded(table.name) in self.policies

    def allowed(self, table: Table, command: Literal["select", "insert", "update", "delete"], *, new: bool) -> exp.Expr:
        """The rows of a table with policies that the session may see or write, as an expression over its columns."""
        if self.session.tenant_id is None:
            return exp.false()
        policies = self.policies[folded(table.name)]
        names = [column.name for column in table.columns]
        return self.settled(condition(policies, command, new=new, columns=names))

    def visible(self, table: Table) -> exp.Select:
        """The rows of a table with policies that the session may see, all columns of them, as a select."""
        rows = self.all_rows(table)
        rows.set("where", exp.Where(this=self.allowed(table, "select", new=False)))
        return rows

    def all_rows(self, table: Table) -> exp.Select:
        """All rows of a table, as a select."""
        columns = [exp.column(exp.to_identifier(column.name, quoted=True)) for column in table.columns]
        rows = exp.Table(this=exp.to_identifier(table.name, quoted=True), db=exp.to_identifier("main"))
        return exp.Select(expressions=columns, from_=exp.From(this=rows), where=exp.Where(this=exp.true()))

    def value(self, value: Value) -> Question:
        """A value of ours as the statement takes it."""
        self._params.append(value)
        return Question(this=str(len(self._params)))

    def with_bound(self, tree: exp.Expr, *, materialized: bool = True) -> str:
        """A tree as SQL, behind what its names are bound to."""
        own = tree.args.get("with_")
        if isinstance(own, exp.With):
            own.pop()
        parts: list[str] = []
        for name, (kind, body) in self.bound.items():
            # Other rows than the session's are in tables with policies alone.
            held = "AS MATERIALIZED" if materialized and kind == "policies" else "AS"
            text = body if isinstance(body, str) else written(body)
            parts.append(f"{written(exp.to_identifier(name, quoted=True))} {held} ({text})")
        recursive = ""
        if isinstance(own, exp.With):
            parts += [written(cte) for cte in own.expressions]
            recursive = "RECURSIVE " if own.args.get("recursive") else ""
        body = written(tree)
        return f"WITH {recursive}{', '.join(parts)} {body}" if parts else body

    def values(self) -> tuple[Value, ...]:
        """The values of all numbers that were given."""
        return tuple(self._params)

    def find(self, name: str) -> Table:
        """The table of that name.

        Raises:
            StatementRefused: if there is none that can be used here.
        """
        table = self.schema.tables.get(folded(name))
        if table is None:
            there = sorted([*KNOWLEDGE, *(table.name for table in self.schema.tables.values())])
            raise StatementRefused(f'no such table: "{name[:200]}"; there are {", ".join(there)}')
        return table

    def _settled(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, Setting):
            return node
        name = node.name
        if name not in self._settings:
            self._params.append(self.session.tenant_id if name == "tenant" else self.session.user_id)
            self._settings[name] = len(self._params)
        return Question(this=str(self._settings[name]))

    def _require_own_names(self, tree: exp.Expr) -> None:
        for cte in tree.find_all(exp.CTE):
            name = folded(cte.alias)
            if name in self.schema.taken or name in KNOWLEDGE or name.startswith(("sqlite_", "pragma_", "json_")):
                raise StatementRefused(f'a common table expression cannot be called "{cte.alias}": a table is')

    def _bind_table(self, node: exp.Table) -> None:
        name = folded(node.name)
        if name in KNOWLEDGE:
            node.set("this", exp.to_identifier(name, quoted=True))
            if name not in self.bound:
                self.bound[name] = ("knowledge", KNOWLEDGE[name])
                self.tables |= {name, *_BEHIND_KNOWLEDGE[name]}
            return
        table = self.find(node.name)
        node.set("this", exp.to_identifier(table.name, quoted=True))
        self.tables.add(folded(table.name))
        if table.kind == "view":
            self._bind_view(table)
            return
        self.require_module(table)
        if self.policed(table) and table.name not in self.bound:
            self.bound[table.name] = ("policies", self.visible(table))
            self.filtered.add(table.name)

    def require_module(self, table: Table) -> None:
        """Refuse virtual tables that show what others hold.

        Raises:
            StatementRefused: if it is one.
        """
        if table.kind != "virtual":
            return
        if table.module not in _MODULES:
            raise StatementRefused(f'the virtual table "{table.name}" ({table.module}) cannot be used here')
        content = content_of(table)
        if content and folded(content) in self.policies and not self.policed(table):
            raise StatementRefused(
                f'the index "{table.name}" is over the table "{content}", which has policies; it needs some of its own'
            )
        # The module reads these through the same connection.
        self.tables |= {f"{folded(table.name)}_{part}" for part in _MODULES[table.module]}
        if content:
            self.tables.add(folded(content))

    def _bind_view(self, view: Table) -> None:
        if view.name in self.bound:
            return
        if folded(view.name) in self._views:
            raise StatementRefused(f'the view "{view.name}" is defined by itself')
        self._views.append(folded(view.name))
        try:
            columns, body = view_body(view.sql)
            tree = read_text(body)
            require_allowed(tree)
            name_columns(tree, body)
            bound = self.bind(tree, questions=False)
        except StatementRefused as error:
            raise StatementRefused(f'the view "{view.name}" cannot be used here: {error}') from error
        finally:
            self._views.pop()
        if columns:
            listed = ", ".join(written(exp.to_identifier(column, quoted=True)) for column in columns)
            inner = written(exp.to_identifier(view.name + " rows", quoted=True))
            text = f"WITH {inner} ({listed}) AS ({written(bound)}) SELECT * FROM {inner}"
            self.bound[view.name] = ("view", text)
            self.tables.add(folded(view.name + " rows"))
        else:
            self.bound[view.name] = ("view", bound)

    def _require_possible(self, tree: exp.Expr, expressions: set[str]) -> None:
        """Say clearly what a filtered table cannot do, where the engine would only say that there is no such column."""
        behind = set(self.bound)
        if not behind:
            return
        aliases: dict[str, str | None] = {}
        for table in tree.find_all(exp.Table):
            if not isinstance(table.this, exp.Anonymous):
                name = table.name if table.name in behind and folded(table.name) not in expressions else None
                aliases[folded(table.alias or table.name)] = name
        for column in tree.find_all(exp.Column):
            if folded(column.name) not in _ROWID:
                continue
            through = aliases.get(folded(column.table)) if column.table else next(filter(None, aliases.values()), None)
            table = self.schema.tables.get(folded(through)) if through else None
            if through and not (table is not None and folded(column.name) in table.names):
                raise StatementRefused(
                    f'"{column.name}" of "{through}" is not available: its rows are shown through a filter; use a'
                    " column"
                )
        for match in tree.find_all(exp.Match):
            operand = match.this
            named = {folded(operand.name), folded(operand.table)} if isinstance(operand, exp.Column) else set[str]()
            for alias, through in aliases.items():
                if through and (alias in named or (self.schema.tables.get(folded(through)) or _NONE).module):
                    raise StatementRefused(
                        f'MATCH does not work on "{through}": its rows are shown through a filter; use LIKE'
                    )


_NONE = Table("", "table", "", (), rowid=False, sql="")


def _limit(tree: exp.Expr, most: int) -> None:
    """Let a query make no more rows than `most`; a negative limit is none."""
    if isinstance(tree, exp.Values):
        return
    own = tree.args.get("limit")
    limit: exp.Expr = exp.Literal.number(most)
    if isinstance(own, exp.Limit):
        given = exp.Paren(this=own.expression)
        fewer = exp.Anonymous(this="min", expressions=[given, limit])
        none = exp.LT(this=given.copy(), expression=exp.Literal.number(0))
        limit = exp.Case(ifs=[exp.If(this=none, true=limit.copy())], default=fewer)
    tree.set("limit", exp.Limit(expression=limit))


def _kind(tree: exp.Expr) -> str:
    return tree.name.upper()[:50] if isinstance(tree, exp.Command) else type(tree).__name__.upper()
