"""Running the conformance suite of the protocol against a server, and reading what it found."""

import json
import re
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tests.node import toolchain

Revision = Literal["2025-11-25", "2026-07-28"]
REVISIONS: tuple[Revision, ...] = ("2025-11-25", "2026-07-28")
RUN_SECONDS = 150.0
SCENARIO_SECONDS = 60.0
ATTEMPTS = 3

_PACKAGE = toolchain.PACKAGES / "@modelcontextprotocol" / "conformance"
_FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\dZ-]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suite says about one scenario: how many checks passed, and which failed, with its reasons."""

    passed: int
    failures: dict[str, str]


Verdicts = dict[str, Verdict]


def required(revision: Revision) -> list[str]:
    """The scenarios that a server of that revision must pass, in the suite's order."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in (_PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            section = found.setdefault(heading[1], [])
        elif entry := re.fullmatch(r"  - ([\w/-]+)", line):
            section.append(entry[1])
    return found["server"]


def run(url: str, revision: Revision, results: Path, judged: Iterable[str], excused: Collection[str] = ()) -> Verdicts:
    """Run all that a revision requires, at its own wire version.

    The suite waits half a second for some answers. So a scenario that is to be judged and fails is asked again, by
    itself: a server that is wrong is wrong every time, one that was slow on a busy machine is not.

    Args:
        url: The server's endpoint.
        revision: Revision of the protocol.
        results: An empty folder for what the suite writes.
        judged: The scenarios that count.
        excused: Scenarios, or `scenario:check`, that are known to fail.
    """
    _suite(RUN_SECONDS, "--url", url, "--requirements", revision, "--output-dir", str(results / "all"))
    verdicts = _verdicts(results / "all")
    for scenario in judged:
        for attempt in range(1, ATTEMPTS):
            if scenario in excused or not unexpected(verdicts, scenario, excused):
                break
            again = results / f"{scenario}-{attempt}"
            options = ("--scenario", scenario, "--spec-version", revision, "--output-dir", str(again))
            _suite(SCENARIO_SECONDS, "--url", url, *options)
            verdicts |= _verdicts(again)
    return verdicts


def unexpected(verdicts: Verdicts, scenario: str, excused: Collection[str]) -> dict[str, str]:
    """The failures of a scenario that are not excused. That nothing passed counts as one: it proves nothing."""
    verdict = verdicts.get(scenario)
    if verdict is None or not verdict.passed:
        return {scenario: "the suite checked nothing"}
    return {check: why for check, why in verdict.failures.items() if f"{scenario}:{check}" not in excused}


def _suite(seconds: float, *options: str) -> None:
    ran = subprocess.run(
        [str(toolchain.node()), str(_PACKAGE / "dist" / "index.js"), "server", *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )
    # 0: all passed; 1: something failed, which the results tell more about.
    assert ran.returncode in {0, 1}, ran.stderr


def _verdicts(results: Path) -> Verdicts:
    verdicts: Verdicts = {}
    for file in sorted(results.glob("*/checks.json")):
        named = _FOLDER.fullmatch(file.parent.name)
        assert named is not None, file
        checks = cast(list[dict[str, Any]], json.loads(file.read_text(encoding="utf-8")))
        # That messages keep the schema is checked along with every scenario; it is no sign that one did anything.
        passed = [check for check in checks if check["status"] == "SUCCESS" and check["id"] != "wire-schema-valid"]
        failed = {check["id"]: str(check.get("errorMessage")) for check in checks if check["status"] == "FAILURE"}
        verdicts[named["scenario"]] = Verdict(len(passed), failed)
    return verdicts
