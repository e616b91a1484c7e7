"""A client that knows nothing but a URL gets from the refusal to an answer, and what it sees is its tenant's."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from mcp import MCPError
from mcp.client import Client
from mcp.shared.auth import TokenEndpointAuthMethod
from mcp_types import CallToolResult, TextContent

from tests.oauth.authority import Authority, User, authority
from tests.oauth.person import Person
from tests.serve.knowledge import fill
from tests.serve.running import JSON, ROOT, call

pytestmark = pytest.mark.anyio
METHODS: tuple[TokenEndpointAuthMethod, ...] = ("none", "client_secret_post", "client_secret_basic")
SERVED = {
    "uvicorn": ("-m", "kura", "serve", "--port"),
    "lambda": ("-m", "local.bridge", "--port"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def running() -> Generator[Authority]:
    with authority() as opened:
        yield opened


@pytest.fixture
def trusted(running: Authority) -> Authority:
    """The authority that both servers trust, as it was in the beginning."""
    running.user, running.consents = User("ann", "acme"), ("search", "sql")
    running.resources.clear()
    return running


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory, running: Authority) -> Generator[dict[str, str]]:
    """The endpoints of two processes: under uvicorn, and through Lambda events."""
    data_dir = tmp_path_factory.mktemp("data")
    fill(data_dir)
    ports = {transport: free_port() for transport in SERVED}
    with ExitStack() as stack:
        started = {
            transport: stack.enter_context(serving(transport, port, data_dir, running))
            for transport, port in ports.items()
        }
        for transport, port in ports.items():
            wait(port, started[transport])
        yield {transport: f"http://127.0.0.1:{port}/mcp" for transport, port in ports.items()}


@pytest.fixture(params=SERVED)
def url(urls: dict[str, str], request: pytest.FixtureRequest) -> str:
    return urls[request.param]


@contextmanager
def serving(transport: str, port: int, data_dir: Path, trusted: Authority) -> Generator["subprocess.Popen[bytes]"]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_")}
    settings = {
        "KURA_DATA_DIR": str(data_dir),
        "KURA_CACHE_DIR": str(data_dir / "cache"),
        "KURA_EMBEDDER": "hashing",
        "KURA_OAUTH_ISSUERS": trusted.issuer,
        "KURA_OAUTH_RESOURCE": f"http://127.0.0.1:{port}/mcp",
        "KURA_OAUTH_TENANT_CLAIM": "tenant",
    }
    with (data_dir / f"{transport}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, *SERVED[transport], str(port)],
            env=mine | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"} | settings,
            stdout=log,
            stderr=log,
        )
    with started:
        try:
            yield started
        finally:
            started.kill()


def wait(port: int, started: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert started.poll() is None, "the server ended before it was up"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    pytest.fail("the server does not listen")


def free_port() -> int:
    # It must be known before the server starts: its URL is what tokens are for.
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def answer(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def failure(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    [block] = result.content
    assert isinstance(block, TextContent)
    assert result.is_error
    return block.text


async def posted(url: str, sent: dict[str, Any], token: str | None = None) -> httpx2.Response:
    headers = JSON if token is None else {**JSON, "authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(verify=False) as client:
        return await client.post(url, json=sent, headers=headers)


def challenge(response: httpx2.Response) -> dict[str, str]:
    scheme, _, fields = response.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return {name: value.strip('"') for name, _, value in (each.partition("=") for each in fields.split(", "))}


async def test_a_client_gets_from_the_refusal_to_an_answer(url: str, trusted: Authority):
    person = Person()
    async with person.connected(url) as client:
        assert (await answer(client, "list_rag"))["loaded"] == ["acme-plans", "notes"]
        found = await answer(client, "search_rag", db="acme-plans", q="plan", mode="keyword")
        assert found["keyword"][0]["source"] == "plan.md"
        assert (await answer(client, "query", db="acme-plans", sql="select count(*) as n from chunks"))["rows"] == [
            {"n": 1}
        ]
    assert person.asked == ["search sql"]
    assert trusted.resources == [url]


async def test_a_client_sees_nothing_of_another_tenant(url: str, trusted: Authority):
    async with Person().connected(url) as client:
        refused = await failure(client, "search_rag", db="globex-plans", q="plan")
        assert refused == (await failure(client, "search_rag", db="no-plans", q="plan")).replace(
            "no-plans", "globex-plans"
        )
    trusted.user = User("bob", "globex")
    async with Person().connected(url) as client:
        assert (await answer(client, "list_rag"))["loaded"] == ["globex-plans", "notes"]
        refused = await failure(client, "query", db="acme-plans", sql="select 1")
        assert "acme" not in refused.replace('"acme-plans" not exist', "")


@pytest.mark.usefixtures("trusted")
async def test_a_tenant_that_a_call_names_is_not_taken_for_that_of_the_token(url: str):
    async with Person().connected(url) as client:
        refused = await failure(client, "search_rag", db="globex-plans", q="plan", tenant_id="globex")
        assert "globex-plans" not in (refused.partition("available")[2])
        assert "secret" not in refused


async def test_a_token_has_the_form_and_the_claims_of_an_access_token(url: str, trusted: Authority):
    person = Person()
    async with person.connected(url):
        pass
    header = jwt.get_unverified_header(person.kept.token)
    assert (header["typ"], header["kid"]) == ("at+jwt", trusted.keys[0].kid)
    claims = jwt.decode(person.kept.token, options={"verify_signature": False})
    assert set(claims) == {"iss", "sub", "aud", "client_id", "iat", "exp", "jti", "scope", "tenant"}
    assert (claims["iss"], claims["aud"], claims["sub"]) == (trusted.issuer, url, "ann")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("trusted")
async def test_a_client_may_say_in_any_way_who_it_is(urls: dict[str, str], method: TokenEndpointAuthMethod):
    person = Person()
    async with person.connected(urls["uvicorn"], method) as client:
        assert (await answer(client, "list_rag"))["loaded"] == ["acme-plans", "notes"]
    assert person.kept.client is not None
    assert person.kept.client.token_endpoint_auth_method == method


@pytest.mark.usefixtures("trusted")
async def test_a_client_that_kept_its_token_asks_nobody(url: str):
    person = Person()
    for _ in range(2):
        async with person.connected(url) as client:
            await answer(client, "list_rag")
    assert len(person.asked) == 1


async def test_a_refusal_leads_to_the_metadata_of_the_resource(url: str, trusted: Authority):
    response = await posted(url, call("list_rag"))
    assert response.status_code == 401
    said = challenge(response)
    origin = url.removesuffix("/mcp")
    assert said == {
        "scope": "search sql",
        "resource_metadata": f"{origin}/.well-known/oauth-protected-resource/mcp",
    }
    async with httpx2.AsyncClient(verify=False) as client:
        for where in (said["resource_metadata"], f"{origin}/.well-known/oauth-protected-resource"):
            published = await client.get(where)
            assert published.status_code == 200
            assert published.json() == {
                "resource": url,
                "authorization_servers": [trusted.issuer],
                "scopes_supported": ["search", "sql"],
                "bearer_methods_supported": ["header"],
                "resource_name": "Kura",
            }


async def test_a_token_without_a_scope_is_not_good_for_what_needs_it(url: str, trusted: Authority):
    trusted.consents = ("search",)
    person = Person()
    async with person.connected(url) as client:
        assert (await answer(client, "list_rag"))["loaded"] == ["acme-plans", "notes"]
    response = await posted(url, call("query", db="notes", sql="select 1"), person.kept.token)
    assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")
    said = challenge(response)
    assert (said["error"], said["scope"]) == ("insufficient_scope", "sql")
    assert said["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")


async def test_a_client_is_told_only_of_the_tools_that_its_token_is_good_for(url: str, trusted: Authority):
    trusted.consents = ("search",)
    async with Person().connected(url) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"list_rag", "search_rag"}


async def test_a_client_that_lacks_a_scope_gets_a_better_token_and_goes_on(url: str, trusted: Authority):
    trusted.consents = ("search",)
    person = Person()
    async with person.connected(url) as client:
        await answer(client, "list_rag")
        trusted.consents = ("search", "sql")
        assert (await answer(client, "query", db="notes", sql="select 7 as n"))["rows"] == [{"n": 7}]
        assert (await answer(client, "list_rag"))["loaded"] == ["acme-plans", "notes"]
    assert person.asked == ["search sql", "search sql"]


async def test_a_person_who_does_not_consent_is_asked_once_more_and_no_oftener(url: str, trusted: Authority):
    trusted.consents = ("search",)
    person = Person()
    async with person.connected(url) as client:
        with pytest.raises(MCPError):
            await client.call_tool("query", {"db": "notes", "sql": "select 1"})
        assert (await answer(client, "list_rag"))["loaded"] == ["acme-plans", "notes"]
    assert len(person.asked) == 2


@pytest.mark.usefixtures("trusted")
async def test_a_token_that_was_issued_for_one_server_is_refused_by_another(urls: dict[str, str]):
    person = Person()
    async with person.connected(urls["lambda"]):
        pass
    assert (await posted(urls["lambda"], call("list_rag"), person.kept.token)).status_code == 200
    assert (await posted(urls["uvicorn"], call("list_rag"), person.kept.token)).status_code == 401
