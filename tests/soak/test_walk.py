"""Whatever is done in whatever order, the server answers as the database that was pushed last."""

import random

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.publish import plan as planning
from kura.store.publish.published import publication
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.store.segments import seal
from kura.store.sources import attach, pending, remove_sources, sources
from tests.store.publish.publishing import listed, publish, require_alike, texts
from tests.store.writing import embedded, put, writing

STEPS = 30


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_of_changes_and_pushes_keeps_the_server_alike(
    catalog: Catalog, embedder: HashingEmbedder, remote: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
):
    chance = random.Random(seed)  # noqa: S311 - a fixed walk, nothing secret
    entries = [catalog.add("first"), catalog.add("second")]
    current, known, former = entries[0], None, None
    kinds: set[str] = set()
    for step in range(STEPS):
        with writing(catalog, current) as local:
            for _ in range(chance.randrange(4)):
                name, count = f"{chance.randrange(12)}.md", chance.choice((0, 1, 5, 20, 60))
                put(local, name, *texts(name, count, step), embedder=chance.choice((embedder, embedder, None)))
            if chance.random() < 0.3:
                there = [source.id for source in sources(local, 1).values()]
                remove_sources(local, chance.sample(there, min(len(there), 2)))
            if chance.random() < 0.4 and local.one("select dimension from state")[0] is not None:
                attach(local, embedded(embedder, [text for _, text in pending(local, 30)]))
            if chance.random() < 0.6 and local.one("select dimension from state")[0] is not None:
                seal(local)
        monkeypatch.setattr(planning, "DIRECT_ROWS", chance.choice((20, 2_000)))
        before = listed(remote) if publication(remote) else None
        planned = publish(catalog, current, remote, all_vectors=seed == 2 and step > STEPS // 2)
        kinds.add(planned.how)
        if planned.how != "nothing":
            former = before
        known = require_alike(catalog, current, remote, known)
        if former is not None and chance.random() < 0.2:
            rollback(remote)
            kinds.add("back")
            assert listed(remote) == former
            former = None
        elif chance.random() < 0.15:
            current = entries[1 - entries.index(current)]
            with writing(catalog, current) as local:
                pull(remote, local, "http://there", lambda _done, _all: None)
            kinds.add("pulled")
            former = None  # of which this one would not descend
            known = require_alike(catalog, current, remote, known)
    assert {"rows", "tables", "back", "pulled"} <= kinds
