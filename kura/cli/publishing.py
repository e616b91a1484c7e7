"""Commands between a local database and a server: push, pull, rollback, and a copy to keep."""

import secrets
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kura.chosen import elsewhere_of, tokens_of
from kura.cli.root import LOCK_PATIENCE, clean, data_dir_option
from kura.errors import ArgumentError, Busy, EmbedderMismatch, StoreError, UnknownDatabase
from kura.ingest.roots import writing
from kura.settings import Settings, read_settings
from kura.store.address import address
from kura.store.catalog import Catalog, Entry
from kura.store.elsewhere import CATALOG, enter, leave
from kura.store.engine import Connection
from kura.store.lock import publishing
from kura.store.migrations import MIGRATIONS, applied_version
from kura.store.publish.descent import changed_since, confirm, intend, last_address, owner
from kura.store.publish.plan import Plan, owned_by, plan
from kura.store.publish.published import publication, remove
from kura.store.publish.pull import pull
from kura.store.publish.push import push, rollback
from kura.store.publish.tables import push_tables
from kura.store.remote import open_remote
from kura.store.sources import state
from kura.store.sqlite import copy_to, open_for_reading, open_for_writing

Progress = Callable[[int, int], None]

to_option = click.option(
    "--to",
    "url",
    help="The server's database: libsql://, https:// or http://."
    " [default: the one in KURA_DATABASES, else the one of the last push or pull]",
)


@click.command("push")
@click.argument("name")
@to_option
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--force", is_flag=True, help="Replace what somebody else has published there.")
@click.option("--upgrade", is_flag=True, help="Publish although running servers need another embedder or a newer Kura.")
@click.option(
    "--with-vectors", is_flag=True, help="Send each vector unpacked too, for servers that compare them themselves."
)
@click.option("--table", "tables", multiple=True, help="Publish this table of yours too, whole; can be repeated.")
@data_dir_option
@click.pass_obj
def push_command(
    data_dir: Path | None,
    name: str,
    url: str | None,
    tables: tuple[str, ...],
    *,
    dry_run: bool,
    force: bool,
    upgrade: bool,
    with_vectors: bool,
) -> None:
    """Publish the database NAME to a libSQL server, such as Turso. Only what changed travels.

    Whoever reads there sees all of a push or nothing of it. One that was interrupted goes on where it was.
    """
    settings = read_settings(data_dir=data_dir)
    catalog = Catalog(settings.data_dir)
    entry = catalog.find(clean(name))
    path = catalog.path(entry)
    with publishing(path):
        whose, known = _descent(path)
        target = _target(settings, entry.name, url, known)
        with (
            _server(settings, entry.name, target) as remote,
            closing(open_for_reading(path)) as local,
            local.transaction(write=False),
        ):
            planned = plan(local, remote, all_vectors=with_vectors, force=force, upgrade=upgrade)
            _say(entry.name, planned)
            if dry_run:
                return
            if planned.how != "nothing":
                token = secrets.token_hex(16)
                with closing(open_for_writing(path)) as connection:
                    intend(connection, token, target, local)
                with _bar("publishing") as progress:
                    push(local, remote, planned, token, whose, progress)
                _confirm(path, token, local)
                click.echo(f'published "{entry.name}" to {target}')
            elif planned.base is not None:
                _confirm(path, planned.base.token, local)
            if tables:
                with _bar("publishing tables") as progress:
                    push_tables(local, remote, tables, progress, force=force)
                click.echo(f"published {', '.join(tables)}")
        _enter(settings, entry, target)


@click.command("pull")
@click.argument("name")
@click.option("--from", "url", help="The server's database. [default: as for kura push]")
@click.option("--tenant", help="Where NAME is not there yet: only sessions of this tenant see it.")
@click.option("--force", is_flag=True, help="Discard what was indexed here and not published.")
@click.option("--or-add", is_flag=True, help="Where nothing is published yet, leave an empty database.")
@data_dir_option
@click.pass_obj
def pull_command(
    data_dir: Path | None, name: str, url: str | None, tenant: str | None, *, force: bool, or_add: bool
) -> None:
    """Fetch what is published into the database NAME, which is created where it is not there.

    Index into it and push: only what changed travels. Folders are taken up again by `kura index NAME PATH`.
    """
    settings = read_settings(data_dir=data_dir)
    catalog = Catalog(settings.data_dir)
    wanted, owned = clean(name), clean(tenant) if tenant is not None else None
    target = _target(settings, wanted, url, _known_address(settings, wanted))
    with _server(settings, wanted, target) as remote:
        there = publication(remote)
        if there is None and not or_add:
            raise StoreError("nothing is published there")
        if there is not None:
            owner_there = state(remote).tenant
            if owned is not None:
                _require_owner(owner_there, owned, "with --tenant it would belong")
            owned = owner_there
        entry, fresh = _found_or_added(catalog, wanted, owned)
        done = False
        try:
            if there is not None and not fresh:
                _require_owner(owned, entry.tenant, "the database here")
            path = catalog.path(entry)
            with publishing(path), writing(path, patience=LOCK_PATIENCE) as local, _bar("fetching") as progress:
                if not force and changed_since(local):
                    raise ArgumentError(
                        f'invalid argument: "{entry.name}" holds what was not published; push it, or add --force'
                    )
                found = None if there is None else pull(remote, local, target, progress)
            done = True
        finally:
            if fresh and not done:
                catalog.remove(entry.name)
    if found is None:
        click.echo(f'nothing is published yet; "{entry.name}" is empty')
    else:
        click.echo(f'fetched "{entry.name}" as published {found.pushed_at}')


@click.command("rollback")
@click.argument("name")
@to_option
@data_dir_option
@click.pass_obj
def rollback_command(data_dir: Path | None, name: str, url: str | None) -> None:
    """Return what is published of NAME to the push before the last one. The server keeps one step back.

    The database here stays as it is: index what should be there instead, and push again.
    """
    settings = read_settings(data_dir=data_dir)
    target = _target(settings, clean(name), url, _known_address(settings, clean(name)))
    with _server(settings, clean(name), target) as remote:
        back = rollback(remote)
    click.echo(f'readers of "{clean(name)}" see the push of {back.pushed_at} again')


@click.command("backup")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_dir_option
@click.pass_obj
def backup_command(data_dir: Path | None, name: str, file: Path) -> None:
    """Write a copy of the database NAME to FILE, whole at one moment, while others read and index."""
    catalog = Catalog(read_settings(data_dir=data_dir).data_dir)
    entry = catalog.find(clean(name))
    copy_to(catalog.path(entry), file)
    click.echo(f'copied "{entry.name}" to {file}')


def remove_published(settings: Settings, name: str, url: str | None, *, ask: Callable[[str], None]) -> None:
    """Take what is published of a database off its server; the local one and other tables there stay."""
    target = _target(settings, name, url, _known_address(settings, name))
    ask(target)
    with _server(settings, name, target) as remote:
        remove(remote)
    if settings.catalog is not None:
        with _server(settings, CATALOG, address(settings.catalog)) as catalog:
            leave(catalog, name)
    click.echo(f'removed what was published of "{name}" from {target}')


def _enter(settings: Settings, entry: Entry, target: str) -> None:
    """Name what was published in the catalog on a server, where one is set."""
    if settings.catalog is not None:
        with _server(settings, CATALOG, address(settings.catalog)) as catalog:
            enter(catalog, entry, target)


def _descent(path: Path) -> tuple[str, str | None]:
    """What tells this database's pushes from those of others, and where it was last published."""
    with closing(open_for_writing(path)) as connection:
        if applied_version(connection) == MIGRATIONS[-1].version:
            return owner(connection), last_address(connection)
    # Only one that indexing would bring to the newest schema too has to wait until nobody indexes.
    with writing(path, patience=LOCK_PATIENCE) as connection:
        return owner(connection), last_address(connection)


def _require_owner(there: str | None, given: str | None, whose: str) -> None:
    if given != there:
        raise ArgumentError(
            f"invalid argument: what is published belongs to {owned_by(there)}, {whose} to {owned_by(given)}"
        )


def _confirm(path: Path, token: str, view: Connection) -> None:
    # Others may be indexing by now. Where they keep it locked, the next push finds nothing to send and notes it.
    with suppress(Busy), closing(open_for_writing(path)) as connection:
        confirm(connection, token, view)


def _known_address(settings: Settings, name: str) -> str | None:
    catalog = Catalog(settings.data_dir)
    try:
        path = catalog.path(catalog.find(name))
    except UnknownDatabase:
        return None  # it may be published from elsewhere
    with closing(open_for_reading(path)) as local:
        return last_address(local)


def _target(settings: Settings, name: str, given: str | None, last: str | None) -> str:
    if given is not None:
        return address(given)
    set_there = [entry.url for entry in _elsewhere(settings) if entry.name == name]
    url = set_there[0] if set_there else last
    if url is None:
        raise ArgumentError(f'invalid argument: it is not known where "{name}" is published; name its URL')
    return url


def _elsewhere(settings: Settings) -> list[Entry]:
    elsewhere = elsewhere_of(settings)
    if elsewhere is None:
        return []
    with closing(elsewhere):
        return elsewhere.entries()


@contextmanager
def _server(settings: Settings, name: str, target: str) -> Generator[Connection]:
    try:
        with closing(open_remote(target, tokens_of(settings).of(name))) as remote:
            yield remote
    except (StoreError, EmbedderMismatch) as error:
        raise type(error)(f'database "{name}": {error}') from error


def _found_or_added(catalog: Catalog, name: str, tenant: str | None) -> tuple[Entry, bool]:
    try:
        return catalog.find(name), False
    except UnknownDatabase:
        return catalog.add(name, tenant), True


def _say(name: str, planned: Plan) -> None:
    if planned.how == "nothing":
        click.echo(f'"{name}" is published as it is; nothing to send')
        return
    changes = [
        f"{what} {len(planned.changes[table].added)} to send, {len(planned.changes[table].removed)} to remove"
        for table, what in (("sources", "sources:"), ("chunks", "passages:"), ("chunk_vectors", "vectors:"))
    ]
    click.echo(f"{'; '.join(changes)} (about {planned.size / 1e6:.1f} MB)")


@contextmanager
def _bar(label: str) -> Generator[Progress]:
    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    bar: Any = None

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = click.progressbar(length=total, file=sys.stderr, show_pos=True, label=label)
            bar.__enter__()
        bar.update(done - bar.pos)

    try:
        yield show
    finally:
        if bar is not None:
            bar.__exit__(None, None, None)
