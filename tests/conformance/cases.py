"""Which scenarios count for which server, and which failures are known, with their reasons."""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.clients.servers import HTTP, environment, serving
from tests.conformance.suite import Revision, Verdicts, required, unexpected

Subject = Literal["product", "fixtures"]
Hosting = Literal["uvicorn", "lambda"]
SUBJECTS: tuple[Subject, ...] = ("product", "fixtures")
HOSTINGS: tuple[Hosting, ...] = ("uvicorn", "lambda")

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
    if subject == "product":
        return list(_WITHOUT_FIXTURES[revision])
    return [*required(revision), *_PENDING[revision]]


def excuses(subject: Subject, revision: Revision) -> dict[str, str]:
    """The known failures, scenarios or `scenario:check`, each with its reason: the comment above it."""
    file = EXPECTED / f"{subject}-{revision}.yml"
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
    fixtures = [sys.executable, "-m", "tests.conformance.fixture_server", hosting]
    with serving(HTTP[hosting] if subject == "product" else fixtures, environment(data_dir)) as url:
        yield f"{url}/mcp"
