"""Commands on the embedding model: model build, model show."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kura.cli.root import data_dir_option, json_option, print_json
from kura.errors import ConfigurationError
from kura.settings import read_settings

if TYPE_CHECKING:
    from kura.embed.prepared import Prepared


@click.group("model")
def model_command() -> None:
    """Make and look at files of the embedding model, for deployments."""


@model_command.command("build")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where to write it. A file that is there is replaced only if it is a model file.",
)
@click.option("--languages", metavar="CODES", help="Keep what texts of these need, such as en,zh. [default: all]")
@data_dir_option
@click.pass_obj
def build_command(data_dir: Path | None, out: Path, languages: str | None) -> None:
    """Write a model file that needs no other package, smaller if languages are named.

    Texts of these languages have the same vectors as with the full model: index with the one, serve with the other.
    """
    from kura.embed.languages import parse_languages
    from kura.embed.prune import build
    from kura.embed.weights import prepared_file

    settings = read_settings(data_dir=data_dir)
    codes = parse_languages(languages) if languages is not None else ()
    out = out.absolute()
    built = build(prepared_file(settings.cache_dir), out, codes)
    click.echo(f"wrote {out}")
    _show(built)
    click.echo(f"use it with     KURA_MODEL_FILE={out}")


@model_command.command("show")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@json_option
@data_dir_option
@click.pass_obj
def show_command(data_dir: Path | None, file: Path | None, as_json: bool) -> None:
    """Show what the model FILE holds; without FILE, the one in use."""
    from kura.embed.prepared import open_prepared
    from kura.embed.weights import find_prepared

    settings = read_settings(data_dir=data_dir)
    file = file or settings.model_file or find_prepared(settings.cache_dir)
    if file is None:
        raise ConfigurationError("no model file is there yet; the first use of the embedder e5 makes it")
    opened = open_prepared(file)
    if as_json:
        print_json({"file": str(file), **_described(opened)})
        return
    click.echo(f"file            {file}")
    _show(opened)


def _described(opened: "Prepared") -> dict[str, str | int | list[str] | None]:
    model = opened.model
    return {
        "name": model.name,
        "dimensions": model.dimension,
        "languages": list(model.languages) or None,
        "pieces": opened.pieces,
        "bytes": opened.size,
    }


def _show(opened: "Prepared") -> None:
    model = opened.model
    click.echo(f"name            {model.name}")
    click.echo(f"dimensions      {model.dimension}")
    click.echo(f"languages       {', '.join(model.languages) or 'all'}")
    click.echo(f"pieces          {opened.pieces:,}")
    click.echo(f"size            {opened.size / 1e6:.1f} MB")
