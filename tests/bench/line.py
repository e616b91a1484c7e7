"""What a measurement comes to: one line of the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.measure import Timing


@dataclass(frozen=True, slots=True)
class Goal:
    """What we want, in words, and whether this run reached it."""

    text: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Line:
    """Ours beside one peer or limit.

    Attributes:
        what: What was measured.
        ours: Kura's time.
        peer: What stands beside it.
        theirs: The peer's time.
        goal: What is wanted of it, where something is.
        note: What a reader should know of this figure.
    """

    what: str
    ours: Timing
    peer: str
    theirs: Timing
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        """Least beside least; infinite where the peer took no time that the clock shows."""
        return _over(self.ours.least, self.theirs.least)

    @property
    def ratio_of_medians(self) -> float:
        """Median over median: where it is far from `ratio`, the machine was too busy to tell."""
        return _over(self.ours.median, self.theirs.median)


@dataclass(frozen=True, slots=True)
class Skipped:
    """What could not be measured here, and why."""

    what: str
    reason: str


Finding = Line | Skipped


def at_most(times: float, ours: Timing, theirs: Timing) -> Goal:
    """The goal of a ratio."""
    return Goal(f"≤ {times:g}×", ours.least <= times * theirs.least)


def within(seconds: float, ours: Timing) -> Goal:
    """The goal of a time."""
    return Goal(f"≤ {seconds * 1e3:g} ms", ours.least <= seconds)


def at_least(wanted: float, pieces: int, what: str, ours: Timing) -> Goal:
    """The goal of a throughput: so many of `pieces` per CPU-second."""
    return Goal(f"≥ {wanted:g} {what}/CPU-s", pieces >= wanted * ours.least)


def geometric_mean(timings: Sequence[Timing]) -> Timing:
    """The geometric mean of each figure; the ratio of two such means is the mean of the ratios."""

    def mean(values: Sequence[float]) -> float:
        return math.exp(sum(map(math.log, values)) / len(values))

    return Timing(
        mean([timing.least for timing in timings]),
        mean([timing.median for timing in timings]),
        mean([timing.wall for timing in timings]),
    )


def _over(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.inf
