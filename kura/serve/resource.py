"""This server as a resource that OAuth protects: what it publishes of itself (RFC 9728)."""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kura.access.trust import Trust
from kura.serve.challenge import Challenge
from kura.types import Scope

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Resource:
    """What clients read to find out which authorization server to ask for an access token.

    Args:
        trust: Which tokens are taken.
        scopes: What tokens can be good for here.
    """

    def __init__(self, trust: Trust, scopes: Sequence[Scope]) -> None:
        self._trust = trust
        self._scopes = tuple(f"{trust.scope_prefix}{scope}" for scope in scopes)

    @property
    def challenge(self) -> Challenge:
        """What callers without a sufficient credential are told."""
        parts = urlsplit(self._trust.resource)
        # The path of the resource follows the well-known one (RFC 9728, section 3.1).
        metadata = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"
        return Challenge(metadata, self._scopes, self._trust.scope_prefix)

    def routes(self) -> list[Route]:
        """Where it is published: beside the endpoint's path, and where clients look that know only the host."""
        published = {
            "resource": self._trust.resource,
            "authorization_servers": list(self._trust.issuers),
            "scopes_supported": list(self._scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "Kura",
        }
        text = json.dumps(published, separators=(",", ":"))

        async def metadata(_request: Request) -> Response:
            return Response(text, media_type="application/json", headers={"Cache-Control": "max-age=300"})

        path = urlsplit(self._trust.resource).path.rstrip("/")
        return [Route(where, metadata) for where in sorted({f"{WELL_KNOWN}{path}", f"{WELL_KNOWN}/mcp", WELL_KNOWN})]
