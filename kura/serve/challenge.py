"""What callers are told who need another credential, and where they find out how to get one."""

from dataclasses import dataclass

from kura.errors import CredentialError, MissingScope, TooManyRequests


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a caller without a sufficient credential is told (RFC 6750, RFC 9728).

    Attributes:
        metadata: The URL of this resource's metadata, which lead to its authorization servers; None without any.
        scopes: The scopes that a client should ask them for, as they call them.
        prefix: What stands before Kura's own names in those.
    """

    metadata: str | None = None
    scopes: tuple[str, ...] = ()
    prefix: str = ""

    def headers(self, error: Exception) -> dict[str, str]:
        """The headers that go with an error."""
        match error:
            case TooManyRequests():
                return {"Retry-After": str(error.seconds)}
            case CredentialError():
                kind = {"error": "invalid_token"} if error.sent else {}
                return {"WWW-Authenticate": self._bearer(kind, " ".join(self.scopes))}
            case MissingScope():
                needed = f"{self.prefix}{error.scope}"
                return {"WWW-Authenticate": self._bearer({"error": "insufficient_scope"}, needed)}
            case _:
                return {}

    def _bearer(self, fields: dict[str, str], scope: str) -> str:
        if scope:
            fields = fields | {"scope": scope}
        if self.metadata is not None:
            fields = fields | {"resource_metadata": self.metadata}
        return "Bearer" + (" " if fields else "") + ", ".join(f'{name}="{value}"' for name, value in fields.items())
