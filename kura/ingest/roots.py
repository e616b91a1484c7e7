"""What is indexed, and who may write: registered roots, parts of them, and the lock of the one indexing process."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kura.errors import IngestError
from kura.ingest.files import printable, reason_of
from kura.store.lock import indexing
from kura.store.migrations import migrate
from kura.store.sources import Root, add_root, roots
from kura.store.sqlite import Connection, open_for_writing


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

    Args:
        connection: From `writing`.
        path: A folder or a file.
        label: What a new root is called, with a number added where that is taken; None is the folder's name. A root
            that is registered already keeps its own.

    Raises:
        IngestError: if there is no such root, and no such file or folder either.
    """
    full = resolved(path)
    for root in sorted(roots(connection), key=lambda root: -len(root.path)):
        if full.is_relative_to(root.path):
            within = full.relative_to(root.path).as_posix()
            return Target(root, "" if within == "." else within)
    if printable(str(full)) != str(full):
        raise IngestError(f'the path "{printable(str(path))}" is not valid Unicode; rename it')
    try:
        full.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise IngestError(f'there is no file or folder "{path}"') from None
    except OSError as error:
        raise _unusable(path, reason_of(error)) from error
    return Target(add_root(connection, str(full), label or full.name or "files"))


def _unusable(path: Path, reason: str) -> IngestError:
    return IngestError(f'the path "{printable(str(path))}" cannot be used: {reason}')
