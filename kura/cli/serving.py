"""Commands that serve: mcp, serve, port."""

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import click

from kura import __version__
from kura.cli.root import data_dir_option
from kura.errors import ArgumentError, ConfigurationError, StoreError
from kura.settings import Settings, read_settings

DEFAULT_PORT = 8080
PORT_FILE = "port"


def session_options(command: click.decorators.FC) -> click.decorators.FC:
    """Let the person who starts a process say for whom."""
    command = click.option("--user", help="The user that every call is made for. [default: KURA_USER]")(command)
    return click.option("--tenant", help="The tenant that every call is made for. [default: KURA_TENANT]")(command)


def writes_option(command: click.decorators.FC) -> click.decorators.FC:
    """Let the person who starts a process switch on writing."""
    return click.option(
        "--allow-writes",
        "allow_writes",
        multiple=True,
        metavar="NAME",
        help="Let agents insert, update and delete rows of the tables in this database, within its policies; may be"
        " given again. [default: KURA_ALLOW_WRITES]",
    )(command)


@click.command("mcp")
@writes_option
@session_options
@data_dir_option
@click.pass_obj
def mcp_command(data_dir: Path | None, tenant: str | None, user: str | None, allow_writes: tuple[str, ...]) -> None:
    """Serve an MCP client on standard input and output. The client starts this by itself.

    Without --tenant and --user, the tenant_id and user_id that a call gives are believed: the client owns the process.
    """
    settings = _settings(data_dir, tenant, user, allow_writes)
    from kura.cli.library import open_library
    from kura.serve.mcp import build_server
    from kura.serve.stdio import serve_stdio
    from kura.types import Principal

    principal = Principal(tenant=settings.tenant, user=settings.user, believed=True)
    library, flush = open_library(settings), _traced(settings)
    library.start()
    serve_stdio(
        build_server(library, lambda _request: principal, version=__version__, log_queries=settings.log_queries)
    )
    library.close()
    if flush is not None:
        flush()


@click.command("serve")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one. [default: the pinned port, else 8080]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@writes_option
@session_options
@data_dir_option
@click.pass_obj
def serve_command(
    data_dir: Path | None,
    port: int | None,
    host: str,
    tenant: str | None,
    user: str | None,
    allow_writes: tuple[str, ...],
) -> None:
    """Serve MCP at POST /mcp, and REST below /api, until stopped.

    While it runs, the file `endpoint` in the data directory holds its URL. On an address that other machines reach it
    starts only where something says who may come in: keys (`kura keys`, KURA_KEYS, KURA_KEY_HASH), authorization
    servers (KURA_OAUTH_ISSUERS), or KURA_PUBLIC=true.
    """
    settings = _settings(data_dir, tenant, user, allow_writes)
    from kura.chosen import elsewhere_of, ring_of, trust_of
    from kura.cli.library import open_library
    from kura.serve.http import serve_http
    from kura.store.catalog import Catalog

    elsewhere = elsewhere_of(settings)
    ring, trust = ring_of(settings, Catalog(settings.data_dir), elsewhere), trust_of(settings)
    flush = _traced(settings)
    library = open_library(settings, elsewhere=elsewhere)
    library.start()
    try:
        serve_http(
            library,
            data_dir=settings.data_dir,
            version=__version__,
            host=host,
            port=port if port is not None else pinned_port(settings.data_dir) or DEFAULT_PORT,
            key_hash=settings.key_hash,
            public=settings.public,
            tenant=settings.tenant,
            user=settings.user,
            ring=ring,
            trust=trust,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            seconds=settings.request_seconds,
            requests_a_minute=settings.rate_limit,
            log_queries=settings.log_queries,
            traced=flush is not None,
            ready=lambda url: click.echo(f"serving {url}/mcp (Ctrl-C stops)", err=True),
        )
    finally:
        library.close()
        if flush is not None:
            flush()


@click.group("port")
def port_command() -> None:
    """Pin the port that `kura serve` listens on."""


@port_command.command("set")
@click.argument("number", type=click.IntRange(1, 65535))
@data_dir_option
@click.pass_obj
def set_command(data_dir: Path | None, number: int) -> None:
    """Pin the port to NUMBER."""
    settings = read_settings(data_dir=data_dir)
    with _changing_files():
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        (settings.data_dir / PORT_FILE).write_text(f"{number}\n", encoding="utf-8")
    click.echo(f"kura serve listens on port {number} from its next start")


@port_command.command("clear")
@data_dir_option
@click.pass_obj
def clear_command(data_dir: Path | None) -> None:
    """Go back to the default port."""
    with _changing_files():
        (read_settings(data_dir=data_dir).data_dir / PORT_FILE).unlink(missing_ok=True)
    click.echo(f"kura serve listens on port {DEFAULT_PORT} from its next start")


def pinned_port(data_dir: Path) -> int | None:
    """The port that was pinned, or None.

    Raises:
        ArgumentError: if the file does not hold a port.
    """
    try:
        text = (data_dir / PORT_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentError("the pinned port is not a number from 1 to 65535; set it again with: kura port set N")
    return int(text)


def _traced(settings: Settings) -> Callable[[], None] | None:
    """Send traces where the settings say; returns what sends the last ones.

    Raises:
        ConfigurationError: if what sends them is not installed.
    """
    if settings.traces_to is None:
        return None
    try:
        from kura.serve.tracing import trace_to
    except ImportError:
        raise ConfigurationError('KURA_TRACES_TO needs the extra "traces": pip install "kura-rag[traces]"') from None
    return trace_to(settings.traces_to.get_secret_value(), __version__)


@contextmanager
def _changing_files() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the data directory cannot be changed: {error.strerror}") from error


def _settings(
    data_dir: Path | None, tenant: str | None, user: str | None, allow_writes: tuple[str, ...] = ()
) -> Settings:
    settings = read_settings(data_dir=data_dir, tenant=tenant, user=user, allow_writes=allow_writes or None)
    logging.basicConfig(stream=sys.stderr, level=settings.log_level.upper(), format="kura: %(message)s")
    return settings
