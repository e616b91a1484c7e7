"""The lock of the one process that changes a database's content, held for a whole run rather than a transaction."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kura.errors import Busy, StoreError


@contextmanager
def indexing(database: Path, *, patience: float) -> Generator[None]:
    """Be the only process that indexes into, or removes, a database.

    The lock is a file beside the database; it ends with the process, however that ends.

    Args:
        database: The database file.
        patience: Seconds to wait for another process.

    Raises:
        Busy: if the other one did not finish in time.
        StoreError: if the lock file cannot be made.
    """
    busy = "another process is indexing into this database; wait until it is done, or stop it"
    with _held(database.with_name(database.name + ".lock"), patience, busy):
        yield


@contextmanager
def publishing(database: Path) -> Generator[None]:
    """Be the only process that publishes a database or fetches into it; others can index meanwhile.

    Raises:
        Busy: if another one does.
        StoreError: if the lock file cannot be made.
    """
    busy = "another process is publishing this database; wait until it is done, or stop it"
    with _held(database.with_name(database.name + ".push.lock"), 0.0, busy):
        yield


@contextmanager
def _held(file: Path, patience: float, busy: str) -> Generator[None]:
    lock = FileLock(file, timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise Busy(busy) from None
    except OSError as error:
        raise StoreError(f"the database cannot be locked for writing: {error.strerror or 'unknown reason'}") from error
    try:
        yield
    finally:
        lock.release()
