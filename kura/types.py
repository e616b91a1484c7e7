"""Values that the rooms hand each other. All are frozen; none knows where it is stored or served."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["keyword", "semantic"]

Scope = Literal["search", "sql", "sql:write"]
"""What a credential is good for: finding passages; reading tables; changing them where the operator allows it."""

SCOPES: frozenset[Scope] = frozenset({"search", "sql", "sql:write"})
READING: frozenset[Scope] = frozenset({"search", "sql"})


@dataclass(frozen=True, slots=True)
class Chunk:
    """One passage of a source, as cut by the splitter.

    Attributes:
        ordinal: Position in its source, counted from 1.
        content: The text itself.
        heading: Headings that enclose the passage, outermost first; those inside `content` are not repeated.
        first_line: First line of the passage in its file, counted from 1.
        last_line: Last line of the passage in its file, inclusive.
    """

    ordinal: int
    content: str
    heading: tuple[str, ...] = ()
    first_line: int = 1
    last_line: int = 1


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a branch of the search found. A higher score is better; scores compare within one branch only."""

    chunk_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Match:
    """One found passage, ready to be shown."""

    chunk: int
    content: str
    score: float
    heading: tuple[str, ...]
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """The matches in one source, best first. `source` is a POSIX path relative to the indexed folder."""

    source: str
    matches: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What one search found. A branch that did not run is None; one that found nothing is empty."""

    keyword: tuple[SourceGroup, ...] | None
    semantic: tuple[SourceGroup, ...] | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """On whose behalf one call runs. It lives for that call alone.

    Attributes:
        tenant_id: Whose databases are visible besides those that belong to nobody; None sees only the latter.
        user_id: The user within the tenant, for row-level policies.
        databases: Names that the caller is limited to; None is no limit.
        scopes: What the caller's credential is good for.
    """

    tenant_id: str | None = None
    user_id: str | None = None
    databases: frozenset[str] | None = None
    scopes: frozenset[Scope] = SCOPES


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a transport says is calling: a credential's owner, or the person who started a local process.

    Attributes:
        tenant: The caller's tenant, or None.
        user: The caller's user id, or None.
        databases: Names that the caller is limited to; None is no limit.
        scopes: What the caller's credential is good for.
        name: What logs and limits call the caller: `key:` and the id of a key, `token:` and a digest of who a token is
            for. It holds no secret. None where there is no credential; such callers are told apart by their address.
        believed: Whether a call's own `tenant_id` and `user_id` are taken at their word where this principal leaves
            them open. True only where the caller owns the process (stdio); never over HTTP.
    """

    tenant: str | None = None
    user: str | None = None
    databases: frozenset[str] | None = None
    scopes: frozenset[Scope] = SCOPES
    name: str | None = None
    believed: bool = False


Command = Literal["all", "select", "insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A row-level policy on a table of the user's.

    Attributes:
        name: Its name, unique on the table.
        table: The table.
        command: What it is for.
        using: Which of the rows that there are it allows to see, change or delete; an expression over the columns.
        check: Which rows it allows to write; left out, what `using` says.
    """

    name: str
    table: str
    command: Command = "all"
    using: str | None = None
    check: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What agents may do with SQL, as the operator has set it.

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
