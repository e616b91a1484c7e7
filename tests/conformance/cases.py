"""Which scenarios count for which server, and which failures are known, with their reasons."""

import re
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from kura.access.keys import hash_key
from tests.clients.servers import HTTP, environment, serving
from tests.conformance.suite import Revision, Verdicts, required, unexpected

Subject = Literal["product", "keyed", "fixtures"]
Hosting = Literal["uvicorn", "lambda"]
SUBJECTS: tuple[Subject, ...] = ("product", "keyed", "fixtures")
HOSTINGS: tuple[Hosting, ...] = ("uvicorn", "lambda")

_KEY = "a-key-for-the-suite"

EXPECTED = Path(__file__).resolve().parent / "expected-failures"

_WITHOUT_FIXTURES: dict[Revision, tuple[str, ...]] = {
    "2025-11-25": (
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "server-stateless",
        "tools-list",
        "resources-list",
        "prompts-list",
        "sep-2164-resource-not-found",
        "caching",
        "dns-rebinding-protection",
        "server-sse-multiple-streams",
        "input-required-result-unsupported-methods",
        "http-header-validation",
    ),
}
# The suite does not require these yet, because its own example fails them.
_PENDING: dict[Revision, tuple[str, ...]] = {
    "2025-11-25": ("json-schema-2020-12",),
    "2026-07-28": ("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
}


def scenarios(subject: Subject, revision: Revision) -> list[str]:
    """What is judged: of the product, all that needs no fixtures; of the fixtures, all that the revision requires."""
    if subject == "fixtures":
        return [*required(revision), *_PENDING[revision]]
    return list(_WITHOUT_FIXTURES[revision])


def excuses(subject: Subject, revision: Revision) -> dict[str, str]:
    """The known failures, scenarios or `scenario:check`, each with its reason: the comment above it."""
    known = "product" if subject == "keyed" else subject
    file = EXPECTED / f"{known}-{revision}.yml"
    if not file.exists():
        return {}
    found: dict[str, str] = {}
    reason: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if comment := re.fullmatch(r"  # (.+)", line):
            reason.append(comment[1])
        elif entry := re.fullmatch(r"  - (\S+)", line):
            found[entry[1]] = " ".join(reason)
            reason = []
    return found


def outcome(verdicts: Verdicts, scenario: str, excused: dict[str, str]) -> str:
    """What the table says about a scenario."""
    if unexpected(verdicts, scenario, ()) and scenario in excused:
        return "known failure"
    if unexpected(verdicts, scenario, excused):
        return "**failed**"
    return "✓, but for known failures" if unexpected(verdicts, scenario, ()) else "✓"


def stale(verdicts: Verdicts, excused: dict[str, str]) -> set[str]:
    """The known failures that fail no longer."""
    return {entry for entry in excused if not _fails(verdicts, entry)}


def _fails(verdicts: Verdicts, entry: str) -> bool:
    scenario, _, check = entry.partition(":")
    found = unexpected(verdicts, scenario, ())
    return check in found if check else bool(found)


@contextmanager
def hosted(subject: Subject, hosting: Hosting, data_dir: Path) -> Generator[str]:
    """A server to be judged, for the time of the block: its endpoint."""
    here = [sys.executable, "-m"]
    fixtures = [*here, "tests.conformance.fixture_server", hosting]
    environ = environment(data_dir)
    if subject == "keyed":
        environ |= {"KURA_PUBLIC": "false", "KURA_KEY_HASH": hash_key(_KEY)}
    with ExitStack() as stack:
        url = stack.enter_context(serving(fixtures if subject == "fixtures" else HTTP[hosting], environ))
        if subject == "keyed":
            url = stack.enter_context(serving([*here, "tests.conformance.keyed", url, _KEY], environ))
        yield f"{url}/mcp"
