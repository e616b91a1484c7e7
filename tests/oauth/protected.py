"""The HTTP application as a resource that authorization servers protect, in this process."""

from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.types import ASGIApp

from kura.access.credentials import choose_gate
from kura.chosen import trust_of
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings
from tests.oauth.authority import Authority
from tests.serve.running import JSON, asked, call

RESOURCE = "https://kura.example/mcp"


@dataclass
class Clock:
    """Stands in for the module `time`."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


def protected(library: Library, *trusted: Authority, **options: Any) -> ASGIApp:
    """The application that takes tokens of these authorities.

    Args:
        library: What it serves.
        trusted: The authorities.
        options: Settings, without `oauth_` before their names.
    """
    given = {
        "issuers": tuple(each.issuer for each in trusted),
        "resource": RESOURCE,
        "tenant_claim": "tenant",
    } | options
    settings = Settings(**{f"oauth_{name}": value for name, value in given.items()})  # pyright: ignore[reportArgumentType]
    trust = trust_of(settings)
    gate = choose_gate(key_hash=None, public=False, loopback=True, tenant=None, user=None, trust=trust)
    return build_app(library, gate, version="0", trust=trust)


def listed(app: ASGIApp, token: str) -> httpx2.Response:
    """The answer to who asks by REST, with this token, for the databases."""
    return asked(app, "GET", "/api/list", headers=bearing(token))


def called(app: ASGIApp, token: str, tool: str, **arguments: object) -> httpx2.Response:
    """The answer to who calls a tool."""
    return asked(app, "POST", "/mcp", json=call(tool, **arguments), headers=JSON | bearing(token))


def loaded(app: ASGIApp, token: str) -> list[str]:
    """The databases that a token opens."""
    response = listed(app, token)
    assert response.status_code == 200, response.text
    return response.json()["loaded"]


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}
