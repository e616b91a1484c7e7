"""A client of MCP as its SDK makes it, and the person who sits before it and consents in a browser."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
    TokenEndpointAuthMethod,
)
from pydantic import AnyUrl

BACK = "http://127.0.0.1:9/back"
"""Where the browser is sent back to; nobody listens there, and nobody needs to."""


@dataclass
class Kept:
    """What a client keeps between sessions."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    @property
    def token(self) -> str:
        assert self.tokens is not None
        return self.tokens.access_token


@dataclass
class Person:
    """Opens what the client asks them to open, and comes back with what they were sent back with.

    Attributes:
        asked: For which scopes they were asked, each time.
        kept: What their client keeps.
    """

    asked: list[str] = field(default_factory=list[str])
    kept: Kept = field(default_factory=Kept)
    _back: AuthorizationCodeResult | None = None

    async def opens(self, url: str) -> None:
        self.asked += parse_qs(urlsplit(url).query)["scope"]
        async with httpx2.AsyncClient(verify=False) as browser:
            response = await browser.get(url)
        location = response.headers["location"]
        assert location.startswith(BACK)
        sent = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        self._back = AuthorizationCodeResult(**sent)

    async def comes_back(self) -> AuthorizationCodeResult:
        assert self._back is not None
        return self._back

    @asynccontextmanager
    async def connected(self, url: str, method: TokenEndpointAuthMethod = "none") -> AsyncGenerator[Client]:
        """A client that knows nothing but the URL of the endpoint.

        Args:
            url: The endpoint.
            method: How it says at the token endpoint who it is.
        """
        told = OAuthClientMetadata(
            client_name="a client",
            redirect_uris=[AnyUrl(BACK)],
            grant_types=["authorization_code"],
            token_endpoint_auth_method=method,
        )
        auth = OAuthClientProvider(url, told, self.kept, self.opens, self.comes_back)
        # Without certificates to check: loading them takes longer than the whole test.
        async with (
            httpx2.AsyncClient(auth=auth, verify=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client
