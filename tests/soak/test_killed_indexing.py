"""`kura index` killed at any moment leaves a usable index, and the next run goes on."""

import hashlib
import random
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

MOMENTS = 50
FILES = 24
PARAGRAPHS = 12


def text_of(number: int, edition: int) -> str:
    """Every paragraph says which file, edition and paragraph it is, and is too long to share a chunk."""
    filler = "the tide rises and falls with the moon and the sun " * 8
    return "\n\n".join(f"file{number}x edition{edition}x paragraph{n}x {filler}" for n in range(PARAGRAPHS))


def write_edition(folder: Path, edition: int) -> None:
    for number in range(FILES):
        if (number + edition) % 3 or edition == 0:
            (folder / f"{number}.txt").write_text(text_of(number, edition), encoding="utf-8")


def check(path: Path, folder: Path) -> int:
    """Every source in the database is whole, in one edition; returns how many there are."""
    database = sqlite3.connect(path)
    try:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert database.execute("pragma foreign_key_check").fetchall() == []
        database.execute("insert into chunks_fts (chunks_fts, rank) values ('integrity-check', 1)")
        database.rollback()
        sources = database.execute("select id, path, content_hash from sources").fetchall()
        for source_id, name, content_hash in sources:
            chunks = [
                content
                for (content,) in database.execute(
                    "select content from chunks where source_id = ? order by ordinal", (source_id,)
                )
            ]
            editions = {int(found) for content in chunks for found in re.findall(r"edition(\d+)x", content)}
            paragraphs = [int(found) for content in chunks for found in re.findall(r"paragraph(\d+)x", content)]
            assert len(editions) == 1, name
            assert paragraphs == list(range(PARAGRAPHS)), name
            whole = text_of(int(name.removesuffix(".txt")), editions.pop())
            assert hashlib.sha256(whole.encode()).hexdigest() == content_hash, name
        assert {name for _, name, _ in sources} <= {file.name for file in folder.iterdir()}
        [(loose,)] = database.execute(
            "select count(*) from chunk_vectors v where not exists (select 1 from chunks c where c.vector_id = v.id)"
        )
        assert loose == 0
        return len(sources)
    finally:
        database.close()


def test_a_kill_at_any_moment_leaves_every_source_whole_or_absent(tmp_path: Path, environment: dict[str, str]):
    folder = tmp_path / "docs"
    folder.mkdir()
    write_edition(folder, 0)
    command = [sys.executable, "-m", "kura"]
    subprocess.run([*command, "add", "notes"], env=environment, check=True, capture_output=True)
    [path] = (tmp_path / "data" / "databases").glob("*.db")
    started = time.monotonic()
    subprocess.run([*command, "index", "notes", folder], env=environment, check=True, capture_output=True)
    whole_run = time.monotonic() - started
    assert check(path, folder) == FILES
    moments = random.Random(2026)  # noqa: S311 - a fixed choice of moments, nothing secret
    killed = 0
    for edition in range(1, MOMENTS + 1):
        write_edition(folder, edition)
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, "index", "notes"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            # The first half of a run is imports; most kills fall where it writes.
            process.wait(timeout=whole_run * moments.uniform(0.3, 1.0))
            # Measured anew: while the first run went, the machine may have been busier.
            whole_run = time.monotonic() - started
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
        check(path, folder)
    assert killed >= MOMENTS // 2, "too few runs were still under way when they were to be killed"
    subprocess.run([*command, "index", "notes"], env=environment, check=True, capture_output=True)
    assert check(path, folder) == FILES
    database = sqlite3.connect(path)
    stored = dict(database.execute("select path, content_hash from sources").fetchall())
    database.close()
    assert stored == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
