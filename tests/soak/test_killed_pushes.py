"""`kura push` or the server killed at any moment: readers see a whole push, and the next one goes on."""

import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection
from kura.store.publish.push import rollback
from local.sqld import Server, libsql_server
from tests.store.publish.publishing import connected, index, planned, publish, require_alike

MOMENTS = 50
PATIENCE = 30.0


class Scene:
    """A database that is published and has a change since that takes many requests."""

    def __init__(self, catalog: Catalog, embedder: HashingEmbedder, url: str, environment: dict[str, str]) -> None:
        self.catalog, self.url, self.environment = catalog, url, environment
        self.entry: Entry = catalog.add("notes")
        index(catalog, self.entry, embedder, [f"{n}.md" for n in range(15)], 30)
        with connected(url) as remote:
            publish(catalog, self.entry, remote)
            self.old = seen(remote)
        index(catalog, self.entry, embedder, ["2.md", *(f"new-{n}.md" for n in range(40))], 40, edition=2)
        started = time.monotonic()
        assert self.begin().wait(PATIENCE) == 0
        self.whole_run = time.monotonic() - started
        with connected(url) as remote:
            self.new = seen(remote)
            require_alike(catalog, self.entry, remote)
            rollback(remote)
        self.moments = random.Random(2026)  # noqa: S311 - a fixed choice of moments, nothing secret
        self.interrupted = self.went_on = 0

    def begin(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "kura", "push", "notes", "--to", self.url],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self, process: "subprocess.Popen[bytes]") -> bool:
        """Wait for a moment of the run; whether it was still under way then."""
        started = time.monotonic()
        try:
            # The first half of a run is imports; most moments are to fall where it sends.
            process.wait(self.whole_run * self.moments.uniform(0.5, 1.0))
        except subprocess.TimeoutExpired:
            return True
        # Measured anew: while the first run went, the machine may have been busier.
        self.whole_run = time.monotonic() - started
        return False

    def check(self, remote: Connection) -> None:
        """Readers see one push or the other, whole. Where it is the new one, return to the old one."""
        found = seen(remote)
        assert found in (self.old, self.new)
        if found == self.new:
            rollback(remote)
            assert seen(remote) == self.old
        else:
            self.interrupted += 1
            self.went_on += staged(remote) > 0

    def finish(self) -> None:
        assert self.begin().wait(PATIENCE) == 0
        with connected(self.url) as remote:
            assert seen(remote) == self.new
            require_alike(self.catalog, self.entry, remote)
            assert planned(self.catalog, self.entry, remote).how == "nothing"
            assert remote.rows("select name from sqlite_schema where name like 'next%'") == []


def seen(remote: Connection) -> object:
    """What tells one push from another, and from a mixture, in one view."""
    scores = "select rowid, bm25(chunks_fts) from chunks_fts where chunks_fts match 'tide' order by rowid"
    counts = """
      select (select count(*) from sources), (select count(*) from chunk_vectors), (select sum(id) from chunks),
             (select sum(length(content)) from chunks), (select count(*) from segments),
             (select count(*) from chunks where vector_id in (select id from chunk_vectors))
    """
    return remote.together([(scores, ()), (counts, ())])


def staged(remote: Connection) -> int:
    if remote.row("select 1 from sqlite_schema where name = 'next_chunks'") is None:
        return 0
    return int(remote.one("select count(*) from next_chunk_vectors")[0])


def test_a_push_killed_at_any_moment_leaves_whole_pushes(
    catalog: Catalog, embedder: HashingEmbedder, server: Server, environment: dict[str, str]
):
    scene = Scene(catalog, embedder, server.url, environment)
    for _ in range(MOMENTS):
        process = scene.begin()
        scene.wait(process)
        process.kill()
        process.wait()
        with connected(server.url) as remote:
            scene.check(remote)
    assert scene.interrupted >= MOMENTS // 3, "too few runs were under way when they were to be interrupted"
    assert scene.went_on, "no run had sent anything when it was interrupted"
    scene.finish()


def test_a_server_killed_at_any_moment_leaves_whole_pushes(
    catalog: Catalog, embedder: HashingEmbedder, tmp_path: Path, environment: dict[str, str]
):
    folder = tmp_path / "killed"
    with ExitStack() as stack:
        server = stack.enter_context(libsql_server(folder))
        port = int(server.url.rpartition(":")[2])
        scene = Scene(catalog, embedder, server.url, environment)
        interrupted = 0
        for _ in range(MOMENTS):
            process = scene.begin()
            under_way = scene.wait(process)
            interrupted += under_way
            server.process.kill()
            server.process.wait()
            stack.close()
            server = stack.enter_context(libsql_server(folder, port=port))
            assert process.wait(PATIENCE) in ((0, 1) if under_way else (0,))
            with connected(server.url) as remote:
                scene.check(remote)
        # Most of them go on by themselves once the server is back.
        assert interrupted >= MOMENTS // 3, "too few runs were under way when the server was killed"
        scene.finish()
