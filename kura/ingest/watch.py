"""Watching registered roots: index again, soon after files change, until told to stop."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event

from watchfiles import Change, watch

from kura.errors import IngestError
from kura.ingest.files import IGNORE_FILES, reason_of

SETTLE_MS = 400
"""Changes that follow each other within this time, in milliseconds, are dealt with together."""

TICK_MS = 500
"""How often, in milliseconds, to look whether a folder has gone or come back, and whether to stop."""


def changes(
    paths: Callable[[], Sequence[Path]],
    stop: Event,
    *,
    leave_out: Sequence[Path] = (),
    settle_ms: int = SETTLE_MS,
    tick_ms: int = TICK_MS,
) -> Iterator[frozenset[Path]]:
    """Yield which roots have changed, each time that they have become quiet; ends when `stop` is set.

    The first time all of them are yielded, once they are watched: nothing is missed that changes after an index was
    made. The same again whenever a root vanishes, comes back, or is new among `paths`. Changes that happen while the
    caller is at work are gathered. A file system that does not tell of changes (some network shares) is not followed.

    Args:
        paths: Is asked at every tick which folders and files are to be watched, resolved. Some may not be there.
        stop: Ends the iteration within a tick.
        leave_out: Folders whose changes say nothing, such as Kura's own data directory; a root inside of one counts.
        settle_ms: See `SETTLE_MS`.
        tick_ms: See `TICK_MS`.

    Raises:
        IngestError: if the system refuses, such as by its limit of watched folders.
    """
    while not stop.is_set():
        known = {path: _identity(path) for path in paths()}
        present = [path for path, identity in known.items() if identity is not None]
        started = False
        with contextlib.closing(_batches(present, stop, leave_out, settle_ms, tick_ms)) as batches:
            for changed in batches:
                if not started:
                    started = True
                    yield frozenset(known)
                elif changed:
                    yield changed
                if {path: _identity(path) for path in paths()} != known:
                    break


def _batches(
    present: Sequence[Path], stop: Event, leave_out: Sequence[Path], settle_ms: int, tick_ms: int
) -> Generator[frozenset[Path]]:
    """The roots that changed, time after time; an empty set for a tick in which none did.

    It ends when a root was deleted: one that is made anew at once may look the same, down to its inode, but is another
    folder, of which the system tells nothing.
    """
    relevant = _Relevant(present, leave_out)
    if not present:
        while not stop.is_set():
            yield frozenset()
            stop.wait(tick_ms / 1000)
        return
    try:
        for batch in watch(
            *present,
            watch_filter=relevant,
            debounce=settle_ms * 8,
            step=settle_ms,
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            stop_event=stop,
            ignore_permission_denied=True,
        ):
            yield relevant.roots(Path(path) for _, path in batch)
            if any(change is Change.deleted and Path(path) in present for change, path in batch):
                return
    except (FileNotFoundError, NotADirectoryError):
        stop.wait(tick_ms / 1000)  # one of them went away just now
    except OSError as error:
        raise IngestError(f"the folders cannot be watched: {reason_of(error)}") from error


class _Relevant:
    """Which events are about files that could be sources, and below which root."""

    def __init__(self, paths: Sequence[Path], leave_out: Sequence[Path]) -> None:
        # The innermost root first: a nested one owns its files.
        self._roots = sorted(paths, key=lambda path: -len(path.parts))
        self._leave_out = leave_out

    def __call__(self, _change: Change, path: str) -> bool:
        return self._root_of(Path(path)) is not None

    def roots(self, paths: Iterable[Path]) -> frozenset[Path]:
        return frozenset(root for path in paths if (root := self._root_of(path)) is not None)

    def _root_of(self, path: Path) -> Path | None:
        for root in self._roots:
            if path.is_relative_to(root):
                inside = path.relative_to(root).parts
                hidden = any(part.startswith(".") for part in inside[:-1])
                name = inside[-1] if inside else ""
                if hidden or (name.startswith(".") and name not in IGNORE_FILES) or name.endswith("~"):
                    return None
                if any(path.is_relative_to(out) and not root.is_relative_to(out) for out in self._leave_out):
                    return None
                return root
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells one folder from another in its place, while both exist; None where there is nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
