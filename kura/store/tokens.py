"""Tokens for databases on servers, kept apart from their URLs and never shown."""

import re
from collections.abc import Callable
from pathlib import Path

from kura.errors import ConfigurationError
from kura.store.looked import Reread

Token = Callable[[], str | None]
"""Asked anew for every request, so that a token can be replaced while a process runs."""

_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Tokens:
    """One token for each database, or one for all of them, from a text and a file; what the file says comes first.

    Both hold `name=token`, separated by commas or lines, or a token alone, which is for every database that has none of
    its own. The file is read again whenever it has changed.
    """

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        """Read both.

        Raises:
            ConfigurationError: if one of them is not of that form, or there is no such file.
        """
        self._given = _parsed(text or "", "KURA_DATABASE_TOKENS")
        name = "KURA_DATABASE_TOKENS_FILE"
        self._file = Reread(file, lambda text: _parsed(text, f"the file of {name}"), name) if file else None

    def __repr__(self) -> str:
        return f"Tokens({sorted(self._given)}, file={self._file is not None})"

    def of(self, name: str) -> Token:
        """The token of a database, whichever it is at the time."""

        def token() -> str | None:
            kept = self._file.get() if self._file is not None else {}
            for tokens in (kept, self._given):
                if found := tokens.get(name) or tokens.get(""):
                    return found
            return None

        return token


def _parsed(text: str, where: str) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for part in re.split(r"[,\n]", text):
        if not part.strip() or part.lstrip().startswith("#"):
            continue
        # A token may end in "=", which fills up base64; a name holds none.
        name, found, token = map(str.strip, part.partition("="))
        if not found or not token.strip("="):
            name, token = "", part.strip()
        if not _VISIBLE.fullmatch(token):
            raise ConfigurationError(
                f"{where} must hold name=token, separated by commas or lines; a token is visible ASCII characters"
            )
        tokens[name] = token
    return tokens
