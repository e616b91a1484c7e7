"""Row-level policies: expressions over a table's columns that say which rows a session may see and write.

Policies are permissive: a row may be seen, or written, if one of those that apply allows it. An expression is made of
what cannot fail for any row, whatever is in it, because an error would tell that the row is there.
"""

from collections.abc import Collection, Iterable

from sqlglot import exp
from sqlglot.errors import SqlglotError

from kura.errors import ArgumentError, StatementRefused
from kura.sql.dialect import Setting, parsed
from kura.sql.grammar import function_name, nodes, require_allowed
from kura.store.engine import folded
from kura.types import Command, Policy

MOST_CHARACTERS = 2000

_ALLOWED = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple, exp.And, exp.Or, exp.Not,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In,
    exp.Like, exp.Glob, exp.Escape, exp.Collate, exp.Var, exp.Neg, exp.Case, exp.If, exp.Anonymous, exp.CurrentUser,
    exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, Setting,
)  # fmt: skip
_FUNCTIONS = frozenset(
    {"coalesce", "date", "datetime", "ifnull", "iif", "instr", "length", "lower", "ltrim", "nullif", "rtrim", "substr",
     "time", "trim", "typeof", "upper"}
)  # fmt: skip
_SETTINGS = {"app.tenant_id": "tenant", "app.user_id": "user"}
_KINDS: dict[Command, tuple[bool, bool]] = {
    "all": (True, True),
    "select": (True, False),
    "insert": (False, True),
    "update": (True, True),
    "delete": (True, False),
}
"""Whether a policy for a command has `using`, and whether it has `check`."""


def checked(policy: Policy, columns: Collection[str]) -> None:
    """Check that a policy can be applied to a table of these columns.

    Raises:
        ArgumentError: if it cannot; the message says which part is wrong, and what would be right.
    """
    if not policy.name.strip():
        raise ArgumentError("invalid argument: a policy needs a name")
    using, check = _KINDS[policy.command]
    if policy.using is not None and not using:
        raise ArgumentError(
            f"invalid argument: a policy for {policy.command} has no `using`: it sees no row; use `check`"
        )
    if policy.check is not None and not check:
        raise ArgumentError(
            f"invalid argument: a policy for {policy.command} has no `check`: it writes no row; use `using`"
        )
    if policy.using is None and policy.check is None:
        raise ArgumentError("invalid argument: a policy needs an expression: `using` for the rows that are seen,"
                            " `check` for those that are written")  # fmt: skip
    for part, text in (("using", policy.using), ("check", policy.check)):
        if text is not None:
            expression(text, columns, f'`{part}` of the policy "{policy.name}"')


def condition(policies: Iterable[Policy], command: Command, *, new: bool, columns: Collection[str]) -> exp.Expr:
    """The rows of a table that policies allow for a command, as one expression; none where no policy applies.

    Args:
        policies: Those of the table.
        command: What is done with its rows.
        new: Whether rows as they will be are meant rather than rows as they are: `check`, or `using` where there is no
            `check`.
        columns: The table's.

    Raises:
        StatementRefused: if a policy does not fit the table any more.
    """
    found: exp.Expr = exp.false()
    for policy in policies:
        if policy.command not in {"all", command}:
            continue
        text = (policy.check or policy.using) if new else policy.using
        if text is None:
            continue
        try:
            each = expression(text, columns, f'the policy "{policy.name}"')
        except ArgumentError as error:
            raise StatementRefused(
                f'the table "{policy.table}" cannot be used: its policy "{policy.name}" does not fit it (any more);'
                " the operator can change that with `kura policy`"
            ) from error
        wrapped = exp.Paren(this=each)
        found = wrapped if isinstance(found, exp.Boolean) else exp.Or(this=found, expression=wrapped)
    return found


def expression(text: str, columns: Collection[str], what: str) -> exp.Expr:
    """Read a policy's expression; `current_setting(…)` and `current_user` become values of the session.

    Raises:
        ArgumentError: if it is none, or holds what a policy may not.
    """
    if len(text) > MOST_CHARACTERS or "\0" in text:
        raise ArgumentError(f"invalid argument: {what} has more than {MOST_CHARACTERS} characters, or a NUL")
    try:
        tree = with_settings(_one(text))
    except (SqlglotError, RecursionError) as error:
        raise ArgumentError(f"invalid argument: {what} is not an expression of SQLite's SQL") from error
    except StatementRefused as error:
        raise ArgumentError(f"invalid argument: {what}: {error}") from error
    for node in nodes(tree):
        _require_total(node, columns, what)
    return tree.this


def _one(text: str) -> exp.Expr:
    """A text as one expression, in parentheses."""
    statements = parsed(f"select ({text}\n)")
    select = statements[0] if len(statements) == 1 else None
    if isinstance(select, exp.Select) and {part for part, value in select.args.items() if value} == {"expressions"}:
        require_allowed(select)
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Paren):
            return select.expressions[0]
    raise StatementRefused("it must be one expression")


def with_settings(tree: exp.Expr) -> exp.Expr:
    """A tree in which `current_setting('app.…')` and `current_user` stand for values of the session.

    Raises:
        StatementRefused: if another setting is asked for.
    """

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.CurrentUser):
            return Setting(this="user")
        if isinstance(node, exp.Anonymous) and function_name(node) == "current_setting":
            asked = node.expressions
            name = asked[0].name if len(asked) == 1 and isinstance(asked[0], exp.Literal) else None
            if name not in _SETTINGS:
                raise StatementRefused(f"current_setting takes one of {', '.join(repr(known) for known in _SETTINGS)}")
            return Setting(this=_SETTINGS[name])
        return node

    return tree.transform(replaced)


def _require_total(node: exp.Expr, columns: Collection[str], what: str) -> None:
    """Refuse what could fail for a row, and what is not a column of the table."""
    if not isinstance(node, _ALLOWED):
        raise ArgumentError(
            f"invalid argument: {what} holds {type(node).__name__.upper()}; it may compare columns with values and with"
            " current_setting('app.tenant_id'), current_setting('app.user_id') and current_user, joined by AND, OR, NOT"
        )
    if isinstance(node, exp.Column):
        known = {folded(column) for column in columns}
        if node.table or isinstance(node.this, exp.Star) or folded(node.name) not in known:
            there = ", ".join(f'"{column}"' for column in columns)
            raise ArgumentError(f'invalid argument: {what} names "{node.name}"; the table\'s columns are {there}')
    if isinstance(node, exp.Anonymous) and function_name(node) not in _FUNCTIONS:
        raise ArgumentError(
            f"invalid argument: {what} calls {node.name}; a policy may call {', '.join(sorted(_FUNCTIONS))}"
        )
    if isinstance(node, exp.Like | exp.Glob):
        pattern = node.expression.this if isinstance(node.expression, exp.Escape) else node.expression
        if not isinstance(pattern, exp.Literal | Setting):
            raise ArgumentError(f"invalid argument: {what} compares with a pattern that is not a constant")
    if isinstance(node, exp.In) and node.args.get("query"):
        raise ArgumentError(f"invalid argument: {what} holds a subquery; it may name the table's columns alone")
