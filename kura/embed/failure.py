"""Why an embeddings endpoint gave no vectors: in our words for the caller, in its own for the log, without secrets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx

from kura.embed.answer import read_words
from kura.embed.endpoint import Endpoint

_CONNECT_ATTEMPTS = 3  # a server that is not there is not likely to come within the next minutes
_ANY_ATTEMPTS = 99  # as many as patience has room for
_TOO_LONG = re.compile(
    r"too (?:long|large|many tokens)|maximum (?:\w+ )?(?:context|input|sequence|length)|context.?(?:length|size)"
    r"|max(?:imum)?.?(?:\w+.)?tokens|less than \d+ tokens",
    re.IGNORECASE,
)
_SHARED = 6  # characters in a row that a word and a secret must not have in common

_BLAMES_REQUEST: Final = (
    "refuses the request: check KURA_EMBEDDING_MODEL and KURA_EMBEDDING_DIMENSIONS; the log has its own words"
)
_BLAMES_PLACE: Final = (
    "knows no such model or no such path: check KURA_EMBEDDING_MODEL, and that KURA_EMBEDDING_URL is what stands before"
    " /embeddings"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer. It goes on from the name of the endpoint.

    Attributes:
        reason: What went wrong and what would be right.
        attempts: So many make sense, this one included.
        after: Seconds to wait before the next one, where the endpoint says so.
        too_long: Whether less text might be taken.
        words: What the endpoint says, for the log.
    """

    reason: str
    attempts: int = 1
    after: float | None = None
    too_long: bool = False
    words: str = ""


def refused(response: httpx.Response, content: bytes, endpoint: Endpoint) -> Failure:
    """Translate an answer that is no success, with what of its body was read."""
    status = response.status_code
    said = read_words(content)
    words = _redacted(said, _secrets(endpoint))
    if status == 413 or (status in {400, 422, 500} and _TOO_LONG.search(said)):
        return Failure(f"finds even a short text too long (HTTP {status})", too_long=True, words=words)
    if status == 429:
        reason = "has had too many requests (HTTP 429); try again later"
        return Failure(reason, _ANY_ATTEMPTS, after=_retry_after(response), words=words)
    if response.is_server_error:
        reason = f"fails (HTTP {status}); its own log says why"
        return Failure(reason, _ANY_ATTEMPTS, after=_retry_after(response), words=words)
    if response.is_redirect:
        reason = "sends us elsewhere: set KURA_EMBEDDING_URL to where it is now"
    elif status in {401, 403}:
        reason = "refuses the key (KURA_EMBEDDING_KEY)" if endpoint.key else "wants a key: set KURA_EMBEDDING_KEY"
    else:
        reason = _BLAMES_PLACE if status in {404, 405} else _BLAMES_REQUEST
    return Failure(f"{reason} (HTTP {status})", words=words)


def unreachable(error: Exception) -> Failure:
    """Translate an exception of httpx, none of whose text is taken over."""
    for kind, failure in _UNREACHABLE:
        if isinstance(error, kind):
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                return Failure("has a certificate that is not trusted here; SSL_CERT_FILE can name its authority")
            return failure
    return Failure("cannot be asked: KURA_EMBEDDING_URL does not serve")


# The first that fits.
_UNREACHABLE: Final[Sequence[tuple[type[Exception], Failure]]] = (
    (httpx.ConnectTimeout, Failure("cannot be reached: no connection in time; is it running?", _CONNECT_ATTEMPTS)),
    (
        httpx.ConnectError,
        Failure("cannot be reached: is it running, and is KURA_EMBEDDING_URL right?", _CONNECT_ATTEMPTS),
    ),
    (httpx.ProxyError, Failure("cannot be reached through the proxy that the environment names", _CONNECT_ATTEMPTS)),
    (httpx.TimeoutException, Failure("gave no answer in time", _ANY_ATTEMPTS)),
    (httpx.DecodingError, Failure("sent an answer that cannot be decompressed")),
    (httpx.NetworkError, Failure("broke off before its answer was complete", _ANY_ATTEMPTS)),
    (httpx.RemoteProtocolError, Failure("broke off before its answer was complete", _ANY_ATTEMPTS)),
)


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait (RFC 9110, section 10.2.3), from a number or a date; None where there is neither."""
    value = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value, re.ASCII):
        return float(value)
    when = _date(value)
    if when is None:
        return None
    # By the endpoint's own clock where it tells the time: ours may differ.
    now = _date(response.headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (when - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _secrets(endpoint: Endpoint) -> tuple[str, ...]:
    parts = urlsplit(endpoint.url)
    known = [endpoint.key, parts.username, parts.password, parts.query]
    return tuple(form for secret in known if secret for form in {secret, unquote(secret)})


def _redacted(words: str, secrets: Sequence[str]) -> str:
    """Words for the log: one line, not long, and nothing that has more than a few characters of a secret in it.

    Endpoints repeat a key that they refuse, often with its middle starred out.
    """
    parts = {secret[i : i + _SHARED] for secret in secrets for i in range(max(1, len(secret) - _SHARED + 1))}
    shown = "".join(c if c.isprintable() else " " for c in words).split()
    return " ".join("[secret]" if any(part in word for part in parts) else word for word in shown)[:300]
