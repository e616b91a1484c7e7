"""Which addresses a server answers to, and which web pages may call it.

A web page can make a browser send requests to a server on the same machine, by a host name of its own that it lets
point there (DNS rebinding). Such a request names the page's host, and its origin: both are checked, for MCP and REST
alike, before anything else is looked at.
"""

import re
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kura.serve.problems import problem

OwnHost = Callable[[Scope], str | None]
"""The host that the platform itself says a request was addressed to."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@\\]+)(?::[0-9]{1,5})?")


class HostCheck:
    """Refuses what is addressed to another host (421) or comes from another origin (403).

    Loopback hosts are always allowed, with any port. A configured host is allowed as it is written, and if it is
    written without a port, with any. An origin is allowed if it is configured, or if it is this very server.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], origins: Sequence[str], own_host: OwnHost | None) -> None:
        self.app = app
        self.hosts = _LOOPBACK | {host.lower() for host in hosts}
        self.origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self.own_host = own_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sent = [host.lower() for host in headers.getlist("host")]
        if len(sent) != 1 or not self._serves(sent[0], scope):
            answer = problem(421, "this server is not configured for that host: see KURA_ALLOWED_HOSTS", "wrong_host")
            await answer(scope, receive, send)
            return
        if not all(self._welcomes(origin.lower(), sent[0]) for origin in headers.getlist("origin")):
            answer = problem(403, "pages of that origin may not call: see KURA_ALLOWED_ORIGINS", "wrong_origin")
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _serves(self, host: str, scope: Scope) -> bool:
        if host in self.hosts:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        own = self.own_host(scope) if self.own_host is not None else None
        return found[1] in self.hosts or (own is not None and found[1] == own.lower())

    def _welcomes(self, origin: str, host: str) -> bool:
        # Compared as text: a header may hold anything, also what no parser of URLs takes.
        return origin in self.origins or origin in {f"http://{host}", f"https://{host}"}
