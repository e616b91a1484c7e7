"""What a process keeps between searches: opened databases with their vectors, and the embedder.

Everything here is made once, when the process starts, and shared by all requests. Loading happens in worker threads, so
nothing that a request began is left behind on its event loop.
"""

import asyncio
import logging
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kura.access.principal import may_see
from kura.embed import Embedder
from kura.errors import EmbedderError, KuraError, StoreError, Unavailable, UnknownDatabase
from kura.events import tell
from kura.library.knowledge import KnowledgeBase, require_owner
from kura.store import sqlite
from kura.store.catalog import Catalog, Entry, explained, listed
from kura.store.copies import file_of
from kura.store.elsewhere import Elsewhere
from kura.store.engine import Connection, Reader
from kura.store.migrations import now, require_whole
from kura.store.segments import Room
from kura.store.sources import State, state
from kura.types import Rules, Session

log = logging.getLogger(__name__)
T = TypeVar("T")
_Key = tuple[str, str | None, str | None]

VECTOR_MEMORY = 1_000_000_000
"""Bytes for the vectors of one database, unless told otherwise: 650,000 of 384 dimensions."""

OPENING_SECONDS = 10.0
"""How long a request waits for a database on a server to be opened; one that was scaled to zero has to start."""

RETRY_SECONDS = 2.0
"""A database on a server that could not be opened is not tried again sooner."""


class Library:
    """The databases of a catalog as one process sees them. Safe for use by many requests at once."""

    def __init__(
        self,
        catalog: Catalog,
        load_embedder: Callable[[], Embedder | None],
        *,
        elsewhere: Elsewhere | None = None,
        vector_memory: int = VECTOR_MEMORY,
        spill: Path | None = None,
        copies: Path | None = None,
        refresh_seconds: float = 1.0,
        patience: float = 2.0,
        rules: Rules | None = None,
    ) -> None:
        """Keep what is needed; nothing is opened before `start` or the first request.

        Args:
            catalog: Where the databases of this machine are.
            load_embedder: Called once, in a worker thread; None means that there is no semantic search.
            elsewhere: Databases on servers; a name that this machine has too is served from here.
            vector_memory: Bytes of memory that the vectors of one database may take.
            spill: A folder for files that are mapped into memory where vectors of a local database take more; None is
                that of the data directory.
            copies: A folder in which vectors from servers are kept for the next start; None keeps none.
            refresh_seconds: A database's version is looked at no more often than this.
            patience: Seconds that a request waits for vectors or the embedder before it goes on without them.
            rules: What agents may do with SQL.
        """
        self.patience = patience
        self.rules = rules or Rules()
        self.started_at = now()
        self._catalog = catalog
        self._elsewhere = elsewhere
        self._vector_memory = vector_memory
        self._spill = spill or catalog.data_dir / "vectors"
        self._copies = copies
        self._load_embedder = load_embedder
        self._refresh_seconds = refresh_seconds
        self._executor = ThreadPoolExecutor(max_workers=8, thread_name_prefix="kura")
        # Apart from the former: a long load must not keep searches in other databases waiting.
        self._loaders = ThreadPoolExecutor(max_workers=16, thread_name_prefix="kura-load")
        # What nobody waits for by name: at the start, and to say which are loaded.
        self._openers = ThreadPoolExecutor(max_workers=16, thread_name_prefix="kura-open")
        # Of each database on a server: one that hangs must not keep others waiting.
        self._threads: dict[_Key, ThreadPoolExecutor] = {}
        self._listing = sqlite.Reader(catalog.file, self._executor)
        self._lock = threading.Lock()
        # By the whole entry but its name: a renamed database stays open, one that was added anew is another.
        self._bases: dict[_Key, KnowledgeBase] = {}
        self._failed: dict[_Key, tuple[float, Unavailable]] = {}
        self._opening: dict[_Key, Future[KnowledgeBase]] = {}
        self._embedder: Future[Embedder | None] | None = None

    def start(self, within: float = 0.0) -> None:
        """Begin to load the embedder and every database; wait for them for at most `within` seconds."""
        until = time.monotonic() + within
        embedder = self.embedder()
        self._here()  # whoever starts is told of a catalog on this machine that is broken
        listing = self._openers.submit(self._begin_all)
        # In a thread: a catalog on a server may hang.
        wait([listing], timeout=within if self._elsewhere is not None else None)
        beginning = listing.result() if listing.done() else []
        under_way: list[Future[Any]] = [embedder, *beginning]
        wait(under_way, timeout=max(0.0, until - time.monotonic()))

    def embedder(self) -> "Future[Embedder | None]":
        """The embedder, which begins to load when it is first asked for."""
        with self._lock:
            if self._embedder is None:
                self._embedder = self._loaders.submit(self._loaded_embedder)
            return self._embedder

    async def registered(self, session: Session) -> list[Entry]:
        """All databases that the session may see, by name."""
        return [entry for entry in await self.in_thread(self.entries) if may_see(session, entry.name, entry.tenant)]

    async def loaded(self, session: Session) -> list[str]:
        """Names of the databases that the session may see and this process can search now."""
        entries = await self.registered(session)
        return await self.in_thread(self._opened_of, entries)

    async def opened(self, session: Session) -> list[tuple[Entry, KnowledgeBase | None]]:
        """The databases that the session may see, each with what is open of it; nothing is opened or waited for."""
        return [(entry, self._open_already(entry)) for entry in await self.registered(session)]

    def embedder_state(self) -> str:
        """The embedder's name, or why there is none: `none`, `loading`, `failed`."""
        loading = self.embedder()
        if not loading.done():
            return "loading"
        if loading.exception() is not None:
            return "failed"
        embedder = loading.result()
        return "none" if embedder is None else embedder.name

    async def open(self, session: Session, name: str) -> KnowledgeBase:
        """The database of that name, opened.

        Raises:
            UnknownDatabase: if there is none, or the session may not see it; the two read alike.
            Unavailable: if it may be seen but cannot be opened.
        """
        wanted = unicodedata.normalize("NFC", name)
        entries = await self.registered(session)
        for entry in entries:
            if entry.name == wanted:
                base = self._open_already(entry)
                if base is not None:
                    return base
                if entry.url is None:
                    return await self.in_thread(self._opened, entry)
                opening = self._begin_opening(entry, self._threads_of(entry))
                if not await waited(opening, max(self.patience, OPENING_SECONDS)):
                    raise Unavailable(entry.name, "it is still being opened; ask again soon")
                return opening.result()
        if self._elsewhere is not None and self._elsewhere.fault is not None:
            raise Unavailable(name, f"the catalog that may name it cannot be read: {self._elsewhere.fault}")
        raise UnknownDatabase(name, tuple(entry.name for entry in entries))

    async def in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run blocking `work` in one of the library's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def close(self) -> None:
        """Stop, once work in progress is through, and let go of all files."""
        with self._lock:
            own = list(self._threads.values())
        for executor in (self._openers, self._loaders, self._executor, *own):
            executor.shutdown(wait=True, cancel_futures=True)
        self._retain(())
        self._listing.close()
        if self._elsewhere is not None:
            self._elsewhere.close()

    def entries(self) -> list[Entry]:
        """All databases, whoever may see them, by name."""
        entries = self._here()
        if self._elsewhere is not None:
            here = {entry.name for entry in entries}
            entries += [self._dated(entry) for entry in self._elsewhere.entries() if entry.name not in here]
            entries.sort(key=lambda entry: entry.name)
        self._retain(entries)
        return entries

    def _here(self) -> list[Entry]:
        """The databases of this machine."""
        if not self._catalog.file.exists():
            return []
        with explained():
            return self._listing.read_here(listed)

    def _dated(self, entry: Entry) -> Entry:
        base = self._open_already(entry)
        return entry if base is None or entry.created_at is not None else replace(entry, created_at=base.created_at)

    def _retain(self, entries: Iterable[Entry]) -> None:
        """Close what was opened for databases that have been removed meanwhile."""
        kept = {_key(entry) for entry in entries}
        with self._lock:
            gone = [self._bases.pop(key) for key in list(self._bases) if key not in kept]
            for key in self._threads.keys() - kept:
                # Not shut down: searches that have begun may still use them. They end when nobody does.
                del self._threads[key]
        for base in gone:
            base.close()

    def _begin_opening(self, entry: Entry, executor: ThreadPoolExecutor) -> "Future[KnowledgeBase]":
        """Open a database in a thread, which is done once however many ask for it at the same time."""
        key = _key(entry)
        with self._lock:
            base = self._bases.get(key)
            if base is not None and entry.url is not None:
                return _done(base)
            opening = self._opening.get(key)
            # Whoever asks for it by name does not wait until it is its turn among all of them.
            queued = opening is not None and not opening.running() and executor is not self._openers
            if opening is None or opening.done() or queued:
                opening = self._opening[key] = executor.submit(self._opened, entry)
            return opening

    def _threads_of(self, entry: Entry) -> ThreadPoolExecutor:
        """Where searches in a database run."""
        if entry.url is None:
            return self._executor
        with self._lock:
            return self._threads.setdefault(_key(entry), ThreadPoolExecutor(8, "kura-server"))

    def _open_already(self, entry: Entry) -> KnowledgeBase | None:
        with self._lock:
            return self._bases.get(_key(entry))

    def _opened(self, entry: Entry) -> KnowledgeBase:
        base = self._open_already(entry)
        if base is not None and (entry.url is not None or self._catalog.path(entry).exists()):
            return base
        with self._lock:
            at, error = self._failed.get(_key(entry), (float("-inf"), None))
        if error is not None and time.monotonic() - at < RETRY_SECONDS:
            raise error
        threads = self._threads_of(entry)
        reader = self._reader(entry, threads)
        began = time.perf_counter()
        try:
            known = reader.read_here(partial(_described, tenant=entry.tenant), whole=False)
        except StoreError as error:
            reader.close()
            unavailable = Unavailable(entry.name, str(error))
            tell("unavailable", database=entry.name, code=error.code)
            if entry.url is not None:
                # Whoever lists all of them must not wait for this one again and again.
                with self._lock:
                    self._failed[_key(entry)] = time.monotonic(), unavailable
            raise unavailable from error
        with self._lock:
            base = self._bases.setdefault(
                _key(entry),
                KnowledgeBase(
                    entry.name,
                    reader,
                    self._loaders if entry.url is None else threads,
                    self._refresh_seconds,
                    opened=known,
                    threads=threads,
                    room=Room(self._vector_memory, self._spill if entry.url is None else None),
                    copy=file_of(self._copies, entry.url) if self._copies and entry.url else None,
                ),
            )
        if base.reader is not reader:
            reader.close()
        else:
            tell("opened", database=entry.name, seconds=time.perf_counter() - began)
        return base

    def _reader(self, entry: Entry, threads: ThreadPoolExecutor) -> Reader:
        if entry.url is not None and self._elsewhere is not None:
            return self._elsewhere.reader(entry, threads)
        return sqlite.Reader(self._catalog.path(entry), threads)

    def _opened_of(self, entries: Iterable[Entry]) -> list[str]:
        """Names of those that are open, or are within the library's patience."""
        opening = {entry.name: self._begin_opening(entry, self._openers) for entry in entries}
        done, _ = wait(opening.values(), timeout=self.patience)
        for future in done:
            if (error := future.exception()) is not None:
                log.warning("%s", error)
        return [
            name
            for name, future in opening.items()
            if future in done and future.exception() is None and not future.result().swapped
        ]

    def _opened_or_none(self, entry: Entry) -> KnowledgeBase | None:
        try:
            return self._opened(entry)
        except Unavailable as error:
            log.warning("%s", error)
            return None

    def _begin_all(self) -> "list[Future[None]]":
        return [self._openers.submit(self._begin, entry) for entry in self.entries()]

    def _begin(self, entry: Entry) -> None:
        base, embedder = self._opened_or_none(entry), self.embedder()
        if base is None or (embedder.done() and embedder.exception() is None and embedder.result() is None):
            return  # nobody will ask for vectors
        base.catch_up().result()  # so many at a time

    def _loaded_embedder(self) -> Embedder | None:
        began = time.perf_counter()
        try:
            embedder = self._load_embedder()
        except KuraError as error:
            tell("embedder", code=error.code, seconds=time.perf_counter() - began)
            raise
        except Exception as error:
            # The end of a thread: nobody above would write it down, and keyword search goes on without it.
            log.exception("the embedder could not be loaded")
            raise EmbedderError("the embedder could not be loaded; the log of this process says why") from error
        name = "none" if embedder is None else embedder.name
        tell("embedder", embedder=name, seconds=time.perf_counter() - began)
        return embedder


def _done(base: KnowledgeBase) -> "Future[KnowledgeBase]":
    future = Future[KnowledgeBase]()
    future.set_result(base)
    return future


def _key(entry: Entry) -> _Key:
    # What is on a server has its time of creation from the server, and only once it was reached.
    return entry.url or entry.file, entry.created_at if entry.url is None else None, entry.tenant


def _described(connection: Connection, tenant: str | None) -> State:
    require_whole(connection)
    known = state(connection)
    require_owner(known, tenant)
    return known


async def waited(future: "Future[Any]", seconds: float) -> bool:
    """Wait for a thread's result, which others may wait for too; returns whether it is there.

    The thread's work goes on whatever becomes of this request, and does not mind if the event loop is gone by then.
    """
    if future.done():
        return True
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: "Future[Any]") -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(arrived.set)

    future.add_done_callback(tell)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await arrived.wait()
    return future.done()
