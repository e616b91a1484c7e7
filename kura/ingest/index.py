"""Files to store: make the index say what the files say. What has not changed is neither read nor embedded again.

Every source is written in one transaction, and new ones before those that are gone are removed, so that a file which
moved takes its vectors along. A run may end at any moment; the next one goes on from what is in the database.
"""

import functools
import hashlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from kura.embed import CountsTokens, Embedder
from kura.embed.threads import Threaded
from kura.errors import Unreadable
from kura.ingest.embedding import Embedding, Model, Prepared
from kura.ingest.files import File, Problem, Walk, below, reason_of, walk
from kura.ingest.parse import is_never_text, parse, read
from kura.ingest.report import Done, Embedded, Found, Outcome, Progress, Report, Waiting
from kura.ingest.roots import Target
from kura.ingest.split import Count, split
from kura.store.engine import Connection
from kura.store.segments import seal
from kura.store.sources import (
    Root,
    Source,
    clear_vectors,
    device,
    forget_files,
    remove_sources,
    roots,
    set_device,
    set_embedder,
    set_tokenizer,
    sources,
    state,
    statistics,
    text_hash,
    touch_source,
)
from kura.text.estimate import estimate_tokens
from kura.text.passage import passage
from kura.text.tokens import TOKENIZER_VERSION

_RACY_NS = 2_000_000_000  # the coarsest clock of a file system (FAT) ticks every two seconds
_SLOW = 200_000  # characters that take a moment to split
_UNSURE = -1  # a modification time that no file has: the next run looks at the content


def reconcile(
    connection: Connection,
    targets: Iterable[Target] | None = None,
    *,
    model: Model | None,
    max_file_bytes: int,
    leave_out: Collection[Path] = (),
    rebuild: bool = False,
    progress: Progress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Report:
    """Make the index say what the files below `targets` say.

    What cannot be read keeps its earlier content and is named among the problems; so is a root that is not there. With
    a model, whatever waits for a vector gets one, whichever run left it so. Where the tokens in the database are of
    another version of the tokeniser, every file below the targets is indexed again.

    Args:
        connection: From `writing`.
        targets: What to look at; None is every registered root.
        model: What makes vectors. Without one, new chunks wait for a later run; keyword search finds them.
        max_file_bytes: Larger files are problems.
        leave_out: Folders and files that are never indexed, such as Kura's own data directory. A root that lies inside
            of one is indexed all the same.
        rebuild: Read, split and embed everything again, also where the vectors are of another embedder.
        progress: Is told what happens.
        should_stop: Is asked between files and between batches. What was done by then stays.

    Raises:
        EmbedderMismatch: before anything is written, if the database holds vectors of another embedder. Where only
            the first vectors tell their length, a mismatch of that is a problem, and new chunks wait.
        EmbedderError: if the embedder cannot be loaded.
        StoreError: if the database cannot be written.
    """
    known = roots(connection)
    chosen = [Target(root) for root in known] if targets is None else _without_repeats(targets)
    if rebuild:
        if model is not None:
            # If this fails, all stays as it is. An embedder that is elsewhere has to answer for that.
            model = replace(model, dimension=model.load().dimension)
        # Now and not one by one: should this run be interrupted, the next one goes on with those that are left.
        for target in chosen:
            stored = sources(connection, target.root.id)
            forget_files(connection, [source.id for path, source in stored.items() if below(path, target.within)])
    if model is not None:
        if rebuild:
            clear_vectors(connection)
        set_embedder(connection, model.name, model.dimension)
    outdated = state(connection).tokenizer != TOKENIZER_VERSION
    run = _Run(
        connection=connection,
        model=model,
        known=known,
        leave_out=leave_out,
        max_file_bytes=max_file_bytes,
        afresh=rebuild or outdated,
        progress=progress,
        should_stop=should_stop,
    )
    for target in chosen:
        run.reconcile(target)
    run.finish()
    whole = {target.root.id for target in chosen if not target.within}
    if outdated and run.complete and not run.stopped and whole.issuperset(root.id for root in known):
        set_tokenizer(connection)
        outdated = False
    return run.report(outdated=outdated)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run: what it works with, and what it has counted so far.

    Attributes:
        afresh: Whether to index also what has not changed.
        complete: Whether no source was left as it was for want of its file.
        stopped: Whether `should_stop` has said so.
    """

    connection: Connection
    model: Model | None
    known: Sequence[Root]
    leave_out: Collection[Path]
    max_file_bytes: int
    afresh: bool
    progress: Progress
    should_stop: Callable[[], bool]
    complete: bool = True
    stopped: bool = False
    counts: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    touched: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    gone: list[tuple[Root, Source]] = field(default_factory=list[tuple[Root, Source]])
    load: Callable[[], Embedder] | None = field(init=False)
    embedding: Embedding = field(init=False)

    def __post_init__(self) -> None:
        self.load = functools.cache(self.model.load) if self.model else None
        claim = self._claim if self.model and self.model.dimension is None else None
        self.embedding = Embedding(self.connection, self._threaded(), self._embedded, self._asked_to_stop, claim)

    def reconcile(self, target: Target) -> None:
        root, within = target.root, target.within
        others = [Path(other.path) for other in self.known if other.id != root.id]
        try:
            found = walk(Path(root.path), others=[*others, *self.leave_out])
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            reason = "is not there" if gone else f"cannot be read: {reason_of(error)}"
            self._problem(root.label, f"the folder {reason}; what was indexed from it stays")
            self.complete = False
            return
        for problem in found.problems:
            if below(problem.path, within):
                self._problem(self._shown(root, problem.path), problem.reason)
        gone = sources(self.connection, root.id)
        if not self._is_at_home(root, found, len(gone)):
            self.complete = False
            return
        changed = self._changed(found, gone, within)
        changed.sort(key=lambda pair: pair[0].size)  # small files first: a long one must not keep the others waiting
        real = os.path.realpath(root.path)
        self.progress(Found(root.label, len(found.files), len(changed)))
        for file, source in changed:
            if self._asked_to_stop():
                break
            alone = file.path == within if within else file.location == real
            if not self._index(root, file, source, alone=alone) and source is not None:
                gone[source.path] = source
        self.embedding.flush()
        self._touch()
        # What is in a folder that could not be listed may well be there still.
        kept = {path for folder in found.unread for path in gone if below(path, folder)}
        self.complete = self.complete and not kept
        self.gone += [(root, source) for path, source in gone.items() if path not in kept and below(path, within)]
        self._take_over(PurePath(root.path, within), root)

    def _is_at_home(self, root: Root, found: Walk, before: int) -> bool:
        """False for what is left in the place of a drive that is not mounted: an empty folder on another device."""
        try:
            here = str(Path(root.path).stat().st_dev)
        except OSError:
            here = ""
        if found.files:
            set_device(self.connection, root.id, here)
        elif before and device(self.connection, root.id) not in {None, here}:
            self._problem(
                root.label,
                "the folder is empty, and not on the device that it was on (a drive that is not mounted?); what was"
                " indexed from it stays; if its files are really gone, run `kura remove NAME --folder"
                f" {shlex.quote(root.label)}`",
            )
            return False
        return True

    def finish(self) -> None:
        """Remove what is gone, give everything that waits its vector, whoever left it so, and pack the vectors.

        Only now, when all that is new is in, can nothing that moved lose its vectors. A run that was stopped has not
        got there.
        """
        if self.gone and not self.stopped:
            remove_sources(self.connection, [source.id for _, source in self.gone])
            for root, source in self.gone:
                self._done(self._shown(root, source.path), "removed")
        if self.embedding.embedder is not None and not self._asked_to_stop():
            waiting = statistics(self.connection).pending
            if waiting:
                self.progress(Waiting(waiting))
        self.embedding.fill()
        if self.embedding.failure is not None:
            self._problem("embedder", f"{self.embedding.failure}; what waits for vectors is found by keyword only")
        if self.counts:
            seal(self.connection)

    def report(self, *, outdated: bool) -> Report:
        counts = self.counts
        return Report(
            added=counts["added"],
            updated=counts["updated"],
            unchanged=counts["unchanged"],
            removed=counts["removed"],
            empty=counts["empty"],
            not_text=counts["not text"],
            problems=tuple(self.problems),
            chunks=counts["chunks"],
            embedded=counts["embedded"],
            pending=statistics(self.connection).pending,
            outdated=outdated,
            stopped=self.stopped,
        )

    def _changed(self, found: Walk, indexed: dict[str, Source], within: str) -> list[tuple[File, Source | None]]:
        """Files to look at, with their sources; all that were found are taken out of `indexed`."""
        changed: list[tuple[File, Source | None]] = []
        unchanged = 0
        for file in found.files:
            source = indexed.pop(file.path, None)
            if within and not below(file.path, within):
                continue
            if source and source.size == file.size and source.mtime_ns == file.mtime_ns and not self.afresh:
                unchanged += 1
            else:
                changed.append((file, source))
        if unchanged:
            self.counts["unchanged"] += unchanged
        return changed

    def _index(self, root: Root, file: File, source: Source | None, *, alone: bool) -> bool:
        """Deal with a file that may have changed, `alone` if it was named itself; False if it does not belong here."""
        shown = self._shown(root, file.path)
        try:
            now = time.time_ns()
            got = None if is_never_text(file.path) else read(file.location, file.path, most=self.max_file_bytes)
            digest = hashlib.sha256(got.data).hexdigest() if got else ""
            if got and source and source.content_hash == digest and not self.afresh:
                mtime_ns = _sure(got.mtime_ns, now)
                if (source.size, source.mtime_ns) != (got.size, mtime_ns):
                    self.touched.append((source.id, got.size, mtime_ns))
                self._done(shown, "unchanged")
                return True
            parsed = parse(file.path, got.data) if got else None
            if (got is None or parsed is None) and not alone:
                self._done(shown, "not text")
                return False
        except FileNotFoundError:
            return False  # gone since the folder was listed
        except Unreadable as error:
            self._problem(shown, str(error))
            self.complete = self.complete and source is None
            return True
        if got is None or parsed is None:
            self._problem(shown, "not text; text, Markdown and source code can be indexed")
            self.complete = self.complete and source is None
            return True
        if len(parsed.text) > _SLOW:
            self.embedding.flush()
        chunks = tuple(split(parsed.text, parsed.kind, self._count()))
        texts = (passage(chunk.heading, chunk.content) for chunk in chunks)
        self.embedding.add(
            Prepared(
                root_id=root.id,
                path=file.path,
                content_hash=digest,
                size=got.size,
                mtime_ns=_sure(got.mtime_ns, now),
                chunks=chunks,
                texts={text_hash(text): text for text in texts},
            )
        )
        self.counts["chunks"] += len(chunks)
        self.counts["empty"] += not chunks
        self._done(shown, "updated" if source else "added")
        return True

    def _take_over(self, place: PurePath, root: Root) -> None:
        """Let go what an enclosing root indexed there before `root` was registered: one file is one source."""
        for outer in self.known:
            if outer.id != root.id and place.is_relative_to(outer.path):
                inside = place.relative_to(outer.path).as_posix()
                doubled = [s for path, s in sources(self.connection, outer.id).items() if below(path, inside)]
                self.gone += [(outer, source) for source in doubled]

    def _touch(self) -> None:
        if self.touched:
            with self.connection.transaction():
                for touch in self.touched:
                    touch_source(self.connection, *touch)
            self.touched.clear()

    def _threaded(self) -> Callable[[], Embedder] | None:
        model, load = self.model, self.load
        if model is None or load is None or model.threads == 1:
            return load
        return functools.cache(lambda: Threaded(load(), model.threads))

    def _claim(self, dimension: int) -> None:
        if self.model is not None:
            set_embedder(self.connection, self.model.name, dimension)

    def _count(self) -> Count:
        embedder = self.load() if self.load else None
        return embedder.count_tokens if isinstance(embedder, CountsTokens) else estimate_tokens

    def _asked_to_stop(self) -> bool:
        self.stopped = self.stopped or self.should_stop()
        return self.stopped

    def _embedded(self, texts: int) -> None:
        self.counts["embedded"] += texts
        self.progress(Embedded(texts))

    def _done(self, path: str, outcome: Outcome) -> None:
        self.counts[outcome] += 1
        self.progress(Done(path, outcome))

    def _problem(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason))
        self.progress(Done(path, "problem", reason))

    def _shown(self, root: Root, path: str) -> str:
        """The path as a search shows it."""
        return f"{root.label}/{path}" if len(self.known) > 1 else path


def _sure(mtime_ns: int, now: int) -> int:
    """The time to remember. A file changed within the last tick of its clock may change again and show the same."""
    return mtime_ns if mtime_ns < now - _RACY_NS else _UNSURE


def _without_repeats(targets: Iterable[Target]) -> list[Target]:
    """The targets in their order, without those that lie inside of others."""
    chosen = list(dict.fromkeys(targets))
    return [target for target in chosen if not any(_covers(other, target) for other in chosen if other != target)]


def _covers(outer: Target, inner: Target) -> bool:
    return outer.root.id == inner.root.id and below(inner.within, outer.within)
