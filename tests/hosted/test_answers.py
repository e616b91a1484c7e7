"""Over every transport, a process that serves from a server answers as one that has the files."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from kura.chosen import elsewhere_of
from kura.embed.hashing import HashingEmbedder
from kura.errors import Unavailable
from kura.library.library import Library
from kura.store.catalog import Catalog
from kura.types import Session
from local.sqld import Key, Server
from tests.clients.operations import CALLS
from tests.clients.servers import HTTP, STDIO, TRANSPORTS, Transport, environment, serving
from tests.hosted.hosting import published, reading_from, settings
from tests.hosted.relay import relayed
from tests.serve.knowledge import fill

Json = dict[str, Any]


async def asked(client: Client) -> dict[str, Json]:
    async with client:
        return {
            call.title: (await client.call_tool(call.tool, call.arguments)).model_dump(mode="json")
            for call in CALLS
            if call.tool != "forget_everything"
        }


def answers(transport: Transport, environ: dict[str, str]) -> dict[str, Json]:
    if transport == "stdio":
        server = StdioServerParameters(command=STDIO[0], args=STDIO[1:], env=environ)
        return asyncio.run(asked(Client(stdio_client(server))))
    with serving(HTTP[transport], environ) as url:
        return asyncio.run(asked(Client(url if url.endswith("/mcp") else url.rstrip("/") + "/mcp")))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_process_with_a_url_and_a_token_that_reads_answers_as_one_with_the_files(
    tmp_path: Path, server: Server, key: Key, transport: Transport
):
    here = tmp_path / "here"
    fill(here)
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        there = answers(transport, reading_from(tmp_path / "there", f"notes={relay.url}", key))
    assert there == answers(transport, environment(here))
    assert there["English"]["structured_content"]["semantic"]
    assert there["Chinese"]["structured_content"]["keyword"]
    # Nothing was tried that a token for reading is refused for.
    assert relay.statuses == {200}
    assert not (tmp_path / "there" / "databases").exists()


def test_databases_of_tenants_on_servers_are_kept_apart(tmp_path: Path, server: Server, key: Key):
    here = tmp_path / "here"
    fill(here)
    published(here, "acme-plans", server.url, key)
    environ = reading_from(tmp_path / "there", f"acme-plans@acme={server.url}", key)

    def answer(tenant: str) -> Json:
        process = StdioServerParameters(command=STDIO[0], args=[*STDIO[1:], "--tenant", tenant], env=environ)

        async def ask() -> Json:
            async with Client(stdio_client(process)) as client:
                listed = await client.call_tool("list_rag", {})
                found = await client.call_tool("search_rag", {"db": "acme-plans", "q": "plan"})
                return {"list": listed.structured_content, "search": found.model_dump(mode="json")}

        return asyncio.run(ask())

    acme, globex = answer("acme"), answer("globex")
    assert acme["list"]["loaded"] == ["acme-plans"]
    assert "secret" in str(acme["search"])
    assert globex["list"] == {"loaded": [], "registered": []}
    assert 'invalid argument: "acme-plans" not exist' in str(globex["search"])


def test_a_database_of_another_owner_than_the_setting_says_is_not_served(tmp_path: Path, server: Server, key: Key):
    fill(tmp_path / "here")
    published(tmp_path / "here", "acme-plans", server.url, key)
    chosen = settings(tmp_path / "there", {"plans": server.url}, key.token(read_only=True))
    with (
        closing(Library(Catalog(chosen.data_dir), HashingEmbedder, elsewhere=elsewhere_of(chosen))) as library,
        pytest.raises(Unavailable, match="belongs to another owner"),
    ):
        asyncio.run(library.open(Session(None, None), "plans"))
