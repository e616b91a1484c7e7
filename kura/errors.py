"""Everything that Kura raises on purpose.

    KuraError
    ├── ArgumentError            400  what the caller sent cannot be right
    │   ├── UnknownDatabase      404  no such name, or not for this caller: the two read alike
    │   └── StatementRefused     400  SQL that is wrong, or not allowed
    ├── QueryFailed              422  SQL that was allowed, and failed while it ran
    │   └── OutOfTime            422  it took longer than it may
    ├── CredentialError          401  no credential, or not a valid one
    ├── Forbidden                403  a valid credential that does not reach this far
    │   └── MissingScope         403  it is not good for this
    ├── TooManyRequests          429  more than the caller may send
    ├── AnswerTooLong            422  it would be more than may be sent
    ├── IssuerUnreachable        503  who signs the credential cannot be asked for its keys
    ├── Unavailable              503  a database that may be seen but cannot be used now
    ├── BranchFailed             502  keyword or semantic search was asked for and did not work
    │   └── NotReady             502  semantic search is not configured, loading, or waiting for vectors
    ├── StoreError               500  a database file says no
    │   ├── Busy                 503  another process kept the lock for too long
    │   ├── Conflict             409  somebody else changed what was to be changed
    │   ├── RemoteError          502  a server of databases says no, or nothing that can be understood
    │   │   ├── TokenRefused     502  it does not take the token
    │   │   └── Unreachable      503  it gives no answer
    │   ├── Damaged              500  the file is not a database, or is torn
    │   └── WrongSchema          500  written by a newer Kura, or not by Kura
    ├── EmbedderError            500  no vectors from this embedder
    │   └── EmbedderMismatch     409  the database holds vectors of another embedder
    ├── IngestError              500  a folder or file cannot be indexed
    │   └── Unreadable           500  one file, with its reason; the rest goes on
    └── ConfigurationError       500  a setting, a flag or an installation is wrong

Messages are for people and models: they name what is wrong and what would be right. They never carry a secret, an
absolute path of a serving machine, or a library's own exception text where that could hold either. `code` is stable
and for scripts; `status` is the HTTP status that an edge answers with.
"""

from typing import ClassVar


class KuraError(Exception):
    """Base of all errors that Kura raises on purpose; its text may be shown to the caller."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500


class ArgumentError(KuraError):
    """What the caller sent cannot be right."""

    code = "invalid_argument"
    status = 400


class UnknownDatabase(ArgumentError):
    """No database of that name exists, or none that this caller may see."""

    code = "unknown_database"
    status = 404

    def __init__(self, name: str, visible: tuple[str, ...] = ()) -> None:
        names = ", ".join(f'"{n}"' for n in visible)
        known = f"available: {names}" if names else "no database is available"
        super().__init__(f'invalid argument: "{name}" not exist; {known}')


class StatementRefused(ArgumentError):
    """SQL that cannot be right, or is not allowed; it did not run."""

    code = "statement_refused"


class QueryFailed(KuraError):
    """SQL that was allowed, and failed while it ran; it changed nothing."""

    code = "query_failed"
    status = 422


class OutOfTime(QueryFailed):
    """SQL that took longer than it may."""

    code = "out_of_time"


class CredentialError(KuraError):
    """No credential was sent, or it is not a valid one.

    Attributes:
        sent: Whether there was one.
    """

    code = "unauthorized"
    status = 401

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class Forbidden(KuraError):
    """The credential is valid but does not reach this far."""

    code = "forbidden"
    status = 403


class MissingScope(Forbidden):
    """The credential is valid, but not good for what was asked.

    Attributes:
        scope: The scope that is missing.
    """

    code = "insufficient_scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f'the credential lacks the scope "{scope}", which this needs')
        self.scope = scope


class TooManyRequests(KuraError):
    """The caller sends more than it may.

    Attributes:
        seconds: After how long it may send again.
    """

    code = "too_many_requests"
    status = 429

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests; send the next one in {seconds} seconds")
        self.seconds = seconds


class AnswerTooLong(KuraError):
    """The answer would be longer than may be sent."""

    code = "answer_too_long"
    status = 422

    def __init__(self, length: int, most: int) -> None:
        super().__init__(
            f"the answer would be {length:,} bytes long, and at most {most:,} can be sent; ask for less: a smaller"
            " limit or k, fewer or shorter columns"
        )


class IssuerUnreachable(KuraError):
    """The authorization server that a credential names cannot be asked for its keys now."""

    code = "issuer_unreachable"
    status = 503


class Unavailable(KuraError):
    """A database that the caller may see cannot be used now."""

    code = "unavailable"
    status = 503

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f'database "{name}" unavailable: {reason}')


class BranchFailed(KuraError):
    """A search branch that was asked for, or was running, did not work."""

    code = "search_failed"
    status = 502


class NotReady(BranchFailed):
    """Semantic search cannot run now; the text says why and since when. A notice where it was not asked for."""

    code = "not_ready"


class StoreError(KuraError):
    """A database file says no."""

    code = "store"


class KeysUnreachable(StoreError):
    """The catalog that holds the API keys cannot be read now."""

    code = "keys_unreachable"
    status = 503


class Busy(StoreError):
    """Another process kept the write lock for longer than we wait."""

    code = "busy"
    status = 503


class Conflict(StoreError):
    """Somebody else published meanwhile, or since this database last did."""

    code = "conflict"
    status = 409


class RemoteError(StoreError):
    """A server of databases says no, or nothing that can be understood."""

    code = "remote"
    status = 502


class TokenRefused(RemoteError):
    """A server of databases does not take the token, or takes it for less than was asked."""

    code = "token_refused"


class Unreachable(RemoteError):
    """A server of databases gives no answer."""

    code = "unreachable"
    status = 503


class Damaged(StoreError):
    """The file is not a database, or parts of it are torn."""

    code = "damaged"


class WrongSchema(StoreError):
    """The database was written by a newer Kura, or not by Kura at all."""

    code = "wrong_schema"


class EmbedderError(KuraError):
    """The embedder gave no usable vectors."""

    code = "embedder"


class EmbedderMismatch(EmbedderError):
    """The database holds vectors of another embedder or dimension."""

    code = "embedder_mismatch"
    status = 409


class IngestError(KuraError):
    """A folder or file cannot be indexed."""

    code = "ingest"


class Unreadable(IngestError):
    """One file cannot be indexed, for the reason that the message gives; the rest goes on."""

    code = "unreadable"


class ConfigurationError(KuraError):
    """A setting, a command-line flag or the installation is wrong."""

    code = "configuration"
