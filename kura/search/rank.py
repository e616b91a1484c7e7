"""Hits to groups: which passages fill the page, and in what order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kura.store.sources import State
from kura.store.statements import Passage
from kura.types import Hit, Match, SourceGroup

CANDIDATES = 3
"""How many times the asked number of hits a branch fetches, so that there is something to choose from."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a branch brings: hits, best first, their passages by chunk id, and the state that those were read in."""

    hits: Sequence[Hit]
    passages: Mapping[int, Passage]
    state: State | None = None


def page(found: Found, limit: int) -> tuple[SourceGroup, ...]:
    """Choose at most `limit` of the hits and group them by source.

    No source takes more than a third of the page (but at least two places) as long as others have something to say:
    one long file must not hide all the rest.

    Returns:
        Sources in the order of their best passage; within each, passages best first.
    """
    share = max(2, limit // 3)
    within: list[int] = []
    beyond: list[int] = []
    taken: dict[str, int] = {}
    for place, hit in enumerate(found.hits):
        source = found.passages[hit.chunk_id].source
        taken[source] = taken.get(source, 0) + 1
        (within if taken[source] <= share else beyond).append(place)
    within = within[:limit]
    groups: dict[str, list[Match]] = {}
    for place in sorted(within + beyond[: limit - len(within)]):
        hit = found.hits[place]
        shown = found.passages[hit.chunk_id]
        match = Match(shown.ordinal, shown.content, hit.score, shown.heading, (shown.first_line, shown.last_line))
        groups.setdefault(shown.source, []).append(match)
    return tuple(SourceGroup(source, tuple(matches)) for source, matches in groups.items())
