"""Commands on API keys: create, list, revoke, rotate, export."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import click

from kura.access.keys import expiry, is_valid, make_key, overlap, successor, write_keys
from kura.cli.root import clean, data_dir_option, json_option, print_json
from kura.errors import ArgumentError, ConfigurationError
from kura.settings import read_settings
from kura.store.catalog import Catalog, legal_name
from kura.store.engine import Connection
from kura.store.keys import Key, add_key, keys_of, labels_of, replace_key, revoke_key
from kura.store.migrations import now
from kura.types import SCOPES, Scope

ONCE = "this is the only time that it is shown; only its hash is kept"

catalog_option = click.option(
    "--catalog",
    "on_server",
    is_flag=True,
    help="In the catalog on a server (KURA_CATALOG), for all processes that read it. [default: this machine's]",
)


@click.group("keys")
def keys_command() -> None:
    """Say who may call a server, and what each of them sees.

    A caller sends its key as `Authorization: Bearer KEY`. Once there is any key at all, servers ask for one within ten
    seconds, unless KURA_PUBLIC=true lets everyone read; keys then open more than that.
    Running servers take a new key within a second, and refuse a revoked one after ten seconds at most.
    """


@keys_command.command("create")
@click.argument("label")
@click.option("--tenant", help="It sees this tenant's databases besides those of nobody. [default: only the latter]")
@click.option("--user", help="The user it acts for, in row-level policies.")
@click.option("--db", "databases", multiple=True, metavar="NAME", help="Limit it to this database; may be given again.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(SCOPES)),
    help="What it is good for; may be given again. [default: search and sql]",
)
@click.option("--expires", default="90d", show_default=True, help="When it ends: 90d, 12h, a date, or never.")
@catalog_option
@json_option
@data_dir_option
@click.pass_obj
def create_command(
    data_dir: Path | None,
    label: str,
    tenant: str | None,
    user: str | None,
    databases: tuple[str, ...],
    scopes: tuple[str, ...],
    expires: str,
    *,
    on_server: bool,
    as_json: bool,
) -> None:
    """Make a key for whom or what LABEL says, and show it once."""
    for name, value in (("LABEL", label), ("--tenant", tenant), ("--user", user)):
        if value is not None and not (value.strip() and len(value) <= 200 and value.isprintable()):
            raise ArgumentError(f"invalid argument: {name} must be text of 1 to 200 characters, in one line")
    text, key = make_key(
        clean(label),
        tenant=None if tenant is None else clean(tenant),
        user=None if user is None else clean(user),
        databases=frozenset(legal_name(clean(name)) for name in databases) or None,
        scopes=frozenset(cast("tuple[Scope, ...]", scopes)) or frozenset({"search", "sql"}),
        expires_at=expiry(expires),
    )
    with _keeping(data_dir, on_server=on_server) as connection:
        add_key(connection, key)
    _show(text, key, as_json=as_json)


@keys_command.command("list")
@catalog_option
@json_option
@data_dir_option
@click.pass_obj
def list_command(data_dir: Path | None, *, on_server: bool, as_json: bool) -> None:
    """List the keys, valid or not; never the keys themselves."""
    kept = _kept(data_dir, on_server=on_server)
    if as_json:
        print_json([_described(key) for key in kept])
        return
    if not kept:
        click.echo("no keys yet; make one with: kura keys create LABEL", err=True)
    for key in kept:
        click.echo("\t".join([key.id, key.label, _state(key), *_opens(key)]))


@keys_command.command("revoke")
@click.argument("id")
@catalog_option
@data_dir_option
@click.pass_obj
def revoke_command(data_dir: Path | None, id: str, *, on_server: bool) -> None:  # noqa: A002 - the argument's name
    """Take back the key ID, at once and for good."""
    with _keeping(data_dir, on_server=on_server) as connection:
        labels = labels_of(connection)
        name = _known(labels, id)
        revoke_key(connection, name, now())
    click.echo(f'revoked "{name}" ({labels[name]}); running servers refuse it after ten seconds at most')


@keys_command.command("rotate")
@click.argument("id")
@click.option(
    "--overlap", "span", default="24h", show_default=True, help="For how long the old one is valid too: 24h, 7d, 0."
)
@catalog_option
@json_option
@data_dir_option
@click.pass_obj
def rotate_command(
    data_dir: Path | None,
    id: str,  # noqa: A002 - the argument's name
    span: str,
    *,
    on_server: bool,
    as_json: bool,
) -> None:
    """Make a key that opens what the key ID does, and let that one end."""
    with _keeping(data_dir, on_server=on_server) as connection:
        text, new, old = successor(_found(keys_of(connection), id), overlap(span))
        replace_key(connection, new, old)
    _show(text, new, as_json=as_json)
    click.echo(f'the old key "{old.id}" is valid until {old.expires_at}', err=True)


@keys_command.command("export")
@catalog_option
@data_dir_option
@click.pass_obj
def export_command(data_dir: Path | None, *, on_server: bool) -> None:
    """Print the valid keys as KURA_KEYS takes them, for servers that read no catalog; it holds hashes, no keys."""
    click.echo(write_keys([key for key in _kept(data_dir, on_server=on_server) if is_valid(key)]))


@contextmanager
def _keeping(data_dir: Path | None, *, on_server: bool) -> Generator[Connection]:
    settings = read_settings(data_dir=data_dir)
    if not on_server:
        with Catalog(settings.data_dir).writing() as connection:
            yield connection
        return
    from kura.chosen import tokens_of
    from kura.store.elsewhere import CATALOG
    from kura.store.remote import open_remote

    if settings.catalog is None:
        raise ConfigurationError("--catalog needs KURA_CATALOG, the URL of the catalog's database on a server")
    with closing(open_remote(settings.catalog, tokens_of(settings).of(CATALOG))) as remote:
        yield remote


def _kept(data_dir: Path | None, *, on_server: bool) -> list[Key]:
    if not on_server:
        return Catalog(read_settings(data_dir=data_dir).data_dir).keys()
    with _keeping(data_dir, on_server=True) as connection:
        return keys_of(connection)


def _found(keys: list[Key], id: str) -> Key:  # noqa: A002 - as above
    name = _known({key.id: key.label for key in keys}, id)
    return next(key for key in keys if key.id == name)


def _known(labels: dict[str, str], id: str) -> str:  # noqa: A002 - as above
    name = clean(id)
    if name in labels:
        return name
    known = ", ".join(f'"{each}" ({label})' for each, label in labels.items()) or "there are none"
    raise ArgumentError(f"invalid argument: there is no key of that id; known: {known}")


def _show(text: str, key: Key, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": text} | _described(key))
        return
    click.echo(text)
    click.echo(f'key "{key.id}" for {key.label}: {"; ".join([_state(key), *_opens(key)])}; {ONCE}', err=True)


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at}"
    if not is_valid(key):
        return f"expired {key.expires_at}"
    return f"until {key.expires_at}" if key.expires_at else "never expires"


def _opens(key: Key) -> list[str]:
    whose = [f"tenant {key.tenant}"] if key.tenant else ["databases of nobody"]
    whose += [f"user {key.user}"] if key.user else []
    limited = [f"only {', '.join(sorted(key.databases))}"] if key.databases is not None else []
    return [*whose, *limited, " ".join(sorted(key.scopes))]


def _described(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "label": key.label,
        "valid": is_valid(key),
        "tenant": key.tenant,
        "user": key.user,
        "databases": None if key.databases is None else sorted(key.databases),
        "scopes": sorted(key.scopes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }
