"""Measure Kura beside a peer or a limit in the same run: `make bench`, or `python -m tests.bench NAME…` for some rows.

docs/benchmarks.md says what the rows are and how to read them.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from kura.vectors.blas import one_blas_thread

one_blas_thread()

from tests.bench.corpus import Bench, Scale
from tests.bench.machine import load, machine
from tests.bench.rows import ROWS
from tests.bench.table import HEAD, Found, as_json, document, line


def main(arguments: list[str] | None = None, scale: Scale | None = None) -> int:
    """Measure, print each finding as it comes, and write the page if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure Kura beside peers and limits.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows to measure: {', '.join(ROWS)}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page with all rows to this file")
    asked = parser.parse_args(arguments)
    names: list[str] = asked.names or list(ROWS)
    if unknown := set(names) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if asked.write and set(names) != set(ROWS):
        parser.error("the page has all rows: leave the names out")
    here, before = machine(), load()
    print(json.dumps({"machine": here.values(), "load": before}) if asked.json else f"{here}\nload {before}\n{HEAD}")
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="kura-bench-") as folder:
        bench = Bench(scale or Scale(), Path(folder))
        for name in names:
            for finding in ROWS[name].run(bench):
                found.append(Found(name, finding))
                print(as_json(found[-1]) if asked.json else line(found[-1]), flush=True)
    after = load()
    print(json.dumps({"load": after}) if asked.json else f"load {after}")
    if asked.write:
        state = [str(here), f"load over 1, 5 and 15 minutes: {before} before, {after} after"]
        asked.write.write_text(document(state, found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
