"""Hits to groups: which passages fill the page, and in what order."""

from collections.abc import Mapping, Sequence

from kura.store.statements import Passage
from kura.types import Hit, Match, SourceGroup

CANDIDATES = 3
"""How many times the asked number of hits a branch fetches, so that there is something to choose from."""


def page(hits: Sequence[Hit], passages: Mapping[int, Passage], limit: int) -> tuple[SourceGroup, ...]:
    """Choose at most `limit` of the hits and group them by source.

    Hits whose passage is gone are left out. No source takes more than a third of the page (but at least two places)
    as long as others have something to say: one long file must not hide all the rest.

    Args:
        hits: Best first.
        passages: By chunk id.
        limit: How many passages the page holds.

    Returns:
        Sources in the order of their best passage; within each, passages best first.
    """
    share = max(2, limit // 3)
    chosen: list[Hit] = []
    spare: list[Hit] = []
    taken: dict[str, int] = {}
    for hit in hits:
        if hit.chunk_id not in passages:
            continue
        source = passages[hit.chunk_id].source
        taken[source] = taken.get(source, 0) + 1
        (chosen if taken[source] <= share else spare).append(hit)
    chosen = sorted(chosen[:limit] + spare[: max(0, limit - len(chosen))], key=lambda hit: -hit.score)
    groups: dict[str, list[Match]] = {}
    for hit in chosen:
        found = passages[hit.chunk_id]
        match = Match(found.ordinal, found.content, hit.score, found.heading, (found.first_line, found.last_line))
        groups.setdefault(found.source, []).append(match)
    return tuple(SourceGroup(source, tuple(matches)) for source, matches in groups.items())
