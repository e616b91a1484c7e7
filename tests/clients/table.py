"""The table of clients, transports and operations in docs/clients.md."""

import json
import re
from collections.abc import Iterable, Mapping

from tests.clients.drivers import CLIENT, INSPECTOR, PYTHON, SDK, Driver
from tests.clients.operations import COLUMNS
from tests.clients.servers import ROOT, Transport
from tests.node import toolchain

DOCUMENT = ROOT / "docs" / "clients.md"
NAMES: Mapping[Transport, str] = {"stdio": "stdio", "uvicorn": "HTTP, `kura serve`", "lambda": "HTTP, Lambda events"}

INTRODUCTION = """\
# Clients

Which clients get which answers over which transport. The table is written by `make tables`, from what the clients
really got; the tests fail when a client gets something else than it says here.

✓: the client got exactly what the server says without any client or transport in between: the greeting, the tools
with their schemas, the answers to the letter in text and as structure, the errors with their code and text. –: the
client was not made to ask: the Python client needs no greeting where it is told the revision; the Inspector refuses an
unknown tool by itself, and as it starts anew for every question it gets only a part of them. The column *revision* is
what client and server agreed on.

- stdio: the client starts `kura mcp`.
- HTTP, `kura serve`: one process under uvicorn.
- HTTP, Lambda events: every HTTP request becomes the event that AWS makes of it, and the handler that is deployed
  answers (`python -m local.bridge`).

"""


def versions() -> str:
    """The clients with their versions, as the lock files pin them."""
    packages = json.loads((toolchain.FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]
    python = re.search(r"^mcp==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert python is not None
    pinned = {PYTHON: python[1]} | {
        name: packages[re.sub(r"npm `([^` ]+).*", r"\1", name)] for name in (CLIENT, SDK, INSPECTOR)
    }
    return "".join(f"- {name}: {version}\n" for name, version in pinned.items())


def row(driver: Driver, transport: Transport, found: Mapping[str, str]) -> str:
    """One line of the table."""
    cells = ["–" if column not in found else "**no**" if found[column] else "✓" for column in COLUMNS]
    return _line([driver.client, driver.era, NAMES[transport], driver.protocol_version, *cells])


def document(rows: Iterable[str]) -> str:
    """The whole page."""
    head = ["client", "era asked for", "transport", "revision", *COLUMNS]
    return INTRODUCTION + versions() + "\n" + "".join([_line(head), _line(["---"] * len(head)), *rows])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
