"""The root command, how errors end a process, and what every command has in common.

Exit codes: 0 done; 1 it did not work, stderr has one line that says why; 2 the command line itself is wrong; 3 `kura
index` went through but left something out, each named on stderr; 130 interrupted with Ctrl-C.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kura import __version__
from kura.errors import KuraError
from kura.vectors.blas import one_blas_thread

F = TypeVar("F", bound=Callable[..., Any])

FAILED = 1
INCOMPLETE = 3
INTERRUPTED = 130

LOCK_PATIENCE = 2.0
"""Seconds to wait for another process that is indexing before a person is told."""

_COMMANDS = {
    "add": "databases",
    "list": "databases",
    "rename": "databases",
    "remove": "databases",
    "status": "databases",
    "index": "indexing",
    "search": "asking",
    "serve": "serving",
    "mcp": "serving",
    "port": "serving",
    "push": "publishing",
    "pull": "publishing",
    "rollback": "publishing",
    "backup": "publishing",
    "sql": "tables",
    "policy": "tables",
    "keys": "keys",
    "model": "models",
}


class Lazy(click.Group):
    """A group whose commands live in modules that are imported only when one of them is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands, in the order in which a person meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """The command of that name, imported now."""
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        return cast(click.Command, getattr(importlib.import_module(f"kura.cli.{module}"), f"{cmd_name}_command"))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kura")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where databases live. [default: KURA_DATA_DIR, else the user's data directory]",
)
@click.pass_context
def kura(ctx: click.Context, data_dir: Path | None) -> None:
    """Index folders of files and serve them to AI agents over MCP.

    \b
    Start here:
      kura add notes                 create a database
      kura index notes ./docs        index a folder into it
      kura search notes "question"   ask it yourself
      kura mcp                       what an MCP client starts

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 indexed but something was left out, 130 interrupted.
    """  # noqa: D301 - click wants the character itself
    ctx.obj = data_dir


def data_dir_option(command: F) -> F:
    """Let `--data-dir` stand behind the command too; there it has precedence."""

    def keep(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
        if value is not None:
            ctx.obj = value

    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=keep,
        help="Where databases live.",
    )(command)


def json_option(command: F) -> F:
    """Let a script ask for JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: object) -> None:
    """Print a value for scripts: one JSON document, readable, not escaped."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def clean(text: str) -> str:
    """An argument as the text it was meant to be: bytes that are no UTF-8 become U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def run() -> None:
    """Run the root command and exit with its code."""
    one_blas_thread()
    try:
        code = kura.main(standalone_mode=False)
    except KuraError as error:
        click.echo(f"kura: {error}", err=True)
        code = FAILED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("kura: interrupted", err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as error:
        if os.environ.get("KURA_LOG_LEVEL") == "debug":
            raise
        kind = type(error).__name__
        click.echo(f"kura: unexpected {kind}, which is a fault of Kura's; KURA_LOG_LEVEL=debug shows where", err=True)
        code = FAILED
    sys.exit(code if isinstance(code, int) else 0)
