"""The official client, over every transport and in every era, gets the same answers."""

import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from handler.adapter import Handler
from kura.access.credentials import open_gate
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings
from kura.types import Principal
from tests.serve.running import EventTransport, command, environment

pytestmark = pytest.mark.anyio
ERAS = ["auto", "legacy", "2026-07-28"]
TRANSPORTS = ["stdio", "uvicorn", "asgi", "lambda"]


@asynccontextmanager
async def connected(transport: str, era: str, data_dir: Path, url: str, library: Library) -> AsyncGenerator[Client]:
    if transport == "stdio":
        program, *arguments = command("stdio", data_dir)
        async with Client(
            StdioServerParameters(command=program, args=arguments, env=environment()), mode=era
        ) as client:
            yield client
        return
    if transport == "uvicorn":
        async with Client(f"{url}/mcp", mode=era) as client:
            yield client
        return
    with ExitStack() as stack:
        if transport == "asgi":
            app = build_app(library, open_gate(Principal()), version="0")
            inner: httpx2.AsyncBaseTransport = httpx2.ASGITransport(app)
        else:
            settings = Settings(data_dir=data_dir, embedder="hashing", public=True, refresh_seconds=0)
            inner = EventTransport(stack.enter_context(closing(Handler(settings))), "function_url")
        async with (
            httpx2.AsyncClient(transport=inner) as http,
            Client(streamable_http_client("http://localhost:8080/mcp", http_client=http), mode=era) as client,
        ):
            yield client


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_official_client_gets_the_same_answers(
    transport: str, era: str, data_dir: Path, url: str, library: Library
):
    async with connected(transport, era, data_dir, url, library) as client:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"list_rag", "search_rag", "query", "vector_search", "schema_inspect"}
        assert (await client.list_resources()).resources == []
        assert (await client.list_resource_templates()).resource_templates == []
        assert (await client.list_prompts()).prompts == []

        listed = structured(await client.call_tool("list_rag", {}))
        assert [entry["db"] for entry in listed["registered"]] == ["notes"]

        english = structured(await client.call_tool("search_rag", {"db": "notes", "q": "Which file and lines?"}))
        assert set(english) == {"keyword", "semantic"}
        [best] = english["keyword"]
        assert best["source"] == "guide/rag.md"
        [match] = best["matches"]
        assert {key: value for key, value in match.items() if key != "score"} == {
            "chunk": 2,
            "content": "A passage names the file and the lines that it comes from.",
            "heading": ["RAG", "Sources"],
            "lines": [5, 9],
        }

        chinese = structured(
            await client.call_tool("search_rag", {"db": "notes", "q": "段落", "mode": "keyword", "limit": 1})
        )
        assert list(chinese) == ["keyword"]
        assert chinese["keyword"][0]["source"] == "指南/檢索.md"
        assert "heading" not in chinese["keyword"][0]["matches"][0]

        refused = await client.call_tool("search_rag", {"db": "notes", "q": "x", "limit": True})
        assert failure(refused) == 'invalid argument: "limit" must be a whole number from 1 to 100'


def structured(result: Any) -> dict[str, Any]:
    assert isinstance(result, CallToolResult)
    assert not result.is_error
    [block] = result.content
    assert isinstance(block, TextContent)
    assert result.structured_content is not None
    assert block.text == json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
    return result.structured_content


def failure(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    assert result.is_error
    assert result.structured_content is None
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text
