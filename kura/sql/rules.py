"""What agents may do with SQL, as the operator has set it."""

from dataclasses import dataclass

from kura.store.engine import Caps


@dataclass(frozen=True, slots=True)
class Rules:
    """How much one statement may give and take, and where agents may write.

    Attributes:
        rows: At most so many rows in an answer.
        bytes: At most about so many bytes of them, as JSON.
        seconds: A statement is ended after so long.
        writable: Names of the databases in which tables may be changed.
    """

    rows: int = 1000
    bytes: int = 1_000_000
    seconds: float = 5.0
    writable: frozenset[str] = frozenset()

    @property
    def caps(self) -> Caps:
        """What the engines hold a statement to."""
        return Caps(self.rows, self.bytes, self.seconds)
