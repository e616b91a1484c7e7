"""Every row runs, in a tiny size, and gives figures; how long anything takes is not a matter of tests."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="CPU time of children is only known on POSIX systems")

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog
from kura.store.sources import statistics
from kura.store.sqlite import open_for_reading
from tests.bench.__main__ import main
from tests.bench.children import ROOT
from tests.bench.corpus import NAME, Bench, Identity, Scale, texts, unit_vectors
from tests.bench.line import Goal, Line, Skipped, at_least, at_most, geometric_mean, within
from tests.bench.measure import Run, Timing, child, interleaved
from tests.bench.nearest import nearest
from tests.bench.peers import NEAREST, Missing
from tests.bench.rows import ROWS
from tests.bench.table import Found, as_json, document, introduction, line

TINY = Scale(vectors=(200,), chunks=60, many=60, folders=3, files=4, passages=1, embedders=("hashing",), rounds=1)
PAGE = ROOT / "docs" / "benchmarks.md"


@pytest.fixture
def bench(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("KURA_CACHE_DIR", str(cache_dir))
    return Bench(TINY, tmp_path)


SLOW = ("hosted", "start")
"""Rows that start servers or processes over and over."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ROWS])
def test_a_row_gives_finite_figures_or_says_why_not(name: str, bench: Bench):
    findings = list(ROWS[name].run(bench))
    assert findings
    for finding in findings:
        if isinstance(finding, Skipped):
            assert finding.reason
            continue
        for timing in (finding.ours, finding.theirs):
            assert 0 < timing.least <= timing.median
            assert 0 < timing.wall < math.inf
        assert 0 < finding.ratio < math.inf
        assert line(Found(name, finding)).startswith(finding.what)
        assert json.loads(as_json(Found(name, finding)))["ratio"] == finding.ratio


def test_all_exact_searches_find_the_same(bench: Bench):
    rows = unit_vectors(200, 32)
    found = [build(rows)(rows[7], 10) for build in NEAREST.values()]
    assert found[0][0] == 7
    assert all(ids == found[0] for ids in found)
    assert all("100%" in finding.note for finding in nearest(bench) if isinstance(finding, Line) and not finding.goal)


def test_a_peer_that_is_not_installed_is_left_out_and_named(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    def missing(_rows: object) -> None:
        raise Missing("faiss is not installed")

    monkeypatch.setitem(NEAREST, "faiss IndexFlatIP", missing)
    skipped = [finding for finding in nearest(bench) if isinstance(finding, Skipped)]
    assert [finding.reason for finding in skipped] == ["faiss is not installed"]


def test_contenders_run_in_turns_and_the_first_round_does_not_count():
    order: list[str] = []
    times = {"a": iter((9.0, 1.0, 3.0)), "b": iter((9.0, 5.0, 4.0))}

    def contender(name: str) -> Run:
        order.append(name)
        return Run(next(times[name]), 7.0)

    timings = interleaved({"a": lambda: contender("a"), "b": lambda: contender("b")}, 3)
    assert order == ["a", "b"] * 3
    assert timings == {"a": Timing(1.0, 2.0, 7.0), "b": Timing(4.0, 4.5, 7.0)}


def test_a_child_that_fails_is_not_taken_for_a_quick_one():
    with pytest.raises(RuntimeError, match="No such file"):
        child(["find", "/nowhere/at/all"], {"LC_ALL": "C", "PATH": "/usr/bin:/bin"})()


def test_a_goal_says_whether_it_was_reached():
    ours, theirs = Timing(0.012, 0.02, 0.02), Timing(0.01, 0.02, 0.02)
    assert at_most(1.2, ours, theirs) == Goal("≤ 1.2×", reached=True)
    assert at_most(1.1, ours, theirs) == Goal("≤ 1.1×", reached=False)
    assert within(0.011, ours) == Goal("≤ 11 ms", reached=False)
    assert at_least(9, 1, "chunks", ours) == Goal("≥ 9 chunks/CPU-s", reached=True)


def test_the_ratio_of_geometric_means_is_the_mean_of_the_ratios():
    ours = geometric_mean([Timing(2.0, 2.0, 2.0), Timing(8.0, 8.0, 8.0)])
    theirs = geometric_mean([Timing(1.0, 1.0, 1.0), Timing(1.0, 1.0, 1.0)])
    assert Line("x", ours, "y", theirs).ratio == pytest.approx(4.0)


def test_texts_and_databases_are_as_large_as_was_asked_and_always_the_same(bench: Bench):
    assert texts(30) == texts(30)
    assert sum("。" in text for text in texts(30)) == 3
    assert all(60 <= text.count(" ") + 1 <= 120 for text in texts(30) if "。" not in text)
    hashing = HashingEmbedder()
    catalog = Catalog(bench.served(Identity(hashing.name, hashing.dimension)))
    connection = open_for_reading(catalog.path(catalog.find(NAME)))
    counts = statistics(connection)
    connection.close()
    assert (counts.chunks, counts.vectors, counts.pending) == (60, 60, 0)


def test_the_command_prints_the_machine_and_the_rows_that_were_named(capsys: pytest.CaptureFixture[str]):
    assert main(["nearest"], TINY) == 0
    shown = capsys.readouterr().out
    assert "numpy" in shown.splitlines()[0]
    assert "nearest 10 of 200 × 384" in shown
    assert "reindex" not in shown
    assert main(["nearest", "--json"], TINY) == 0
    first, *rows, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["machine"]["cores"] >= 1
    assert {row["row"] for row in rows} == {"nearest"}
    assert "load" in last


@pytest.mark.parametrize("arguments", [["nonsense"], ["nearest", "--write", "page.md"]])
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(arguments, TINY)
    assert "error:" in capsys.readouterr().err


def test_the_page_renders_what_was_found():
    slow, quick = Timing(0.5, 0.6, 0.6), Timing(0.25, 0.3, 0.3)
    found = [
        Found("nearest", Line("a", slow, "b", quick, at_most(1.5, slow, quick), "why")),
        Found("start", Skipped("c", "d is not installed")),
    ]
    page = document(["a machine"], found)
    assert page.startswith(introduction())
    assert (
        "| nearest | a | 500.00 (600.00) | b | 250.00 (300.00) | 2.00× (2.00×) | ≤ 1.5×: **missed** | why |\n" in page
    )
    assert "| start | c | – | – | – | – | – | skipped: d is not installed |\n" in page
    assert page.endswith("- a machine\n")


def test_the_page_in_the_documentation_has_the_introduction_and_every_row():
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(introduction()), "run `python -m tests.bench --write docs/benchmarks.md`"
    rows = {cells.split(" | ")[0] for cells in text.splitlines() if cells.startswith("| ")}
    assert {f"| {name}" for name in ROWS} <= rows
