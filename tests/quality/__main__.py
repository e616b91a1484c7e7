"""How well public collections are searched: `python -m tests.quality [FOLDER|NAME …]`.

Every collection is written as files, indexed by the product's own pipeline and asked through its search. A name is
looked for below KURA_QUALITY_DATA, or ../shared/data where that is not set; without one, all that are there are taken.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from kura.types import Mode
from tests.quality.collection import load
from tests.quality.pipeline import embedder, measure


def main() -> int:
    """Measure, and print one line for each collection and mode."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument("collections", nargs="*", metavar="FOLDER|NAME")
    parser.add_argument("--mode", choices=["keyword", "semantic"], help="one mode only")
    arguments = parser.parse_args()
    root = Path(os.environ.get("KURA_QUALITY_DATA") or "../shared/data")
    folders = [_folder(name, root) for name in arguments.collections] or sorted(
        file.parent for file in root.glob("*/corpus.jsonl")
    )
    if not folders:
        print(f"no collection below {root}; set KURA_QUALITY_DATA or name folders", file=sys.stderr)
        return 1
    modes: list[Mode] = [arguments.mode] if arguments.mode else ["keyword", "semantic"]
    embeds = embedder() if "semantic" in modes else None
    if embeds is None:
        modes = [mode for mode in modes if mode == "keyword"]
    print(
        f"{'collection':16} {'documents':>9} {'queries':>7} {'mode':8} {'nDCG@10':>7} {'recall@10':>9} {'ms/query':>8}"
    )
    for folder in folders:
        collection = load(folder)
        with tempfile.TemporaryDirectory(prefix="kura-quality-") as scratch:
            scores = measure(collection, modes, Path(scratch), embeds)
        for score in scores:
            size = f"{collection.name:16} {len(collection.documents):9} {len(collection.queries):7}"
            pace = score.seconds / len(collection.queries) * 1000
            print(f"{size} {score.mode:8} {score.ndcg:7.3f} {score.recall:9.3f} {pace:8.1f}", flush=True)
    return 0


def _folder(name: str, root: Path) -> Path:
    return Path(name) if (Path(name) / "corpus.jsonl").exists() else root / name


if __name__ == "__main__":
    sys.exit(main())
