"""How well public collections are searched: `python -m tests.quality [FOLDER|NAME …]`.

Every collection is written as files, indexed by the product's own pipeline and asked through its search. A name is
looked for below KURA_QUALITY_DATA, or ../shared/data where that is not set; without one, all that are there are taken.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kura.types import Mode
from kura.vectors.blas import one_blas_thread

if TYPE_CHECKING:  # these import numpy, which must not happen before the BLAS threads are settled
    from tests.quality.cache import CachedEmbedder
    from tests.quality.collection import Collection
    from tests.quality.floor import Scores


def main() -> int:
    """Measure, and print one line for each collection and mode."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument("collections", nargs="*", metavar="FOLDER|NAME")
    parser.add_argument("--mode", choices=["keyword", "semantic"], help="one mode only")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--floor", action="store_true", help="what a relevance floor does, instead of how well it finds"
    )
    parser.add_argument("--embedder", default="auto", choices=["auto", "e5", "hashing"], help="default: %(default)s")
    arguments = parser.parse_args()
    # Read by numpy when it is imported. Several BLAS threads on busy cores take eight times the CPU time of one.
    one_blas_thread()
    from tests.quality.collection import load
    from tests.quality.pipeline import embedder, measure

    root = Path(os.environ.get("KURA_QUALITY_DATA") or "../shared/data")
    folders = [_folder(name, root) for name in arguments.collections] or sorted(
        file.parent for file in root.glob("*/corpus.jsonl")
    )
    if not folders:
        print(f"no collection below {root}; set KURA_QUALITY_DATA or name folders", file=sys.stderr)
        return 1
    modes: list[Mode] = [arguments.mode] if arguments.mode else ["keyword", "semantic"]
    # Without vectors to make, chunks are sized by the estimate, as they are where no embedder is installed.
    embeds = embedder(arguments.embedder) if "semantic" in modes else None
    if embeds is None and "semantic" in modes:
        print("the embedder is not installed: keyword only", file=sys.stderr)
        modes = [mode for mode in modes if mode == "keyword"]
    if arguments.floor:
        return _floor([load(folder) for folder in folders], embeds)
    row = "{:16} {:>9} {:>7} {:8} {:>7} {:>9} {:>8}"
    if not arguments.json:
        print(row.format("collection", "documents", "queries", "mode", "nDCG@10", "recall@10", "ms/query"))
    for folder in folders:
        collection = load(folder)
        with tempfile.TemporaryDirectory(prefix="kura-quality-") as scratch:
            scores = measure(collection, modes, Path(scratch), embeds)
        size = len(collection.documents), len(collection.queries)
        for mode, ndcg, recall, seconds in scores:
            if arguments.json:
                line = {"collection": collection.name, "mode": mode, "ndcg": ndcg, "recall": recall}
                print(json.dumps(line), flush=True)
            else:
                numbers = f"{ndcg:.3f}", f"{recall:.3f}", f"{seconds / size[1] * 1000:.1f}"
                print(row.format(collection.name, *size, mode, *numbers), flush=True)
    return 0


def _floor(collections: Sequence["Collection"], embeds: "CachedEmbedder | None") -> int:
    from tests.quality.floor import lines, score

    if embeds is None or len(collections) < 2:
        print("--floor needs the embedder, mode semantic, and two collections or more", file=sys.stderr)
        return 1
    own = embeds.floor
    found: list[Scores] = []
    for collection in collections:
        others = [other for other in collections if other is not collection]
        with tempfile.TemporaryDirectory(prefix="kura-quality-") as scratch:
            found.append(score(collection, others, Path(scratch), embeds))
    print("\n".join(lines(found, own)))
    return 0


def _folder(name: str, root: Path) -> Path:
    return Path(name) if (Path(name) / "corpus.jsonl").exists() else root / name


if __name__ == "__main__":
    sys.exit(main())
