"""Row `reindex`: index files again of which none has changed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kura.embed.hashing import HashingEmbedder
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.roots import register, writing
from kura.store.catalog import Catalog
from tests.bench.children import environment, python
from tests.bench.corpus import NAME, Bench
from tests.bench.line import Finding, Line, Skipped, at_most
from tests.bench.measure import Contender, child, here, interleaved

GOAL = 2.0
FIND = "find -printf"
LISTING = "scandir + stat"

_LONG_AGO = 1_700_000_000


def reindex(bench: Bench) -> Iterator[Finding]:
    """In this process and as a command, beside two ways to list the same files with their sizes and times."""
    scale = bench.scale
    files = tree(bench.folder / "files", scale.folders, scale.files)
    catalog = Catalog(bench.folder / "indexed")
    entry = catalog.add(NAME)
    model = Model.of(HashingEmbedder())
    command = [*python("-m", "kura", "index", NAME)]
    what = f"index {scale.folders * scale.files:,} unchanged files"
    with writing(catalog.path(entry)) as connection:
        targets = [register(connection, files)]
        reconcile(connection, targets, model=model, max_file_bytes=1_000_000)

        def again() -> None:
            report = reconcile(connection, targets, model=model, max_file_bytes=1_000_000)
            if report.unchanged != scale.folders * scale.files:
                raise RuntimeError(f"not all files were unchanged: {report}")

        rounds = scale.rounds_of(0.3)
        contenders: dict[str, Contender] = {"kura": here(again), LISTING: here(lambda: listed(files))}
        if (find := shutil.which("find")) is not None:
            finding = child([find, str(files), "-type", "f", "-printf", r"%s %T@ %p\n"], os.environ)
            try:
                finding()
            except RuntimeError:
                yield Skipped(f"{what}, beside find", "this find knows no -printf")
            else:
                contenders[FIND] = finding
        timings = interleaved(contenders, rounds)
    for peer in (FIND, LISTING):
        if peer in timings:
            yield Line(what, timings["kura"], peer, timings[peer], at_most(GOAL, timings["kura"], timings[peer]))
    # The command takes the lock that the block above held.
    peer = FIND if FIND in contenders else LISTING
    whole = interleaved(
        {"kura": child(command, environment(catalog.data_dir, "hashing")), peer: contenders[peer]}, scale.rounds_of(0.2)
    )
    note = "the start of the process is in it"
    yield Line(f"{what}, `kura index`", whole["kura"], peer, whole[peer], note=note)


def tree(root: Path, folders: int, files: int) -> Path:
    """Folders of small files, all written long ago: of what is new, an indexer cannot be sure."""
    for folder in range(folders):
        place = root / f"part {folder // 10}" / f"{folder:03}"
        place.mkdir(parents=True)
        for number in range(files):
            file = place / f"{number:03}.md"
            file.write_text(f"# Page {number}\n\nPage {number} of folder {folder}.\n", encoding="utf-8")
            os.utime(file, (_LONG_AGO, _LONG_AGO))
    return root


def listed(folder: Path) -> list[tuple[str, int, int]]:
    """All files below with size and time, as directly as Python can."""
    found: list[tuple[str, int, int]] = []
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
    return found
