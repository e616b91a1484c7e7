from collections.abc import Mapping

import httpx2
import pytest
from starlette.types import Scope

from kura.access.credentials import open_gate
from kura.library.library import Library
from kura.serve.app import build_app
from kura.serve.hosts import OwnHost
from kura.types import Principal
from tests.serve.running import JSON, message, reaching

pytestmark = pytest.mark.anyio

PAGE = "https://app.example"


async def answered(
    library: Library,
    headers: Mapping[str, str | bytes],
    method: str = "POST",
    path: str = "/mcp",
    own_host: OwnHost | None = None,
) -> httpx2.Response:
    app = build_app(
        library,
        open_gate(Principal()),
        version="0",
        allowed_hosts=["kura.example", "ported.example:8443"],
        allowed_origins=[PAGE],
        own_host=own_host,
    )
    async with reaching(httpx2.ASGITransport(app)) as reached:
        return await reached.request(
            method,
            path,
            headers=[(name.encode(), _bytes(value)) for name, value in {**JSON, **headers}.items()],
            json=message("ping") if method == "POST" else None,
        )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


@pytest.mark.parametrize(("method", "path"), [("POST", "/mcp"), ("GET", "/api/list"), ("GET", "/nothing")])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "localhost:80:80", "localhost:x", "127.0.0.1.evil.example", "", "[::2]",
     "kura.example.evil", "ported.example", "ported.example:1", "kura.example@evil.example", "*", "LOCALHOST x"],
)  # fmt: skip
async def test_another_host_is_refused(library: Library, host: str, method: str, path: str):
    response = await answered(library, {"host": host}, method, path)
    assert response.status_code == 421
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:1234", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "kura.example",
     "KURA.example:444", "ported.example:8443"],
)  # fmt: skip
async def test_loopback_and_configured_hosts_are_served(library: Library, host: str):
    assert (await answered(library, {"host": host})).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/mcp"), ("GET", "/api/list")])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost:6274",
        "https://app.example.evil",
        "http://app.example",
        "http://[",
        "http://a]b",
        "http://[::1",
        "http://[x]",
        "http://\u2100.example".encode(),
        b"\xff://\xff",
        "",
        "://",
        "//localhost:8080",
        "localhost:8080",
        "http://x@localhost:8080",
        "http://localhost:8080/x",
        "ftp://localhost:8080",
    ],
    ids=repr,
)
async def test_another_origin_is_refused(library: Library, origin: str | bytes, method: str, path: str):
    response = await answered(library, {"origin": origin}, method, path)
    assert response.status_code == 403
    assert response.headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:8080", "https://localhost:8080"])
async def test_a_configured_origin_and_the_servers_own_may_call(library: Library, origin: str):
    assert (await answered(library, {"origin": origin})).status_code == 200


async def test_a_page_of_a_configured_origin_gets_its_preflight_answered(library: Library):
    asked = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "mcp-method"}
    response = await answered(library, asked, "OPTIONS")
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "mcp-method"


async def test_a_page_of_another_origin_does_not(library: Library):
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    response = await answered(library, asked, "OPTIONS")
    assert response.status_code == 400
    assert "access-control-allow-origin" not in response.headers


async def test_a_page_can_read_why_it_was_refused(library: Library):
    response = await answered(library, {"origin": PAGE, "host": "evil.example"})
    assert response.status_code == 421
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-expose-headers"] == "WWW-Authenticate, Retry-After, X-Request-Id"


async def test_what_goes_wrong_in_the_check_itself_is_masked(library: Library, caplog: pytest.LogCaptureFixture):
    def own_host(_scope: Scope) -> str:
        raise LookupError("a secret")

    response = await answered(library, {"origin": PAGE, "host": "other.example"}, own_host=own_host)
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "secret" not in response.text
    assert response.json()["detail"].split()[-1] in caplog.text
