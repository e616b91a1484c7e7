"""Row `keyword`: the product's keyword search beside the bare statement of FTS5."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing

from kura.library.library import Library
from kura.search.search import search
from kura.store.catalog import Catalog
from kura.store.sqlite import Connection, open_for_reading
from kura.text.tokens import match_expression
from kura.types import Session
from tests.bench.children import question
from tests.bench.corpus import NAME, Bench, chinese_words
from tests.bench.line import Finding, Line, Skipped, at_most, geometric_mean
from tests.bench.measure import Timing, here, interleaved

GOAL = 1.5
LIMIT = 10


def questions() -> dict[str, str]:
    """What is asked; ranks below 60 are stop words, which no search looks for."""
    return {
        "rare term": question(20_000),
        "common term": question(62),
        "two terms": question(70, 900),
        "Chinese": chinese_words()[20] + chinese_words()[300],
    }


def keyword(bench: Bench) -> Iterator[Finding]:
    """Each question by `search` in mode keyword, and as one statement that brings ten numbers and one ten contents."""
    catalog = Catalog(bench.searched())
    pairs: list[tuple[Timing, Timing]] = []
    with (
        closing(Library(catalog, lambda: None)) as library,
        closing(open_for_reading(catalog.path(catalog.find(NAME)))) as connection,
        asyncio.Runner() as runner,
    ):
        for kind, q in questions().items():
            expression = match_expression(q)
            assert expression is not None
            (matches,) = connection.one("select count(*) from chunks_fts where chunks_fts match ?", (expression,))
            what = f"keyword, {kind}"
            if not matches:
                yield Skipped(what, "nothing matches in so small a database")
                continue
            ours, bare = _asked(library, runner, q), _bare(connection, expression)
            timings = interleaved({"ours": here(ours), "bare": here(bare)}, bench.scale.rounds)
            pairs.append((timings["ours"], timings["bare"]))
            note = f"{matches:,} of {bench.scale.many:,} match"
            yield Line(what, timings["ours"], "bare FTS5", timings["bare"], note=note)
    if pairs:
        ours_mean, bare_mean = (geometric_mean(side) for side in zip(*pairs, strict=True))
        goal = at_most(GOAL, ours_mean, bare_mean)
        yield Line("keyword, geometric mean", ours_mean, "bare FTS5", bare_mean, goal)


def _asked(library: Library, runner: asyncio.Runner, q: str) -> Callable[[], object]:
    # On the loop itself: `run` of the runner would set and take back a signal handler around each question.
    loop = runner.get_loop()
    return lambda: loop.run_until_complete(search(library, Session(), NAME, q, "keyword", LIMIT))


def _bare(connection: Connection, expression: str) -> Callable[[], object]:
    """As a person would write it who has the expression at hand. `order by rank` would take half as long again."""
    best = "select rowid, bm25(chunks_fts) from chunks_fts where chunks_fts match ? order by 2 limit ?"
    contents = "select id, content from chunks where id in (select value from json_each(?))"

    def ask() -> object:
        found = connection.rows(best, (expression, LIMIT))
        return connection.rows(contents, (json.dumps([row[0] for row in found]),))

    return ask
