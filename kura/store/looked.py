"""What is kept elsewhere and looked at again now and then: in a file, on a server."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from kura.errors import ConfigurationError, KuraError

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How long a caller waits for another look before it goes on with what was seen last."""


class Looked(Generic[T]):
    """A value that is read from where it may take long. Safe for use by many threads at once.

    Attributes:
        fault: Why the last look gave nothing; None if it did.
    """

    def __init__(
        self, read: Callable[[], T], *, every: float, soonest: float | None = None, keep: float = float("inf")
    ) -> None:
        """Keep what is needed; nothing is read yet.

        Args:
            read: Reads it, and may wait; it raises a `KuraError` if that is not possible.
            every: Seconds after which it is read again.
            soonest: Seconds before which it is never read again, whoever asks; None is `every`.
            keep: Seconds for which a value is good while a newer one cannot be read.
        """
        self.fault: KuraError | None = None
        self._read = read
        self._every, self._soonest, self._keep = every, every if soonest is None else soonest, keep
        self._seen: list[T] = []
        self._looked = self._good = float("-inf")
        self._lock = threading.Lock()
        self._looking: threading.Thread | None = None

    def get(self, *, again: bool = False, within: float | None = None) -> T:
        """The value as it was seen last; the caller waits for a newer one, but not long where there is one already.

        Args:
            again: What was seen does not do: wait for another look, unless one was had a moment ago.
            within: Seconds to wait at most where there is no value yet; None waits for as long as reading takes.

        Raises:
            KuraError: the last look's, if there is no value that is still good.
        """
        with self._lock:
            first = self._looked == float("-inf")
            age = time.monotonic() - self._looked
            due = age >= (self._soonest if again or self.fault is not None else self._every)
            looking = self._looking
            if due and (looking is None or not looking.is_alive()):
                looking = self._looking = threading.Thread(target=self._look, daemon=True)
                looking.start()
        if looking is not None:
            looking.join(within if again or first else LOOK_SECONDS)
        if self._seen and time.monotonic() - self._good <= self._keep:
            return self._seen[0]
        raise self.fault or KuraError("it could not be read; the log of this process says why")

    def _look(self) -> None:
        # When it began: what changes while we look is found the next time.
        began = time.monotonic()
        try:
            self._seen, self.fault = [self._read()], None
            self._good = began
        except KuraError as error:
            self.fault = error
        finally:
            self._looked = began if self.fault is None else time.monotonic()


class Reread(Generic[T]):
    """What a file says, read again whenever the file has changed. Safe for use by many threads at once."""

    def __init__(self, file: Path, parse: Callable[[str], T], name: str) -> None:
        """Read it for the first time.

        Args:
            file: Where it is.
            parse: Makes a value of its text, or raises a `ConfigurationError`.
            name: The setting that names the file.

        Raises:
            ConfigurationError: if there is no such file, or it is not as it should be.
        """
        self._file, self._parse = file, parse
        self._lock = threading.Lock()
        try:
            self._value = self._parse(self._text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{name} does not name a file that can be read") from error

    def get(self) -> T:
        """What it says. While it is being replaced or written, what it said before is the best that is known."""
        with self._lock:
            try:
                if self._stamp() != self._seen:
                    self._value = self._parse(self._text())
            except (OSError, UnicodeDecodeError, ConfigurationError):
                pass
            return self._value

    def _text(self) -> str:
        stamp = self._stamp()
        text = self._file.read_text(encoding="utf-8")
        self._seen = stamp
        return text

    def _stamp(self) -> tuple[int, int, int]:
        found = self._file.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
