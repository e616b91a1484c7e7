"""One opened database: what reads from it, and its vectors as of the version that was last seen."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kura.errors import StoreError
from kura.events import tell
from kura.library.columns import Columns
from kura.store.copies import keep, kept
from kura.store.engine import Reader
from kura.store.migrations import now
from kura.store.segments import Room, Vectors, load
from kura.store.sources import State
from kura.vectors.metrics import Rows, rows_of

T = TypeVar("T")


class KnowledgeBase:
    """One opened database: it reads from it, and holds the vectors as of the version that it last saw."""

    def __init__(
        self,
        name: str,
        reader: Reader,
        executor: ThreadPoolExecutor,
        refresh_seconds: float,
        *,
        opened: State,
        room: Room,
        threads: ThreadPoolExecutor,
        copy: Path | None = None,
    ) -> None:
        """Keep what is needed; vectors are loaded when they are first asked for.

        Args:
            name: What it was called when it was opened, for those who watch.
            reader: Of the database.
            executor: Where to load.
            refresh_seconds: The version is looked at no more often than this.
            opened: What the database said of itself when it was opened.
            room: What there is for its vectors.
            threads: Where searches in it run; those of a database on a server are its own.
            copy: The file in which they are kept for the next start; None is no file.
        """
        self.name = name
        self.reader = reader
        self.created_at = opened.created_at
        self.swapped = False  # whether it was last seen to belong to another owner
        self.columns = Columns(room.memory)
        self._asking_version = threading.Lock()
        self._tenant = opened.tenant
        self._room = room
        self._threads = threads
        self._copy = copy
        self.opened_at = now()
        self._executor = executor
        self._refresh_seconds = refresh_seconds
        self._vectors: Vectors | None = None
        self._measured: tuple[Vectors, Rows] | None = None
        self._looked = float("-inf")
        self._loading: Future[Vectors] | None = None
        self._asking, self._writing = threading.Lock(), threading.Lock()

    @property
    def vectors(self) -> Vectors | None:
        """The vectors that were last loaded; None before the first load is through."""
        return self._vectors

    def measured(self, vectors: Vectors) -> Rows:
        """A version's matrix, removed rows too, as the metrics take it; kept until another version is asked for."""
        kept = self._measured
        if kept is None or kept[0] is not vectors:
            assert vectors.matrix is not None  # noqa: S101 - nobody asks for what is not here
            kept = self._measured = vectors, rows_of(vectors.matrix.parts()[1])
        return kept[1]

    def version(self) -> object:
        """What is another one after each change to the database; None where nobody can tell."""
        with self._asking_version:
            return self.reader.version()

    def note(self, current: State) -> None:
        """Take note of what the database said of itself together with what was just read from it.

        Raises:
            StoreError: if it belongs to another owner than it did, so that what was read is not to be shown.
        """
        self.swapped = current.tenant != self._tenant
        require_owner(current, self._tenant)
        self.created_at = current.created_at

    def one_push(self, one: State | None, other: State | None) -> bool:
        """Whether what was read in two states belongs together; None is nothing that was read.

        What is on a server changes by a push at a time, as a whole; a file, while its folder is indexed, by a source.
        """
        if one is None or other is None:
            return True
        if (one.generation, one.created_at) != (other.generation, other.created_at):
            return False
        return one.version == other.version or self._room.directory is not None

    def close(self) -> None:
        """Let go of the database; what is under way ends in its time."""
        self.reader.close()

    async def in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run blocking `work` on it in one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def catch_up(self, *, at_once: bool = False) -> "Future[Vectors]":
        """Load what is new, in a worker thread, unless that is under way or was done within the interval.

        Args:
            at_once: See all that was committed before this call, whatever the interval.
        """
        with self._asking:
            last = self._loading
            if last is not None and not last.done() and not (at_once and last.running()):
                return last  # what has not begun will see all that is committed until then
            recent = time.monotonic() - self._looked < self._refresh_seconds
            if last is not None and last.done() and last.exception() is None and recent and not at_once:
                return last
            self._loading = self._executor.submit(self.load)
            return self._loading

    def load(self) -> Vectors:
        """Load what is new, in the calling thread.

        Raises:
            StoreError: if the database cannot be read.
        """
        with self._writing:
            # Set before looking: what is committed while we look is found the next time.
            self._looked = time.monotonic()
            known, room, copy = self._vectors, self._room, self._copy
            if known is None and copy is not None:
                known = kept(copy)
            before, began = known, time.perf_counter()
            vectors = self.reader.read_here(lambda connection: load(connection, known, room), whole=False)
            self.note(vectors.state)
            self._vectors = vectors
            if before is None or before.state != vectors.state:
                tell(
                    "loaded" if before is None else "refreshed",
                    database=self.name,
                    version=vectors.state.version,
                    vectors=vectors.counts.vectors,
                    place=vectors.place,
                    seconds=time.perf_counter() - began,
                )
            if copy is not None and (before is None or before.state.generation != vectors.state.generation):
                # Not before it is in use: nobody waits for the file.
                self._executor.submit(keep, copy, vectors)
            return vectors


def require_owner(current: State, tenant: str | None) -> None:
    """Check that a database is still whose it should be: one that was swapped must not be shown to strangers.

    Raises:
        StoreError: if it is not.
    """
    if current.tenant != tenant:
        raise StoreError("the database belongs to another owner than the catalog says")
