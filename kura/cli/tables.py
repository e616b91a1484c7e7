"""Commands on tables of the owner's own: sql, policy."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import get_args

import click

from kura.chosen import elsewhere_of
from kura.cli.root import LOCK_PATIENCE, clean, data_dir_option, json_option, print_json
from kura.errors import ArgumentError, IngestError, StoreError, UnknownDatabase
from kura.ingest.roots import writing
from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog
from kura.store.engine import Answered
from kura.store.policies import add_policy, columns, policies, remove_policy, tables
from kura.store.script import run_script
from kura.store.sqlite import open_for_reading
from kura.types import Command, Policy

_WIDEST = 60  # characters of a value that are shown on a terminal


@click.command("sql")
@click.argument("name")
@click.argument("statement", required=False)
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), help="Run the statements in FILE; - is stdin.")
@json_option
@data_dir_option
@click.pass_obj
def sql_command(data_dir: Path | None, name: str, statement: str | None, file: Path | None, *, as_json: bool) -> None:
    """Run SQL on the local database NAME with all rights of its owner: no policy applies.

    Several statements are one transaction: all of them take place, or none. Kura's own tables can be read.
    """
    if (statement is None) == (file is None):
        raise click.UsageError("give a statement, or a file of statements with -f; not both")
    path = _path(read_settings(data_dir=data_dir), name)
    script = _read(file) if file is not None else clean(statement or "")
    answers = run_script(path, script)
    if as_json:
        shown = [_as_json(answer) for answer in answers]
        print_json(shown[0] if len(shown) == 1 and file is None else shown)
        return
    for answer in answers:
        if answer.columns:
            click.echo(_table(answer))
        elif answer.changed or len(answers) == 1:
            click.echo(f"{answer.changed:,} {'row' if answer.changed == 1 else 'rows'} changed")


@click.group("policy")
def policy_command() -> None:
    """Say which rows of a table agents see and write, for each of their sessions.

    A row-level policy is an expression over the table's columns, current_setting('app.tenant_id'),
    current_setting('app.user_id') and current_user. A row may be seen, or written, if one policy allows it. A table
    with policies shows nothing to a session without a tenant. `kura sql` is not subject to them.
    """


@policy_command.command("add")
@click.argument("database")
@click.argument("table")
@click.argument("name")
@click.option(
    "--for",
    "command",
    type=click.Choice(get_args(Command)),
    default="all",
    show_default=True,
    help="What it is for.",
)
@click.option("--using", help="Which of the rows that there are may be seen, changed or deleted.")
@click.option("--check", help="Which rows may be written. [default: as --using]")
@data_dir_option
@click.pass_obj
def add_command(
    data_dir: Path | None,
    database: str,
    table: str,
    name: str,
    command: Command,
    using: str | None,
    check: str | None,
) -> None:
    """Add the policy NAME to TABLE in DATABASE.

    \b
    For example:
      kura policy add notes users own --using "tenant = current_setting('app.tenant_id')"
    """  # noqa: D301 - click wants the character itself
    from kura.sql.policies import checked

    path = _path(read_settings(data_dir=data_dir), database)
    with writing(path, patience=LOCK_PATIENCE) as connection:
        known = {each.lower(): each for each in tables(connection)}
        own = known.get(clean(table).lower())
        if own is None:
            there = ", ".join(f'"{each}"' for each in known.values()) or "none; make one with `kura sql`"
            raise ArgumentError(f'invalid argument: there is no table "{clean(table)}"; tables of yours: {there}')
        policy = Policy(
            clean(name), own, command, None if using is None else clean(using), None if check is None else clean(check)
        )
        checked(policy, columns(connection, own))
        add_policy(connection, policy)
    click.echo(f'added the policy "{policy.name}": {_meaning(policy)}')


@policy_command.command("list")
@click.argument("database")
@json_option
@data_dir_option
@click.pass_obj
def list_command(data_dir: Path | None, database: str, *, as_json: bool) -> None:
    """List the policies in DATABASE."""
    with closing(open_for_reading(_path(read_settings(data_dir=data_dir), database))) as connection:
        kept, there = policies(connection), {each.lower() for each in tables(connection)}
    if as_json:
        print_json(
            [
                {
                    "table": policy.table,
                    "name": policy.name,
                    "for": policy.command,
                    "using": policy.using,
                    "check": policy.check,
                    "table_exists": policy.table.lower() in there,
                }
                for policy in kept
            ]
        )
        return
    if not kept:
        click.echo("no policies: agents that see this database see all rows of its tables", err=True)
    for policy in kept:
        gone = "" if policy.table.lower() in there else "\t(there is no such table now)"
        parts = [f"{word} {text}" for word, text in (("using", policy.using), ("check", policy.check)) if text]
        click.echo("\t".join([policy.table, policy.name, f"for {policy.command}", *parts]) + gone)


@policy_command.command("remove")
@click.argument("database")
@click.argument("table")
@click.argument("name")
@data_dir_option
@click.pass_obj
def remove_command(data_dir: Path | None, database: str, table: str, name: str) -> None:
    """Remove the policy NAME from TABLE in DATABASE."""
    with writing(_path(read_settings(data_dir=data_dir), database), patience=LOCK_PATIENCE) as connection:
        remove_policy(connection, clean(table), clean(name))
        left = sum(policy.table.lower() == clean(table).lower() for policy in policies(connection))
    others = f"{left} left on the table" if left else "agents see all of the table's rows now"
    click.echo(f'removed the policy "{clean(name)}"; {others}')


def _path(settings: Settings, name: str) -> Path:
    """The file of a local database.

    Raises:
        UnknownDatabase: if there is none of that name at all.
        StoreError: if it is on a server.
    """
    catalog = Catalog(settings.data_dir)
    try:
        return catalog.path(catalog.find(clean(name)))
    except UnknownDatabase:
        if clean(name) in _elsewhere(settings):
            raise StoreError(
                f'"{clean(name)}" is on a server; this works on databases of this machine: pull it, change it here, and'
                " publish it with `kura push`"
            ) from None
        raise


def _elsewhere(settings: Settings) -> set[str]:
    """Names of databases on servers."""
    elsewhere = elsewhere_of(settings)
    if elsewhere is None:
        return set()
    with closing(elsewhere):
        return {entry.name for entry in elsewhere.entries()}


def _read(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IngestError(f"{file} is not text in UTF-8") from error


def _meaning(policy: Policy) -> str:
    shows = f'"{policy.table}" shows a session the rows where {policy.using}'
    writes = f"it may write rows where {policy.check or policy.using}"
    match policy.command:
        case "all" if policy.using is not None:
            text = f"{shows}, and {writes}"
        case "select":
            text = shows
        case "insert" | "all":
            text = f'into "{policy.table}" a session may write rows where {policy.check}'
        case "update":
            text = f'in "{policy.table}" a session may change rows where {policy.using or "no row"}; {writes}'
        case _:
            text = f'from "{policy.table}" a session may delete the rows where {policy.using}'
    return f"{text}; without a tenant it shows nothing"


def _as_json(answer: Answered) -> dict[str, object]:
    from kura.serve.values import to_json

    rows = [dict(zip(answer.columns, map(to_json, row), strict=True)) for row in answer.rows]
    return {"columns": list(answer.columns), "rows": rows, "affectedRows": answer.changed}


def _table(answer: Answered) -> str:
    """Rows for people: columns aligned, long values cut on a terminal."""
    widest = _WIDEST if sys.stdout.isatty() else None
    lines = [list(answer.columns), *([_shown(value, widest) for value in row] for row in answer.rows)]
    widths = [max(_width(line[place]) for line in lines) for place in range(len(answer.columns))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join(text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in ruled
    )


def _shown(value: object, widest: int | None) -> str:
    if value is None:
        text = "NULL"
    elif isinstance(value, bytes):
        text = f"x'{value[:16].hex()}{'…' if len(value) > 16 else ''}' ({len(value):,} bytes)"
    else:
        text = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"') if isinstance(value, str) else str(value)
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def _width(text: str) -> int:
    """How many places a text takes on a terminal: two for a Chinese character."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
