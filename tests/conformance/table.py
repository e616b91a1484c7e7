"""The tables in docs/conformance.md."""

import json
from collections.abc import Mapping

from tests.clients.servers import ROOT
from tests.conformance.cases import HOSTINGS, SUBJECTS, Hosting, Subject, excuses, scenarios
from tests.conformance.suite import REVISIONS, Revision
from tests.node import toolchain

DOCUMENT = ROOT / "docs" / "conformance.md"
PACKAGE = "@modelcontextprotocol/conformance"

Column = tuple[Subject, Revision, Hosting]
Cells = Mapping[str, str]
"""By scenario, what the table says."""

_INTRODUCTION = """\
# Conformance

What the protocol's own conformance suite says about Kura:
npm `{package}` {version}.
The tables are written by `make tables`, from what the suite really found; the tests fail when it finds something else
than it says here.

Each revision runs at its own wire version, against `kura serve` (*uvicorn*) and against the handler that is deployed
to AWS Lambda, driven by events (*lambda*, `python -m local.bridge`). ✓: all checks of the scenario passed, and there
were some; a scenario in which nothing was checked counts as failed.
"""
_PRODUCT = """\
## The product's server

All scenarios that need no tools, resources or prompts made for the suite.
"""
_KEYED = """\
## The product's server, where a key is required

The same scenarios; what passes between suite and server gets the key on its way (`tests/conformance/keyed.py`), since
the suite has none to send.
"""
_FIXTURES = """\
## The suite's fixtures, behind the product's endpoint

All scenarios that the revision requires of a server, and those that the suite is going to require. The tools, resources
and prompts that the suite asks for are on a server for tests alone (`tests/conformance/fixtures.py`), which shares with
the product everything between HTTP and the SDK's server.
"""
_HEADS: Mapping[Subject, str] = {"product": _PRODUCT, "keyed": _KEYED, "fixtures": _FIXTURES}


def document(columns: Mapping[Column, Cells]) -> str:
    """The whole page."""
    version = json.loads((toolchain.FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"][PACKAGE]
    parts = [_INTRODUCTION.format(package=PACKAGE, version=version)]
    for subject in SUBJECTS:
        parts.append(_HEADS[subject])
        parts += [_section(subject, revision, columns) for revision in REVISIONS]
    return "\n".join(parts)


def committed(column: Column) -> dict[str, str]:
    """What the page says in one column."""
    subject, revision, hosting = column
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.split(_HEADS[subject])[1].split(f"### {revision}\n")[1].split("\n#")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    return {row[0].strip("`"): row[1 + HOSTINGS.index(hosting)] for row in rows[2:]}


def _section(subject: Subject, revision: Revision, columns: Mapping[Column, Cells]) -> str:
    found = [columns[subject, revision, hosting] for hosting in HOSTINGS]
    rows = [[f"`{scenario}`", *(cells[scenario] for cells in found)] for scenario in scenarios(subject, revision)]
    lines = [_line(row) for row in (["scenario", *HOSTINGS], ["---"] * 3, *rows)]
    known = [f"- `{entry}`: {reason}\n" for entry, reason in excuses(subject, revision).items()]
    return f"### {revision}\n\n" + "".join(lines) + ("\nKnown failures:\n\n" + "".join(known) if known else "")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
