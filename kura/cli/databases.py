"""Commands on databases as a whole: add, list, rename, remove, status."""

import shlex
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from kura.chosen import elsewhere_of, identify_chosen, tokens_of
from kura.cli.publishing import remove_published, to_option
from kura.cli.root import LOCK_PATIENCE, clean, data_dir_option, json_option, print_json
from kura.errors import KuraError, StoreError, UnknownDatabase
from kura.ingest.roots import is_here, resolved, writing
from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection
from kura.store.migrations import require_whole
from kura.store.publish.published import Publication, publication
from kura.store.remote import open_remote
from kura.store.segments import Place, Room, place_of, seal
from kura.store.sources import State, Statistics, find_root, remove_root, roots, state, statistics
from kura.store.sqlite import open_for_reading

Described = dict[str, str | int | list[str] | None]


@click.command("add")
@click.argument("name")
@click.option("--tenant", help="Only sessions of this tenant see it. [default: everyone does]")
@data_dir_option
@click.pass_obj
def add_command(data_dir: Path | None, name: str, tenant: str | None) -> None:
    """Create an empty database called NAME, and an inbox folder for it."""
    catalog = Catalog(read_settings(data_dir=data_dir).data_dir)
    entry = catalog.add(clean(name), clean(tenant) if tenant is not None else None)
    owner = f' for tenant "{entry.tenant}"' if entry.tenant else ""
    again = f"kura index {shlex.quote(entry.name)}"
    click.echo(f'added "{entry.name}"{owner}')
    click.echo(f"index a folder with: {again} PATH")
    click.echo(f"or put files into {catalog.inbox(entry)} and run: {again}")


@click.command("list")
@json_option
@data_dir_option
@click.pass_obj
def list_command(data_dir: Path | None, as_json: bool) -> None:
    """List the databases, whoever owns them, here and on the servers that are set."""
    entries = _entries(read_settings(data_dir=data_dir))
    if as_json:
        print_json([_named(entry) for entry in entries])
        return
    if not entries:
        click.echo("no databases yet; create one with: kura add NAME", err=True)
    for entry in entries:
        owner = [f"tenant {entry.tenant}"] if entry.tenant else []
        place = [f"at {entry.url}"] if entry.url else []
        click.echo("\t".join([entry.name, entry.created_at or "-", *owner, *place]))


@click.command("rename")
@click.argument("old")
@click.argument("new")
@data_dir_option
@click.pass_obj
def rename_command(data_dir: Path | None, old: str, new: str) -> None:
    """Give the database OLD the name NEW. Running servers follow."""
    entry = Catalog(read_settings(data_dir=data_dir).data_dir).rename(clean(old), clean(new))
    click.echo(f'renamed "{clean(old)}" to "{entry.name}"')


@click.command("remove")
@click.argument("name")
@click.option("--folder", help="Forget only this registered folder (its label or path), not the database.")
@click.option("--remote", is_flag=True, help="Take what is published off its server instead; the database here stays.")
@to_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@data_dir_option
@click.pass_obj
def remove_command(
    data_dir: Path | None, name: str, folder: str | None, url: str | None, *, remote: bool, yes: bool
) -> None:
    """Delete the database NAME, or what was indexed from one of its folders. Your files are never touched."""
    settings = read_settings(data_dir=data_dir)
    if folder is not None and remote:
        raise click.UsageError("--folder and --remote are for two different things; choose one")
    if url is not None and not remote:
        raise click.UsageError("--to goes with --remote")
    if remote:
        remove_published(settings, clean(name), url, ask=partial(_agreed, clean(name), yes))
        return
    catalog = Catalog(settings.data_dir)
    entry = catalog.find(clean(name))
    if folder is not None:
        _forget(catalog.path(entry), entry.name, folder)
        return
    if not yes:
        click.confirm(f'delete the database "{entry.name}" (your files stay)?', abort=True, err=True)
    catalog.remove(entry.name)
    inbox = catalog.inbox(entry)
    kept = f"; your files in {inbox} stay" if inbox.exists() else ""
    click.echo(f'removed "{entry.name}"{kept}')


def _agreed(name: str, yes: bool, target: str) -> None:
    if not yes:
        click.confirm(f'take "{name}" off {target}, for all who read it there?', abort=True, err=True)


@click.command("status")
@click.argument("name", required=False)
@json_option
@data_dir_option
@click.pass_obj
def status_command(data_dir: Path | None, name: str | None, as_json: bool) -> None:
    """Show what the databases hold, what waits to be embedded, and what this installation can do."""
    settings = read_settings(data_dir=data_dir)
    entries = [entry for entry in _entries(settings) if name is None or entry.name == clean(name)]
    if name is not None and not entries:
        raise UnknownDatabase(clean(name), tuple(entry.name for entry in _entries(settings)))
    embedder = _embedder(settings)
    databases = [_described(settings, entry) for entry in entries]
    if as_json:
        print_json({"dataDir": str(settings.data_dir), "embedder": embedder, "databases": databases})
        return
    click.echo(f"data directory  {settings.data_dir}")
    click.echo(f"embedder        {embedder}")
    if not entries:
        click.echo("no databases yet; create one with: kura add NAME")
    for database in databases:
        click.echo("")
        for key, value in database.items():
            for number, line in enumerate(value if isinstance(value, list) else [value]):
                click.echo(f"{'' if number else key:<15} {'-' if line is None else line}")


def _forget(path: Path, name: str, folder: str) -> None:
    with writing(path, patience=LOCK_PATIENCE) as connection:
        labels = {root.label for root in roots(connection)}
        root = find_root(connection, folder if folder in labels else str(resolved(Path(folder))))
        count = remove_root(connection, root.id)
        seal(connection)
    click.echo(f'"{name}" forgot {root.path} and {count} sources from it; the files themselves stay')


def _embedder(settings: Settings) -> str:
    try:
        found = identify_chosen(settings)
    except KuraError as error:
        return f"none: {error}"
    if found is None:
        return 'none: keyword search only (pip install "kura-rag[e5]" adds one)'
    about = [] if found.dimension is None else [f"{found.dimension} dimensions"]
    about += [f"for {', '.join(found.languages)}"] if found.languages else []
    return f"{found.name} ({'; '.join(about)})" if about else found.name


def _entries(settings: Settings) -> list[Entry]:
    """What there is, on this machine and on servers; a name that is here is not looked for there."""
    here = Catalog(settings.data_dir).entries()
    names = {entry.name for entry in here}
    elsewhere = elsewhere_of(settings)
    if elsewhere is None:
        return here
    with closing(elsewhere):
        there = [entry for entry in elsewhere.entries() if entry.name not in names]
        if elsewhere.fault is not None:
            click.echo(f"the catalog of databases cannot be read: {elsewhere.fault}", err=True)
    return sorted([*here, *there], key=lambda entry: entry.name)


def _named(entry: Entry) -> Described:
    about: Described = {"db": entry.name, "createAt": entry.created_at, "tenant": entry.tenant}
    return about if entry.url is None else {**about, "url": entry.url}


def _described(settings: Settings, entry: Entry) -> Described:
    about = _named(entry)
    try:
        with closing(_open(settings, entry)) as connection:
            require_whole(connection)
            known, counts = state(connection), statistics(connection)
            found = publication(connection) if entry.url is not None else None
            folders = roots(connection)
    except StoreError as error:
        return {**about, "error": str(error)}
    about |= {
        "createAt": known.created_at,
        "sources": counts.sources,
        "chunks": counts.chunks,
        "pending": counts.pending,
        "pendingSince": counts.pending_since,
        "embedder": known.embedder,
        "vectors": _place(settings, entry, known, counts, found),
        "version": known.version,
    }
    if entry.url is not None:
        return {**about, "publishedAt": found.pushed_at if found else None, "folders": [root.label for root in folders]}
    return {
        **about,
        "bytes": (settings.data_dir / entry.file).stat().st_size,
        "folders": [f"{root.label}: {root.path}" if is_here(root) else root.label for root in folders],
    }


def _place(settings: Settings, entry: Entry, known: State, counts: Statistics, found: Publication | None) -> str | None:
    """Where a process with these settings holds the vectors."""
    if known.dimension is None:
        return None
    room = Room(settings.vector_memory, settings.cache_dir if entry.url is None else None)
    place = place_of(counts.vectors, known.dimension, room)
    if place == "server" and (found is None or not found.all_vectors):
        place = "nowhere"
    size = f"{4 * counts.vectors * known.dimension / 1e6:.1f} MB"
    return f"{size} {_PLACES[place]}"


_PLACES: dict[Place, str] = {
    "memory": "in memory",
    "file": "mapped from a file",
    "server": "compared by the server",
    "nowhere": "beyond KURA_VECTOR_MEMORY; publish with --with-vectors, or raise it",
}


def _open(settings: Settings, entry: Entry) -> Connection:
    if entry.url is not None:
        return open_remote(entry.url, tokens_of(settings).of(entry.name))
    return open_for_reading(Catalog(settings.data_dir).path(entry))
