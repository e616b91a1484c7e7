"""What both engines can do: a SQLite file on this machine, and a database on a libSQL server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]
Statement = tuple[str, Sequence[object]]
"""SQL with the values that are bound to its question marks."""

ANSWER_BYTES = 6_000_000
"""Bytes of values that are asked for at once: a server's answer has ten megabytes at most, with blobs as base64."""


def quoted(name: str) -> str:
    """A name as SQL takes it for an identifier, whatever is in it."""
    return '"{}"'.format(name.replace('"', '""'))


def folded(name: str) -> str:
    """A name as SQLite compares names: without case in ASCII letters, and in no others."""
    return "".join(character.lower() if character.isascii() else character for character in name)


def size_of(row: Sequence[object], columns: Sequence[str]) -> int:
    """About how many bytes a row takes as a JSON object."""
    size = 2
    for value, column in zip(row, columns, strict=True):
        size += len(column) + 4
        if isinstance(value, str):
            size += len(value.encode("utf-8", "surrogatepass")) + 2
        elif isinstance(value, bytes):
            size += len(value) * 4 // 3 + 2
        else:
            size += 8
    return size


def rows_per_answer(width: int) -> int:
    """How many rows of `width` bytes can be asked for at once; one at least."""
    return max(1, ANSWER_BYTES // max(1, width))


@dataclass(frozen=True, slots=True)
class Caps:
    """How much one statement of an agent may give and take.

    Attributes:
        rows: At most so many rows.
        bytes: At most about so many bytes, as JSON.
        seconds: It is ended after so long.
    """

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Reach:
    """What one statement of an agent may touch, by folded names: the engine's own guard, under the one that wrote it.

    Attributes:
        tables: What it may read: tables, and common table expressions of its own.
        functions: What it may call.
        target: The table that it may change, or None.
        related: Tables that foreign keys tie to that one.
    """

    tables: frozenset[str]
    functions: frozenset[str]
    target: str | None = None
    related: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answered:
    """What one statement of an agent gave.

    Attributes:
        columns: Their names, as the engine gives them.
        rows: As many as the caps allow.
        changed: How many rows it changed.
        cut: Which cap left rows out, or None.
    """

    columns: tuple[str, ...]
    rows: list[Row]
    changed: int
    cut: Literal["rows", "bytes", "time"] | None


class Asked(Protocol):
    """A connection on which statements of agents are run, beside our own.

    Attributes:
        streams: Whether rows come one by one, so that nobody makes those that a cap leaves out.
    """

    streams: bool

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements of ours that read, in one round trip; all see the same version."""
        ...

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All or nothing."""
        ...

    def ask(self, sql: str, params: Sequence[object], reach: Reach, caps: Caps) -> Answered:
        """Run a statement of an agent's.

        Raises:
            StatementRefused: if the engine does not take it; with the engine's words, which depend on no row.
            QueryFailed: if it failed while it ran; with the engine's words, which may depend on rows.
        """
        ...

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement of ours and return all its rows."""
        ...


class Connection(Protocol):
    """A way into one database; every statement is a transaction of its own unless `transaction` is around it."""

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        ...

    def row(self, sql: str, params: Sequence[object] = ()) -> Row | None:
        """Run one statement and return its first row, or None."""
        ...

    def one(self, sql: str, params: Sequence[object] = ()) -> Row:
        """Run one statement whose row must be there, such as an aggregate.

        Raises:
            Damaged: if it is not.
        """
        ...

    def run(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one statement; returns how many rows it changed."""
        ...

    def insert(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one insert; returns the new row's id."""
        ...

    def many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each of `rows`."""
        ...

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements that read, in one round trip; all see the same version. Returns the rows of each."""
        ...

    def apart(self, statements: Sequence[Statement]) -> Iterator[list[Row]]:
        """Run statements that read, each as of a version of its own, several of them at a time.

        Yields the rows of each, in the order of the statements.
        """
        ...

    def atomically(self, statements: Sequence[Statement]) -> None:
        """Run statements in one round trip, all of them or, where one fails, none."""
        ...

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All or nothing; with `write`, the write lock is taken at once so that nothing is read from an old view."""
        ...

    def close(self) -> None:
        """Close it; closing twice is fine."""
        ...


class Reader(Protocol):
    """Reads one database from any number of threads and tasks."""

    def guarded(self, *, write: bool = False) -> AbstractContextManager[Asked]:
        """A way into the database for one statement of an agent's, which can change anything only with `write`."""
        ...

    def version(self) -> object:
        """What is another one after each change that anybody commits to the database; None where nobody can tell.

        To be called from one thread at a time.
        """
        ...

    async def read(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """Run `work` in a worker thread, inside one read transaction: all its statements see the same version.

        Without `whole`, each of its statements is a transaction of its own, which saves a server's round trips.
        """
        ...

    def read_here(self, work: Callable[[Connection], T], *, whole: bool = True) -> T:
        """As `read`, in the calling thread; without `whole`, each of its statements is a transaction of its own."""
        ...

    def close(self) -> None:
        """Let go of what is kept open for it."""
        ...
