"""What of SQLite's SQL an agent may use: kinds of expressions with their parts, and functions by name.

A list of what is allowed, not of what is forbidden: whatever else sqlglot may learn to read is refused.
"""

from collections.abc import Iterable, Iterator

from sqlglot import exp

from kura.errors import StatementRefused
from kura.sql.dialect import Arrow, Conversion, LongArrow, Plus, Question

_OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift,
    exp.Like, exp.Glob, exp.Match, exp.RegexpLike, exp.Escape, exp.Collate, Arrow, LongArrow,
)  # fmt: skip
_QUERY = "with_ this expression expressions distinct order limit offset"

PARTS: dict[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(parts.split())
    for kind, parts in {
        **dict.fromkeys(_OPERATORS, "this expression"),
        exp.Div: "this expression typed safe",
        exp.Mod: "this expression safe",
        exp.Like: "this expression negate",
        exp.DPipe: "this expression safe",
        exp.Select: "with_ expressions distinct from_ joins where group having windows order limit offset",
        exp.Union: _QUERY,
        exp.Intersect: _QUERY,
        exp.Except: _QUERY,
        exp.Values: "expressions alias",
        exp.Subquery: "this alias joins",
        exp.With: "expressions recursive",
        exp.CTE: "this alias materialized",
        exp.From: "this",
        exp.Table: "this alias joins",
        exp.TableAlias: "this columns",
        exp.Join: "this on using side kind method",
        exp.Where: "this",
        exp.Group: "expressions",
        exp.Having: "this",
        exp.Order: "this expressions",
        exp.Ordered: "this desc nulls_first",
        exp.Limit: "expression",
        exp.Offset: "expression",
        exp.Distinct: "expressions",
        exp.Window: "this partition_by order spec alias over",
        exp.WindowSpec: "kind start start_side end end_side exclude",
        exp.Filter: "this expression",
        exp.Anonymous: "this expressions",
        exp.Alias: "this alias",
        exp.Column: "this table",
        exp.Identifier: "this quoted",
        exp.Star: "",
        exp.Literal: "this is_string",
        exp.HexString: "this",
        exp.Boolean: "this",
        exp.Null: "",
        exp.Var: "this",
        exp.Paren: "this",
        exp.Tuple: "expressions",
        exp.Not: "this",
        exp.Neg: "this",
        exp.BitwiseNot: "this",
        exp.Exists: "this",
        exp.Between: "this low high",
        exp.In: "this expressions query",
        exp.Case: "this ifs default",
        exp.If: "this true",
        exp.CurrentDate: "",
        exp.CurrentTime: "",
        exp.CurrentTimestamp: "",
        exp.CurrentUser: "",
        Plus: "this",
        Conversion: "this to",
        Question: "this",
    }.items()
}
"""Each kind of expression with the parts that it may have."""

_CHANGES: dict[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(parts.split())
    for kind, parts in {
        exp.Insert: "this expression conflict alternative returning default with_",
        exp.Update: "this expressions where returning with_",
        exp.Delete: "this where returning with_",
        exp.Schema: "this expressions",
        exp.OnConflict: "expressions action conflict_keys index_predicate where",
        exp.Returning: "expressions",
    }.items()
}

FUNCTIONS = frozenset(
    """
    abs char coalesce concat concat_ws format glob hex ifnull iif instr length like likelihood likely lower ltrim
    nullif octet_length printf quote random replace round rtrim sign soundex sqlite_version substr substring trim typeof
    unhex unicode unlikely upper
    date datetime julianday strftime time timediff unixepoch
    avg count group_concat max min string_agg sum total
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    json json_array json_array_length json_error_position json_extract json_group_array json_group_object json_insert
    json_object json_patch json_pretty json_quote json_remove json_replace json_set json_type json_valid
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
    radians sin sinh sqrt tan tanh trunc
    bm25 highlight snippet
    vector vector32 vector_distance_cos vector_distance_l2 vector_extract
    """.split()  # noqa: SIM905 - a hundred names read better so
)
"""Functions that compute from their arguments alone."""

TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})

OPERATOR_FUNCTIONS = frozenset({"->", "->>", "like", "glob", "regexp", "match"})
"""Functions that the engine calls for operators."""

_TOTAL_FUNCTIONS = frozenset(
    {"avg", "coalesce", "count", "ifnull", "iif", "instr", "length", "lower", "ltrim", "max", "min", "nullif", "rtrim",
     "total", "trim", "typeof", "upper"}
)  # fmt: skip
_TOTAL = (
    exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Where, exp.Order, exp.Ordered, exp.Limit, exp.Offset,
    exp.Group, exp.Distinct, exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.HexString, exp.Boolean,
    exp.Null, exp.Paren, exp.Tuple, exp.Not, exp.Neg, exp.Between, exp.In, exp.Var, exp.Collate, exp.And, exp.Or,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub,
    exp.Mul, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentUser, Plus, Question,
)  # fmt: skip


_PARTS_IN_WORDS: dict[tuple[type[exp.Expr], str], str] = {
    (exp.Table, "db"): "a table is named here without what it is in: `users`, not `main.users`",
    (exp.Column, "db"): "a column is named here by its table's name and its own: `users.id`",
    (exp.In, "field"): "IN needs a list or a query in parentheses: `in (select id from users)`",
    (exp.Table, "indexed"): "INDEXED BY is not supported here: SQLite chooses the index",
    (exp.Update, "from_"): "UPDATE … FROM is not supported here; use a subquery in SET and WHERE",
}


def require_allowed(tree: exp.Expr, *, change: bool = False) -> None:
    """Check that nothing in a tree is outside of what is allowed.

    Raises:
        StatementRefused: if something is; the message names it.
    """
    for node in nodes(tree):
        parts = PARTS.get(type(node)) or (_CHANGES.get(type(node)) if change else None)
        if parts is None and type(node) not in PARTS:
            raise StatementRefused(f"{_named(node)} is not supported here")
        for part, value in node.args.items():
            if value not in (None, False) and value != [] and part not in (parts or ()):
                raise StatementRefused(
                    _PARTS_IN_WORDS.get((type(node), part))
                    or f"{_named(node)} with {part.strip('_').upper()} is not supported here"
                )
        _require_own_form(node)


def nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Every node of a tree, the root first."""
    return tree.walk()


def total(tree: exp.Expr) -> bool:
    """Whether a statement is one select over one table in which no expression can fail, or take long, for any row.

    Arithmetic of SQLite never fails: it turns to floats and nulls.
    """
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or tree.args.get("windows"):
        return False
    for node in nodes(tree):
        if isinstance(node, exp.Anonymous):
            if function_name(node) not in _TOTAL_FUNCTIONS:
                return False
        elif type(node) not in _TOTAL or (node is not tree and isinstance(node, exp.Select)):
            return False
    return True


def function_name(node: exp.Expr) -> str:
    """The name of a function that is called, in lower case."""
    return node.name.lower() if node.name.isascii() else node.name


def _require_own_form(node: exp.Expr) -> None:
    if isinstance(node, exp.Table):
        if isinstance(node.this, exp.Anonymous):
            name = function_name(node.this)
            if name not in TABLE_FUNCTIONS:
                raise StatementRefused(f"the table function {name} is not available; {_listed(TABLE_FUNCTIONS)} are")
        elif not isinstance(node.this, exp.Identifier):
            raise StatementRefused("a table must be named by one name")
    elif isinstance(node, exp.Anonymous):
        name = function_name(node)
        of_table = isinstance(node.parent, exp.Table) and name in TABLE_FUNCTIONS
        if not of_table and name not in FUNCTIONS | {"current_setting"}:
            raise StatementRefused(f"the function {name[:100]} is not available here")
    elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Identifier | exp.Star):
        raise StatementRefused("a column must be named by its name, or by its table's and its own")
    elif isinstance(node, exp.Distinct) and node.args.get("on"):
        raise StatementRefused("DISTINCT ON is not supported here")


def _named(node: exp.Expr) -> str:
    if isinstance(node, exp.Command):
        return node.name.upper()[:50]
    return type(node).__name__.upper()


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
