"""Where a database on a server is, and how long to wait for it."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from kura.errors import ConfigurationError

_HOST = re.compile(r"[\w.:-]+")
_SECURE = {"libsql": (["0"], ["1"]), "https": (["1"],), "http": (["0"],)}
"""What `tls` may say after each scheme."""


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
        host = parts.hostname or ""
        host.encode("idna")  # whether its labels are of a length that names can have
        usable = parts.scheme in {"libsql", "https", "http"} and _HOST.fullmatch(host) and parts.port != 0
        query = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        raise _unusable() from None
    if not usable:
        raise _unusable()
    if "@" in parts.netloc or "authtoken" in map(str.lower, query):
        raise ConfigurationError(
            "the URL of a database must not hold its token; put that into KURA_DATABASE_TOKENS or a file of tokens"
        )
    secure = query.pop("tls", ["0" if parts.scheme == "http" else "1"])
    if query or parts.fragment or secure not in _SECURE[parts.scheme]:
        raise _unusable()
    return f"{'http' if secure == ['0'] else 'https'}://{parts.netloc}{parts.path.rstrip('/')}"


def _unusable() -> ConfigurationError:
    return ConfigurationError(
        "the URL of a database must begin with libsql://, https:// or http:// and name a host; no parameter but tls"
    )
