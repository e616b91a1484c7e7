"""Row `refusing`: whether the time of a refusal tells which keys there are."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kura.access.credentials import CredentialGate
from kura.access.keys import KeyRing, make_key
from kura.errors import CredentialError
from kura.store.catalog import Catalog
from kura.store.keys import add_key
from kura.types import READING
from tests.bench.corpus import Bench
from tests.bench.line import Finding, Line
from tests.bench.measure import here, interleaved

TRIES = 4_000
BATCH = 100
ROUNDS = 30


def refusing(_bench: Bench) -> Iterator[Finding]:
    """A wrong secret after the name of a key that exists beside one after a name that nobody has."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog(Path(folder))
        made = [
            make_key(f"key {n}", tenant=None, user=None, databases=None, scopes=READING, expires_at=None)
            for n in range(50)
        ]
        with catalog.writing() as connection:
            for _, key in made:
                add_key(connection, key)
        gate = CredentialGate(ring=KeyRing(catalogs=[catalog.keys]))
        known, unknown = f"Bearer {made[25][0][:14]}{'a' * 43}", f"Bearer kura_zzzzzzzz_{'a' * 43}"
        with asyncio.Runner() as runner:

            def refused(sent: str, times: int = BATCH) -> None:
                async def ask() -> None:
                    for _ in range(times):
                        try:
                            await gate(sent)
                        except CredentialError:
                            continue
                        raise AssertionError("it was let in")

                runner.run(ask())

            taken = interleaved(
                {"known": here(lambda: refused(known)), "unknown": here(lambda: refused(unknown))}, ROUNDS
            )
            told = _told_apart(lambda: refused(known, 1), lambda: refused(unknown, 1))
    yield Line(
        f"{BATCH} refusals, name known",
        taken["known"],
        "name unknown",
        taken["unknown"],
        note=f"of {TRIES:,} tries of each, one with a known name took longer than one without in {told:.1%} of pairs;"
        f" chance alone gives 50 % ± {_TWO_SIGMA:.1%}",
    )


_TWO_SIGMA = 2 / (6 * TRIES) ** 0.5
"""Two standard deviations of that share (Mann and Whitney), of as many tries of each, where there is no difference."""


def _told_apart(one: Callable[[], object], other: Callable[[], object]) -> float:
    """In which share of all pairs `one` took longer than `other`, ties counted half."""
    took: tuple[list[float], list[float]] = ([], [])
    order = [0, 1] * TRIES
    random.Random(0).shuffle(order)  # noqa: S311 - no secret hangs on it
    for which in order:
        began = time.perf_counter()
        (one, other)[which]()
        took[which].append(time.perf_counter() - began)
    ranked = sorted((seconds, which) for which, all_of in enumerate(took) for seconds in all_of)
    of_one = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    return (of_one - TRIES * (TRIES + 1) / 2) / TRIES**2
