"""Where a database on a server is, and how long to wait for it."""

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from kura.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, in seconds, and how often to ask it."""

    connect: float = 5.0
    total: float = 30.0
    attempts: int = 3
    pause: float = 0.2


def address(url: str) -> str:
    """The base URL that requests to a database go to.

    Args:
        url: `libsql://`, which is HTTPS, or `https://` or `http://`. `libsql://…?tls=0` is HTTP.

    Raises:
        ConfigurationError: if it is none of these, or holds a credential, which belongs into a setting of its own.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"libsql", "https", "http"} and bool(parts.hostname) and parts.port != 0
        query = parse_qs(parts.query)
    except ValueError:
        raise _unusable() from None
    if not usable:
        raise _unusable()
    if parts.username or parts.password or "authToken" in query:
        raise ConfigurationError(
            "the URL of a database must not hold its token; put that into KURA_DATABASE_TOKENS or a file of tokens"
        )
    if set(query) - {"tls"} or parts.fragment:
        raise _unusable()
    plain = parts.scheme == "http" or query.get("tls") == ["0"]
    return f"{'http' if plain else 'https'}://{parts.netloc}{parts.path.rstrip('/')}"


def _unusable() -> ConfigurationError:
    return ConfigurationError("the URL of a database must begin with libsql://, https:// or http:// and name a host")
