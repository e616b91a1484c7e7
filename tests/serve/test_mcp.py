import logging
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from kura.errors import BranchFailed
from kura.library.library import Library
from kura.serve import tools
from kura.serve.arguments import schema
from kura.serve.mcp import build_server
from kura.serve.sql_tools import tools_of
from kura.serve.tools import Tool
from kura.types import Principal, Rules

pytestmark = pytest.mark.anyio


async def called(library: Library, principal: Principal, name: str, **arguments: object) -> CallToolResult:
    async with Client(build_server(library, lambda _request: principal, version="0")) as client:
        result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


def text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def registered(result: CallToolResult) -> list[str]:
    assert result.structured_content is not None
    return [entry["db"] for entry in result.structured_content["registered"]]


@pytest.mark.parametrize("tool", tools_of(Rules()), ids=lambda tool: tool.name)
def test_the_schemas_are_valid_and_say_what_every_field_means(tool: Tool[Any]):
    for shown in (schema(tool.arguments), tool.output):
        Draft202012Validator.check_schema(shown)
        for field in shown["properties"].values():
            assert field["description"]
    properties: dict[str, Any] = schema(tool.arguments)["properties"]
    assert {"tenant_id", "user_id"} <= set(properties)


async def test_a_believed_call_acts_for_the_tenant_it_gives_and_the_next_for_none(library: Library):
    server = build_server(library, lambda _request: Principal(believed=True), version="0")
    async with Client(server) as client:
        for tenant, names in [
            ("acme", ["acme-plans", "notes"]),
            (None, ["notes"]),
            ("globex", ["globex-plans", "notes"]),
        ]:
            result = await client.call_tool("list_rag", {} if tenant is None else {"tenant_id": tenant})
            assert isinstance(result, CallToolResult)
            assert registered(result) == names


async def test_a_fixed_tenant_may_be_repeated_but_not_changed(library: Library):
    principal = Principal(tenant="acme", believed=True)
    assert registered(await called(library, principal, "list_rag", tenant_id="acme")) == ["acme-plans", "notes"]
    refused = await called(library, principal, "list_rag", tenant_id="globex")
    assert refused.is_error
    assert "tenant_id" in text(refused)
    assert "globex" not in text(refused)


async def test_a_principal_may_be_limited_to_some_databases(library: Library):
    principal = Principal(tenant="acme", databases=frozenset({"acme-plans"}))
    assert registered(await called(library, principal, "list_rag")) == ["acme-plans"]
    refused = await called(library, principal, "search_rag", db="notes", q="x")
    assert text(refused) == 'invalid argument: "notes" not exist; available: "acme-plans"'


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (BranchFailed("semantic search failed: no vector"), "semantic search failed: no vector"),
        (RuntimeError("/srv/secret/path and key sk-1"), "internal error, request id "),
    ],
    ids=["known", "unforeseen"],
)
async def test_known_errors_are_shown_and_others_masked_and_logged(
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    shown: str,
):
    async def broken(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(tools, "search", broken)
    with caplog.at_level(logging.ERROR):
        result = await called(library, Principal(), "search_rag", db="notes", q="x")
    assert result.is_error
    assert result.structured_content is None
    assert text(result).startswith(shown)
    assert "secret" not in text(result)
    if isinstance(error, RuntimeError):
        assert text(result).rpartition(" ")[2] in caplog.text
        assert "Traceback" in caplog.text


async def test_answers_keep_to_their_schema(library: Library):
    for name, arguments in [("list_rag", {}), ("search_rag", {"db": "notes", "q": "passage"})]:
        result = await called(library, Principal(), name, **arguments)
        [tool] = [tool for tool in tools_of(Rules()) if tool.name == name]
        Draft202012Validator(tool.output).validate(result.structured_content)  # pyright: ignore[reportUnknownMemberType]
