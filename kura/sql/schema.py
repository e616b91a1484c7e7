"""What tables a database has, as both engines tell it: what the guard binds names to, and what is shown of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kura.store.engine import Asked, folded
from kura.store.own import is_own

Kind = Literal["table", "view", "virtual"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: As it was declared.
        type: The words of its type; empty where it has none.
        key: Its place in the primary key, counted from 1; 0 outside of it.
        not_null: Whether it was declared so.
        default: The SQL of its default value, or None.
        generated: Whether it is computed, and where it is kept.
    """

    name: str
    type: str
    key: int
    not_null: bool
    default: str | None
    generated: Literal["virtual", "stored"] | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view.

    Attributes:
        name: As it was declared.
        kind: What it is.
        module: What makes a virtual table, in lower case, such as `fts5`; empty for others.
        columns: In their order; a view's are not known here.
        rowid: Whether its rows have a number that no column need name.
        sql: What made it.
    """

    name: str
    kind: Kind
    module: str
    columns: tuple[Column, ...]
    rowid: bool
    sql: str

    @property
    def names(self) -> frozenset[str]:
        """The names of its columns, folded."""
        return frozenset(folded(column.name) for column in self.columns)


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables and views that are the user's.

    Attributes:
        tables: By folded name.
        taken: The folded names of all there is, Kura's own tables and indexes too.
        references: Which table refers to which, by a foreign key; folded names.
    """

    tables: Mapping[str, Table]
    taken: frozenset[str]
    references: frozenset[tuple[str, str]]

    def related(self, name: str) -> frozenset[str]:
        """The folded names of all tables that a change of one may be checked against, or may go on to."""
        found, fresh = set[str](), {name}
        while fresh:
            found |= fresh
            fresh = {child for child, parent in self.references if parent in fresh} - found
        return frozenset(found | {parent for child, parent in self.references if child in found})


_OBJECTS = """
  select s.name, l.type, l.wr, s.sql
  from sqlite_schema s join pragma_table_list l on l.name = s.name and l.schema = 'main'
  where s.type in ('table', 'view') order by s.name
"""
_COLUMNS = """
  select s.name, x.name, x.type, x.pk, x."notnull", x.dflt_value, x.hidden
  from sqlite_schema s, pragma_table_xinfo(s.name) x where s.type = 'table' order by s.name, x.cid
"""
_NAMES = "select name from sqlite_schema"
_REFERENCES = """
  select distinct s.name, f."table" from sqlite_schema s, pragma_foreign_key_list(s.name) f where s.type = 'table'
"""
_MODULE = re.compile(r"\busing\s+[\"'`\[]?(\w+)", re.IGNORECASE)
_GENERATED: dict[int, Literal["virtual", "stored"]] = {2: "virtual", 3: "stored"}
_HIDDEN = 1  # a column of a virtual table that only its module knows of


def read_schema(connection: Asked) -> Schema:
    """Read the schema, in one round trip."""
    objects, columns, names, references = connection.together(
        [(_OBJECTS, ()), (_COLUMNS, ()), (_NAMES, ()), (_REFERENCES, ())]
    )
    by_table: dict[str, list[Column]] = {}
    for table, name, type_, key, not_null, default, hidden in columns:
        if hidden != _HIDDEN:
            column = Column(name, type_, key, bool(not_null), default, _GENERATED.get(hidden))
            by_table.setdefault(table, []).append(column)
    tables: dict[str, Table] = {}
    for name, kind, without_rowid, sql in objects:
        if kind == "shadow" or is_own(name):
            continue
        module = ""
        if kind == "virtual":
            found = _MODULE.search(sql)
            module = folded(found[1]) if found else ""
        tables[folded(name)] = Table(name, kind, module, tuple(by_table.get(name, ())), not without_rowid, sql or "")
    return Schema(
        tables,
        frozenset(folded(row[0]) for row in names),
        frozenset((folded(child), folded(parent)) for child, parent in references),
    )
