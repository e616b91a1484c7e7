"""The command that asks a database: search."""

import asyncio
import textwrap
from pathlib import Path
from typing import Literal

import click

from kura.cli.library import open_library
from kura.cli.root import clean, data_dir_option, json_option, print_json
from kura.search.search import search
from kura.serve.tools import search_answer
from kura.settings import read_settings
from kura.types import SearchResult, Session, SourceGroup

LONGEST_WAIT = 120.0
"""Seconds that a person at a terminal waits for the embedder's first start, which prepares its model file."""


@click.command("search")
@click.argument("name")
@click.argument("query", nargs=-1, required=True)
@click.option("--mode", type=click.Choice(["keyword", "semantic"]), help="Run this branch alone. [default: both]")
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="Passages per branch.")
@click.option("--tenant", help="Search as this tenant. [default: KURA_TENANT, else the owner of NAME]")
@click.option("--user", help="Search as this user. [default: KURA_USER]")
@json_option
@data_dir_option
@click.pass_obj
def search_command(
    data_dir: Path | None,
    name: str,
    query: tuple[str, ...],
    mode: Literal["keyword", "semantic"] | None,
    limit: int,
    tenant: str | None,
    user: str | None,
    *,
    as_json: bool,
) -> None:
    """Search the database NAME for QUERY, as an agent would. Words after NAME need no quotes."""
    settings = read_settings(data_dir=data_dir, tenant=tenant, user=user)
    library = open_library(settings, patience=LONGEST_WAIT)
    # Whoever can run this owns the files: without a tenant given, the database's own one is theirs.
    try:
        owners = {entry.name: entry.tenant for entry in library.entries()}
        session = Session(tenant_id=settings.tenant or owners.get(clean(name)), user_id=settings.user)
        found = asyncio.run(search(library, session, clean(name), clean(" ".join(query)), mode, limit))
    finally:
        library.close()
    if as_json:
        print_json(search_answer(found))
    else:
        _print(found)


def _print(found: SearchResult) -> None:
    for notice in found.notices:
        click.echo(f"note: {notice}", err=True)
    for title, groups in (("keyword", found.keyword), ("semantic", found.semantic)):
        if groups is None:
            continue
        click.secho(title, bold=True)
        if not groups:
            click.echo("  nothing found")
        for group in groups:
            _print_group(group)


def _print_group(group: SourceGroup) -> None:
    for match in group.matches:
        first, last = match.lines
        where = f"{group.source}:{first}" + (f"-{last}" if last != first else "")
        trail = " › ".join(match.heading)
        click.echo(click.style(f"  {where}", fg="cyan") + (f"  {trail}" if trail else "") + f"  [{match.score:.3g}]")
        click.echo(textwrap.indent(textwrap.shorten(match.content, 400, placeholder=" …"), "    "))
