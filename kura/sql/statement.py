"""Statements as they come: one text to one tree, and what only the text tells."""

from dataclasses import dataclass
from typing import cast

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from kura.errors import StatementRefused
from kura.sql import MOST_CHARACTERS
from kura.sql.dialect import parsed, tokens
from kura.sql.schema import Table
from kura.store.engine import folded


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as it was read: whether its plan is asked for, its text without that, and its tree."""

    explain: bool
    text: str
    tree: exp.Expr

    @property
    def changes(self) -> bool:
        """Whether it inserts, updates or deletes."""
        return isinstance(self.tree, exp.Insert | exp.Update | exp.Delete)


def read(sql: str) -> Statement:
    """Read one statement.

    Raises:
        StatementRefused: if it is none; the message says where.
    """
    explain, text = _without_explain(sql)
    return Statement(explain, text, read_text(text))


def _refused(error: SqlglotError | RecursionError, text: str) -> StatementRefused:
    """What a reader's error comes to: where the statement went wrong, without the library's words."""
    if isinstance(error, RecursionError):
        return StatementRefused("the statement is nested too deeply")
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        line, column = first.get("line"), first.get("col")
        near = str(first.get("highlight") or "")[:60]
        if line is not None and column is not None:
            beside = f' near "{near}"' if near else ""
            return StatementRefused(f"syntax error at line {line}, column {max(1, column - len(near) + 1)}{beside}")
    return StatementRefused(f"syntax error: a text, name or comment does not end ({len(text)} characters read)")


def read_text(text: str) -> exp.Expr:
    """Read a text as one statement of any kind.

    Raises:
        StatementRefused: if it is none; the message says where.
    """
    if len(text) > MOST_CHARACTERS:
        raise StatementRefused(f"the statement has more than {MOST_CHARACTERS:,} characters")
    if "\0" in text:
        raise StatementRefused("the statement holds a NUL character")
    try:
        statements = parsed(text)
    except (SqlglotError, RecursionError) as error:
        raise _refused(error, text) from error
    while statements and statements[-1] is None:
        statements.pop()
    if len(statements) != 1 or statements[0] is None:
        raise StatementRefused(f"one statement is expected, not {len(statements)}")
    return statements[0]


def _tokens(text: str) -> list[Token]:
    try:
        return tokens(text)
    except SqlglotError as error:
        raise _refused(error, text) from error


def _without_explain(sql: str) -> tuple[bool, str]:
    """Take `EXPLAIN QUERY PLAN` from the beginning of a statement."""
    if len(sql) > MOST_CHARACTERS or "\0" in sql:
        return False, sql  # refused in a moment
    words = sql.lstrip()[:7].lower()
    if words != "explain" and "explain" not in sql[:2000].lower():
        return False, sql
    first = _first_words(sql)
    if not first or first[0][0] != "explain":
        return False, sql
    if [word for word, _ in first[:3]] != ["explain", "query", "plan"]:
        raise StatementRefused("EXPLAIN is not supported here; EXPLAIN QUERY PLAN is")
    return True, sql[first[2][1] :]


def _first_words(sql: str) -> list[tuple[str, int]]:
    """The first three words of a statement, comments passed over, each with where it ends."""
    words: list[tuple[str, int]] = []
    at = 0
    while at < len(sql) and len(words) < 3:
        if sql[at].isspace():
            at += 1
        elif sql.startswith("--", at):
            end = sql.find("\n", at)
            at = len(sql) if end < 0 else end
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            at = len(sql) if end < 0 else end + 2
        elif sql[at].isalpha():
            end = at
            while end < len(sql) and (sql[end].isalnum() or sql[end] == "_"):
                end += 1
            words.append((sql[at:end].lower(), end))
            at = end
        else:
            break
    return words


def name_columns(tree: exp.Expr, text: str) -> None:
    """Give each unnamed column of the result the name that SQLite gives it: its own text."""
    select = tree
    while isinstance(select, exp.SetOperation):
        select = cast("exp.Expr", select.this)
    if not isinstance(select, exp.Select):
        return
    texts = _texts(text)
    if len(texts) != len(select.expressions):
        return
    named: list[exp.Expr] = []
    for node, own in zip(select.expressions, texts, strict=True):
        core = node
        while isinstance(core, exp.Paren):
            core = core.this
        plain = isinstance(core, exp.Alias | exp.Column | exp.Star)
        named.append(node if plain else exp.Alias(this=node, alias=exp.to_identifier(own, quoted=True)))
    select.set("expressions", named)


_END = {
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.WINDOW, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.OFFSET, TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT, TokenType.SEMICOLON,
}  # fmt: skip


def _texts(text: str) -> list[str]:
    """The texts of a select's columns, each as it was written, up to what comes behind it."""
    depth = 0
    begin: int | None = None  # -1 until the first word of a column
    before: TokenType | None = None
    texts: list[str] = []
    for token in _tokens(text):
        kind = token.token_type
        if begin is None:
            if depth == 0 and kind == TokenType.SELECT:
                begin = -1
        elif depth == 0 and (kind in _END or kind == TokenType.COMMA) and before != TokenType.DISTINCT:
            texts.append(text[begin : token.start].rstrip())
            begin = -1
            if kind != TokenType.COMMA:
                return texts
        elif begin == -1 and kind not in {TokenType.DISTINCT, TokenType.ALL}:
            begin = token.start
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        before = kind
    if begin is not None:
        texts.append(text[begin:].rstrip())
    return texts


def view_body(sql: str) -> tuple[list[str], str]:
    """The names that a view gives its columns, if it does, and its query."""
    columns: list[str] = []
    depth = 0
    for token in _tokens(sql):
        kind = token.token_type
        if kind == TokenType.ALIAS and depth == 0:
            return columns, sql[token.end + 1 :]
        if depth and kind not in {TokenType.COMMA, TokenType.R_PAREN}:
            columns.append(token.text)
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
    raise StatementRefused("its definition cannot be read")


def content_of(table: Table) -> str | None:
    """The table whose rows a full-text index is over, if it is over another's."""
    if table.module != "fts5":
        return None
    words = _tokens(table.sql)
    for place, token in enumerate(words[:-2]):
        if folded(token.text) == "content" and words[place + 1].token_type == TokenType.EQ:
            return words[place + 2].text or None
    return None
