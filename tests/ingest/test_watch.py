"""Changes below watched roots are told once they have settled."""

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from kura.ingest.watch import changes

PATIENCE = 20.0


class Watched:
    """A watcher in a thread of its own, as a program would have it."""

    def __init__(self, roots: list[Path], leave_out: list[Path]) -> None:
        self.stop = threading.Event()
        self.told: Queue[frozenset[Path]] = Queue()
        self._thread = threading.Thread(target=self._run, args=(roots, leave_out))
        self._thread.start()

    def _run(self, roots: list[Path], leave_out: list[Path]) -> None:
        for changed in changes(lambda: roots, self.stop, leave_out=leave_out, settle_ms=50, tick_ms=50):
            self.told.put(changed)

    def next(self) -> frozenset[Path]:
        return self.told.get(timeout=PATIENCE)

    def until(self, root: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while root not in self.next():
            assert time.monotonic() < deadline

    def quiet(self) -> None:
        """Take what is told until nothing more is."""
        with contextlib.suppress(Empty):
            while True:
                self.told.get(timeout=0.5)

    def end(self) -> None:
        self.stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def watched(roots: list[Path]) -> Iterator[Watched]:
    watched = Watched(roots, [roots[1] / "data"])
    try:
        yield watched
    finally:
        watched.end()


def test_all_roots_are_told_first_and_then_those_that_changed(watched: Watched, roots: list[Path]):
    assert watched.next() == frozenset(roots)
    (roots[0] / "sub").mkdir()
    (roots[0] / "sub" / "a.md").write_text("a")
    assert watched.next() == {roots[0]}
    (roots[1] / "b.md").write_text("b")
    watched.until(roots[1])


def test_hidden_files_and_left_out_folders_say_nothing(watched: Watched, roots: list[Path]):
    watched.next()
    (roots[1] / "data").mkdir()
    (roots[1] / "data" / "notes.db").write_text("x")
    (roots[1] / ".hidden").write_text("x")
    (roots[0] / "a.md").write_text("a")
    watched.until(roots[0])
    while True:
        try:
            assert roots[1] not in watched.told.get(timeout=0.3)
        except Empty:
            return


def test_ignore_files_count(watched: Watched, roots: list[Path]):
    watched.next()
    (roots[0] / ".gitignore").write_text("*.log")
    watched.until(roots[0])


def test_a_root_that_vanishes_and_comes_back_is_followed_again(watched: Watched, roots: list[Path]):
    watched.next()
    roots[0].rename(roots[0].with_name("away"))
    watched.until(roots[0])
    roots[0].with_name("away").rename(roots[0])
    watched.until(roots[0])
    while not watched.told.empty():
        watched.told.get()
    (roots[0] / "a.md").write_text("back again")
    watched.until(roots[0])


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_root_that_is_deleted_and_made_anew_at_once_is_followed_again(tmp_path: Path, kind: str):
    root = tmp_path / "root"
    text = root / "a.md" if kind == "folder" else root

    def make(content: str) -> None:
        text.parent.mkdir(exist_ok=True)
        text.write_text(content)

    make("first")
    watched = Watched([root], [])
    try:
        watched.next()
        shutil.rmtree(root) if kind == "folder" else root.unlink()
        make("second")  # most file systems give it the same inode
        watched.until(root)
        watched.quiet()
        make("third")
        watched.until(root)
    finally:
        watched.end()


def test_a_root_that_moves_away_and_back_at_once_is_followed_again(watched: Watched, roots: list[Path]):
    watched.next()
    roots[0].rename(roots[0].with_name("away"))
    roots[0].with_name("away").rename(roots[0])
    watched.quiet()
    (roots[0] / "a.md").write_text("still here")
    watched.until(roots[0])


def test_a_watcher_of_nothing_waits_for_something(tmp_path: Path):
    watched = Watched([tmp_path / "later"], [])
    try:
        watched.next()
        (tmp_path / "later").mkdir()
        watched.until(tmp_path / "later")
    finally:
        watched.end()
