"""What a run of indexing tells: event by event while it goes on, and all in all at its end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kura.ingest.files import Problem

Outcome = Literal["added", "updated", "unchanged", "removed", "not text", "problem"]


@dataclass(frozen=True, slots=True)
class Found:
    """Progress: a root was listed. `changed` files are new, or of another size or time than in the index."""

    label: str
    files: int
    changed: int


@dataclass(frozen=True, slots=True)
class Done:
    """Progress: one of the changed files was dealt with, or a source was removed; `reason` is a problem's."""

    path: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Progress: all files are in the index and can be found by keyword; so many chunks are to be embedded now.

    Fewer texts are, where several chunks say the same.
    """

    chunks: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """Progress: so many more texts have a vector."""

    texts: int


Event = Found | Done | Waiting | Embedded
Progress = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did.

    Attributes:
        added: Files that are new in the index.
        updated: Files that were indexed again.
        unchanged: Files whose content is in the index already.
        removed: Sources whose files are gone, are no text any more, or belong to another root now.
        empty: Of those added and updated, files without any passage.
        not_text: Files that are no text and do not claim to be; one that was named itself is a problem instead.
        problems: What could not be indexed, in the order in which it was met; earlier content stays.
        chunks: Passages that were written.
        embedded: Texts that were embedded.
        pending: Chunks in the database that have no vector yet.
        outdated: Whether there are sources left whose keywords were made by another version of the tokeniser.
        stopped: Whether the run was asked to stop before it was through.
    """

    added: int
    updated: int
    unchanged: int
    removed: int
    empty: int
    not_text: int
    problems: tuple[Problem, ...]
    chunks: int
    embedded: int
    pending: int
    outdated: bool
    stopped: bool
