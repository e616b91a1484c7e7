"""What is indexed, and who may write: registered roots, parts of them, and the lock of the one indexing process."""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kura.errors import IngestError, Unreadable
from kura.ingest.files import below, left_out, printable, reason_of
from kura.ingest.parse import is_never_text, parse, read
from kura.store.engine import Connection
from kura.store.lock import indexing
from kura.store.migrations import migrate
from kura.store.sources import Root, add_root, move_root, roots, sources
from kura.store.sqlite import open_for_writing


@dataclass(frozen=True, slots=True)
class Target:
    """A registered root, or the part of it that lies at the relative POSIX path `within`."""

    root: Root
    within: str = ""


@contextmanager
def writing(database: Path, *, patience: float = 0.0) -> Generator[Connection]:
    """Open a database as its only indexing process, with the newest schema.

    Args:
        database: The database file. The lock is a file beside it and ends with the process, however that ends.
        patience: Seconds to wait for another process that is indexing.

    Raises:
        Busy: if it did not finish in time.
        StoreError: if the database cannot be opened or locked.
    """
    with indexing(database, patience=patience):
        connection = open_for_writing(database)
        try:
            migrate(connection)
            yield connection
        finally:
            connection.close()


def resolved(path: Path) -> Path:
    """The path in full, as roots are stored: absolute, without links, `~` replaced. It need not exist.

    Raises:
        IngestError: if there can be no such path.
    """
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise _unusable(path, "there is no such home folder") from error
    try:
        return path.resolve()
    except OSError as error:
        raise _unusable(path, reason_of(error)) from error
    except RuntimeError as error:  # Python before 3.13
        raise _unusable(path, "a link in it leads back to itself") from error
    except ValueError as error:
        raise _unusable(path, "no path holds such a character") from error


def register(connection: Connection, path: Path, *, label: str | None = None) -> Target:
    """The registered root that is or holds `path`; where there is none, `path` becomes one.

    So it does where the root that holds it leaves it out, as hidden or ignored: it was named, so it is wanted.

    Args:
        connection: From `writing`.
        path: A folder or a file.
        label: What a new root is called, with a number added where that is taken; None is the folder's name. A root
            that is registered already keeps its own.

    Raises:
        IngestError: if there is no such root, and no such file or folder either.
    """
    full = resolved(path)
    known = _registered(roots(connection), full)
    if known is not None:
        return known
    _require_there(path, full)
    called = label or full.name or "files"
    for root in roots(connection):
        # Only its label was published: it is the same folder as found here.
        if root.label == called and not is_here(root):
            return Target(move_root(connection, root.id, str(full)))
    return Target(add_root(connection, str(full), called))


def is_here(root: Root) -> bool:
    """Whether it is known where a root is on this machine; of what was fetched from a server it is not."""
    return Path(root.path).is_absolute()


def require_usable(connection: Connection, paths: Iterable[Path], *, max_file_bytes: int) -> None:
    """Check, before any of them becomes a root, that something can be indexed from each of the paths.

    Otherwise every later run would look at it and fail. Below what is registered already a path may also name
    something that is in the index and gone from the disk.

    Raises:
        IngestError: naming the first that cannot be used.
    """
    known = roots(connection)
    for path in paths:
        full = resolved(path)
        target = _registered(known, full)
        if target is None:
            _require_there(path, full)
            _require_readable(path, full, max_file_bytes)
        elif target.within:
            try:
                _require_there(path, full)
            except IngestError:
                if not any(below(source, target.within) for source in sources(connection, target.root.id)):
                    raise


def left_out_of(known: Iterable[Root], inner: Root) -> str | None:
    """Why one of the roots, around `inner`, does not index what is there; None if none does or there is none."""
    for outer in known:
        if outer.id != inner.id and Path(inner.path).is_relative_to(outer.path):
            within = Path(inner.path).relative_to(outer.path).as_posix()
            if why := left_out(Path(outer.path), within):
                return f'{why} in "{outer.label}"'
    return None


def _registered(known: Iterable[Root], full: Path) -> Target | None:
    for root in sorted(known, key=lambda root: -len(root.path)):
        if full.is_relative_to(root.path):
            within = full.relative_to(root.path).as_posix()
            if within == ".":
                return Target(root)
            # What is gone has to leave the index, whatever rules would hold for it.
            if left_out(Path(root.path), within) is None or not os.path.lexists(full):
                return Target(root, within)
    return None


def _require_there(path: Path, full: Path) -> None:
    if printable(str(full)) != str(full):
        raise IngestError(f'the path "{printable(str(path))}" is not valid Unicode; rename it')
    try:
        full.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise IngestError(f'there is no file or folder "{path}"') from None
    except OSError as error:
        raise _unusable(path, reason_of(error)) from error


def _require_readable(path: Path, full: Path, max_file_bytes: int) -> None:
    try:
        if full.is_dir():
            os.scandir(full).close()
            return
        if not full.is_file():
            raise _unusable(path, "it is neither a folder nor a regular file")
        got = None if is_never_text(full.name) else read(str(full), full.name, most=max_file_bytes)
        if got is None or parse(full.name, got.data) is None:
            raise _unusable(path, "it is not text; text, Markdown and source code can be indexed, so convert it first")
    except Unreadable as error:
        raise _unusable(path, f"it {error}") from error
    except OSError as error:
        raise _unusable(path, reason_of(error)) from error


def _unusable(path: Path, reason: str) -> IngestError:
    return IngestError(f'the path "{printable(str(path))}" cannot be used: {reason}')
