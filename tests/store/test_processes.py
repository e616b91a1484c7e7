"""One process writes while others read."""

import multiprocessing
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog, Entry
from kura.store.segments import Vectors, load, seal
from kura.store.sources import remove_sources
from kura.store.sqlite import open_for_reading
from tests.store.writing import put, writing

PASSAGES = 5


def read(path: Path, together: Barrier, done: Event, outcome: "multiprocessing.Queue[str]") -> None:
    """Look again and again, through new and kept connections, whether every source is whole and every vector there."""
    reads, last, known = 0, 0, None
    together.wait()
    try:
        while not done.is_set() or reads < 3:
            connection = open_for_reading(path)
            for _ in range(3):
                with connection.transaction(write=False):
                    known = load(connection, known)
                    last = require_whole(connection.rows(EDITIONS), known, last)
                reads += 1
            connection.close()
        outcome.put("whole")
    except Exception as error:  # noqa: BLE001 - whatever it is, the test shall show it
        outcome.put(repr(error))


EDITIONS = """
select s.path, count(distinct c.content), count(*), count(c.vector_id), (select count(*) from chunk_vectors)
from sources s join chunks c on c.source_id = s.id group by s.path
"""


def require_whole(rows: list[tuple[str, int, int, int, int]], known: Vectors, last: int) -> int:
    for path, texts, chunks, vectors, _ in rows:
        if (texts, chunks, vectors) != (PASSAGES,) * 3:
            raise AssertionError(f"half a source: {path} {texts} {chunks} {vectors}")
    if rows and (known.matrix is None or len(known.matrix) != rows[0][4]):
        raise AssertionError("the vectors in memory are not those of the database")
    if known.state.version < last:
        raise AssertionError("the version went back")
    return known.state.version


def test_readers_never_meet_a_lock_or_half_a_source(catalog: Catalog):
    entry: Entry = catalog.add("notes")
    spawn = multiprocessing.get_context("spawn")
    done, outcome, together = spawn.Event(), spawn.Queue(), spawn.Barrier(3)
    readers = [spawn.Process(target=read, args=(catalog.path(entry), together, done, outcome)) for _ in range(2)]
    for reader in readers:
        reader.start()
    embedder = HashingEmbedder(16)
    with writing(catalog, entry) as connection:
        together.wait()
        for n in range(150):
            source = put(
                connection, f"{n % 20}.md", *[f"passage {p} of edition {n}" for p in range(PASSAGES)], embedder=embedder
            )
            if n % 9 == 0:
                remove_sources(connection, [source])
            if n % 25 == 0:
                seal(connection)
        done.set()
    outcomes = [outcome.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join()
    outcome.close()
    assert outcomes == ["whole", "whole"]
