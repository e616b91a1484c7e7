"""SQLite's SQL as sqlglot reads and writes it, such that what is written means exactly what was read.

sqlglot's own dialect is for translating: it knows what functions mean, maps types, completes joins. Here nothing is
translated. Functions keep their names, types their words, and operators their places, because a guarded statement must
give what SQLite itself gives. Imported where SQL is read, and nowhere else: sqlglot takes a fifth of a second.
"""

from typing import Any

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel
from sqlglot.expressions.core import Expression
from sqlglot.tokenizer_core import Token, TokenType


class Plus(exp.Unary):
    """`+x`, which has neither affinity nor collation in SQLite."""


class Arrow(Expression, exp.Binary):
    """`x -> path`."""


class LongArrow(Expression, exp.Binary):
    """`x ->> path`."""


class Conversion(Expression):
    """`cast(x as type)`, with the type as it was written: its words decide on the affinity."""

    arg_types = {"this": True, "to": True}


class Question(Expression):
    """A `?`, by where it stands in the text."""

    arg_types = {"this": True}


class Setting(Expression):
    """A value of the session: `tenant` or `user`."""

    arg_types = {"this": True}


_POSTFIX: dict[type[exp.Expr], str] = {
    exp.In: "IN",
    exp.Between: "BETWEEN",
    exp.Glob: "GLOB",
    exp.Match: "MATCH",
    exp.RegexpLike: "REGEXP",
}
_TYPE_TOKENS = {TokenType.NUMBER, TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.DASH, TokenType.PLUS}
_THEIRS: Any = SQLite.Parser  # its tables are typed by what they hold
_KEPT_UNARY = (TokenType.NOT, TokenType.TILDE, TokenType.DASH)


def _question(parser: Any) -> exp.Expr:
    return Question(this=str(parser._prev.start))


def _plus(parser: Any) -> exp.Expr:
    return Plus(this=parser._parse_unary())


def _arrow(_: Any, this: Any, expression: Any) -> exp.Expr:
    return Arrow(this=this, expression=expression)


def _long_arrow(_: Any, this: Any, expression: Any) -> exp.Expr:
    return LongArrow(this=this, expression=expression)


def _conversion(parser: Any) -> exp.Expr:
    value = parser._parse_disjunction()
    if not parser._match(TokenType.ALIAS):
        parser.raise_error("Expected AS")
    words: list[str] = []
    depth = 0
    while (token := parser._curr) and not (token.token_type == TokenType.R_PAREN and depth == 0):
        kind = token.token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if kind in _TYPE_TOKENS:
            words.append(token.text)
        elif kind == TokenType.IDENTIFIER or token.text.replace("_", "").replace(" ", "").isalnum():
            # `double precision` is one token. Quoted, a word cannot be anything but one.
            words.append(exp.Identifier(this=token.text, quoted=True).sql("sqlite"))
        else:
            parser.raise_error("Expected the name of a type")
        parser._advance()
    return Conversion(this=value, to=exp.Var(this=" ".join(words)))


def _as_select(generator: Any, node: Any) -> str:
    # No clause is rewritten into others that SQLite has; what it has not is refused before.
    return generator.select_sql(node)


def _as_conversion(generator: Any, node: Any) -> str:
    return f"CAST({generator.sql(node, 'this')} AS {generator.sql(node, 'to')})"


def _as_plus(generator: Any, node: Any) -> str:
    return f"+{generator.sql(node, 'this')}"


def _as_arrow(generator: Any, node: Any) -> str:
    return generator.binary(node, "->")


def _as_long_arrow(generator: Any, node: Any) -> str:
    return generator.binary(node, "->>")


def _as_question(_: Any, node: Any) -> str:
    return f"?{node.name}"


def _as_denial(generator: Any, node: Any) -> str:
    """`x NOT IN y` where sqlglot would write `NOT x IN y`, which binds otherwise beside other operators."""
    denied = node.this
    if type(denied) in _POSTFIX:
        left = generator.sql(denied, "this")
        return f"{left} NOT{generator.sql(denied)[len(left) :]}"
    if isinstance(denied, exp.Is):
        return f"{generator.sql(denied, 'this')} IS NOT {generator.sql(denied, 'expression')}"
    return generator.not_sql(node)


class Written(SQLite):
    """SQLite's dialect without any translation."""

    class Parser(SQLite.Parser):  # noqa: D106 - sqlglot's own structure
        FUNCTIONS: Any = {}
        FUNCTION_PARSERS: Any = {"CAST": _conversion}
        NO_PAREN_FUNCTION_PARSERS: Any = {"CASE": _THEIRS.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        COLUMN_OPERATORS: Any = {TokenType.DOT: None}
        PLACEHOLDER_PARSERS: Any = {TokenType.PLACEHOLDER: _question}
        UNARY_PARSERS: Any = {
            **{kind: parse for kind, parse in _THEIRS.UNARY_PARSERS.items() if kind in _KEPT_UNARY},
            TokenType.PLUS: _plus,
        }
        CONCAT_OPERATORS: Any = {
            TokenType.DPIPE: _THEIRS.CONCAT_OPERATORS[TokenType.DPIPE],
            TokenType.ARROW: _arrow,
            TokenType.DARROW: _long_arrow,
        }
        # A comma between tables stays one: `cross join` would keep SQLite from choosing their order.
        JOINS_HAVE_EQUAL_PRECEDENCE = False
        ADD_JOIN_ON_TRUE = False

        def _parse_interval(self, *_: Any, **__: Any) -> None:
            """There are none: `interval` is a name like any other."""

        def _parse_types(self, *_: Any, **__: Any) -> None:
            """Nothing begins with a type: `date`, `text` and so on are names like any other."""

        def _warn_unsupported(self) -> None:
            """Nothing is logged: what an agent writes is nobody else's business."""

    class Generator(SQLite.Generator):  # noqa: D106
        TRANSFORMS: Any = {
            **SQLite.Generator.TRANSFORMS,
            exp.Select: _as_select,
            exp.Not: _as_denial,
            Plus: _as_plus,
            Arrow: _as_arrow,
            LongArrow: _as_long_arrow,
            Conversion: _as_conversion,
            Question: _as_question,
        }


def parsed(sql: str) -> list[exp.Expr | None]:
    """The statements of a text, as trees.

    Raises:
        sqlglot.errors.SqlglotError: if it is not SQL.
        RecursionError: if it is nested too deeply.
    """
    return Written().parse(sql)


def tokens(sql: str) -> list[Token]:
    """The words of a text.

    Raises:
        sqlglot.errors.SqlglotError: if a text or a name in it does not end.
    """
    return Written().tokenize(sql)


def written(tree: exp.Expr) -> str:
    """A tree as SQL, without comments.

    Raises:
        sqlglot.errors.SqlglotError: if it holds what SQLite's SQL has no words for.
    """
    return Written().generate(
        tree, copy=True, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE
    )
