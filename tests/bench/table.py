"""The findings as text for a terminal, as JSON for scripts, and as the page docs/benchmarks.md."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from tests.bench.line import Finding, Line
from tests.bench.rows import ROWS

HEAD = (
    f"{'CPU ms':<46} {'min':>9} {'median':>9}  {'beside':<28} {'min':>9} {'median':>9}"
    f" {'ratio':>8} {'medians':>8}  goal"
)

INTRODUCTION = """\
# Benchmarks

How much CPU time Kura takes beside a peer, or beside a limit that nothing can beat, measured in the same run. This
page is written by `python -m tests.bench --write docs/benchmarks.md`, as the run found it; nothing fails when a goal
is missed.

```console
$ make bench                                 # all rows, in about five minutes on two cores
$ .venv/bin/python -m tests.bench nearest    # some rows, by name
$ .venv/bin/python -m tests.bench --json     # one JSON object a line
```

How to read it:

- Times are CPU milliseconds, all threads counted, of this process or of a child: the least of several runs and, behind
  it, the median. The ratio is least over least; below 1 Kura takes less. The ratio of the medians stands behind it:
  where the two are far apart, the machine was too busy to tell. Trust ratios rather than times: another machine has
  other times, and the two sides of a line ran in turns on the same one.
- What runs in this process ran once just before every run that counts, so that it finds its own data in the processor's
  caches. Matrix products use one thread on both sides.
- *goal* is what we want, followed by whether this run reached it. Lines without a goal are there for comparison.
- A peer that is not installed is left out, and a line says so.

The rows:

"""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding and the row that it belongs to."""

    row: str
    finding: Finding


def line(found: Found) -> str:
    """One finding for a terminal; notes stand below."""
    finding = found.finding
    if not isinstance(finding, Line):
        return f"{finding.what:<46} skipped: {finding.reason}"
    goal = f"{finding.goal.text} {_reached(finding)}" if finding.goal else ""
    text = (
        f"{finding.what:<46} {finding.ours.least * 1e3:9.2f} {finding.ours.median * 1e3:9.2f}  {finding.peer:<28}"
        f" {finding.theirs.least * 1e3:9.2f} {finding.theirs.median * 1e3:9.2f} {finding.ratio:7.2f}×"
        f" {finding.ratio_of_medians:7.2f}×  {goal}"
    )
    return f"{text.rstrip()}\n    {finding.note}" if finding.note else text.rstrip()


def as_json(found: Found) -> str:
    """One finding on a line, times in seconds."""
    finding = found.finding
    values: dict[str, object] = {"row": found.row, **asdict(finding)}
    if isinstance(finding, Line):
        values |= {"ratio": finding.ratio, "ratio_of_medians": finding.ratio_of_medians}
    return json.dumps(values, ensure_ascii=False)


def document(state: Sequence[str], findings: Iterable[Found]) -> str:
    """The whole page; `state` says of the machine what there is to say."""
    return introduction() + _table(findings) + "\n" + "".join(f"- {line}\n" for line in state)


def introduction() -> str:
    """What stands above the table."""
    rows = "".join(f"- `{name}`: {row.about}\n" for name, row in ROWS.items())
    missed = "".join(f"- `{name}`: {row.missed}\n" for name, row in ROWS.items() if row.missed)
    return f"{INTRODUCTION}{rows}\nWhere the time goes that keeps a row from its goal:\n\n{missed}\n"


def _table(findings: Iterable[Found]) -> str:
    head = ["row", "what", "CPU ms (median)", "beside", "CPU ms (median)", "ratio (of medians)", "goal", "note"]
    rows = [_cells([found.row, *_markdown(found.finding)]) for found in findings]
    return "".join([_cells(head), _cells(["---"] * len(head)), *rows])


def _markdown(finding: Finding) -> list[str]:
    if not isinstance(finding, Line):
        return [finding.what, "–", "–", "–", "–", "–", f"skipped: {finding.reason}"]
    return [
        finding.what,
        f"{finding.ours.least * 1e3:,.2f} ({finding.ours.median * 1e3:,.2f})",
        finding.peer,
        f"{finding.theirs.least * 1e3:,.2f} ({finding.theirs.median * 1e3:,.2f})",
        f"{finding.ratio:.2f}× ({finding.ratio_of_medians:.2f}×)",
        f"{finding.goal.text}: {_reached(finding)}" if finding.goal else "",
        finding.note,
    ]


def _reached(finding: Line) -> str:
    return "" if finding.goal is None else "reached" if finding.goal.reached else "**missed**"


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
