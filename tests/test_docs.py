"""The documentation names all that there is, and nothing that there is not."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kura.cli.root import kura as root
from kura.serve.sql_tools import tools_of
from kura.settings import Settings
from kura.types import Rules

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(root))


def test_every_setting_is_documented_with_its_default():
    documented = dict(re.findall(r"^\| `KURA_([A-Z_]+)` \|(.*?)\|", README, re.MULTILINE))
    assert {name.upper() for name in Settings.model_fields} == set(documented)
    for name, field in Settings.model_fields.items():
        shown = documented[name.upper()].strip(" `")
        if isinstance(field.default, bool):
            assert shown == str(field.default).lower(), name
        elif isinstance(field.default, int | float | str):
            default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert shown == default, name


def test_every_command_is_documented():
    documented = {tuple(words.split()) for words in re.findall(r"`kura ((?:[a-z]+ ?)+)", README)}
    table = {" ".join(words) for words in documented}
    for path, command in COMMANDS.items():
        if not isinstance(command, click.Group):
            assert any(entry.startswith(" ".join(path)) for entry in table), path


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_every_command_and_option_has_help(path: tuple[str, ...]):
    command = COMMANDS[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_every_command_that_the_readme_shows_exists():
    shown = re.findall(r"^\$ (?:[A-Z_]+=\S+ )*kura ([a-z]+)", README, re.MULTILINE)
    assert shown
    assert {path[0] for path in COMMANDS} >= set(shown)


def test_every_tool_is_documented():
    documented = re.findall(r"^\| `(query|[a-z]+_[a-z]+)` \|", README, re.MULTILINE)
    assert [tool.name for tool in tools_of(Rules())] == documented
