"""The tools over tables as clients call them: over stdio, HTTP with the static key, and the handler."""

import hashlib
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from handler.adapter import Handler
from kura.library.library import Library
from kura.serve.mcp import build_server, instructions
from kura.serve.sql_tools import tools_of
from kura.settings import Settings, read_settings
from kura.types import Principal, Rules
from tests.serve.running import EventTransport, call, command, environment, process
from tests.sql.planted import TENANTS, library_of_file

pytestmark = pytest.mark.anyio
A, B = TENANTS
KEY = "a key"
HASH = hashlib.sha256(KEY.encode()).hexdigest()
HEADERS = {"authorization": f"Bearer {KEY}"}
SESSION = {"tenant_id": A, "user_id": "ada"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    library_of_file(directory).close()
    return directory


@pytest.fixture(scope="module")
def served(tables: Path) -> Generator[str]:
    with process(tables, key_hash=HASH, tenant=A, user="ada") as (address, _):
        yield address


@asynccontextmanager
async def connected(transport: str, tables: Path, served: str) -> AsyncGenerator[Client]:
    """A client whose session is fixed to one tenant and user."""
    if transport == "stdio":
        program, *arguments = command("stdio", tables, tenant=A, user="ada")
        parameters = StdioServerParameters(command=program, args=arguments, env=environment())
        async with Client(parameters) as client:
            yield client
    elif transport == "http":
        async with (
            httpx2.AsyncClient(headers=HEADERS, verify=False) as http,
            Client(streamable_http_client(f"{served}/mcp", http_client=http)) as client,
        ):
            yield client
    else:
        settings = Settings(data_dir=tables, embedder="hashing", key_hash=HASH, tenant=A, user="ada", refresh_seconds=0)
        with closing(Handler(settings)) as handler:
            async with (
                httpx2.AsyncClient(headers=HEADERS, transport=EventTransport(handler, "function_url")) as http,
                Client(streamable_http_client("http://localhost:8080/mcp", http_client=http)) as client,
            ):
                yield client


async def answer(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    [block] = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    assert result.structured_content is not None
    assert json.loads(block.text) == result.structured_content
    [schema] = [each.output for each in tools_of(Rules()) if each.name == tool]
    Draft202012Validator(schema).validate(result.structured_content)  # pyright: ignore[reportUnknownMemberType]
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert result.is_error
    assert result.structured_content is None
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("transport", ["stdio", "http", "handler"])
async def test_a_tenants_client_asks_searches_and_looks_at_its_own_rows(transport: str, tables: Path, served: str):
    async with connected(transport, tables, served) as client:
        assert await answer(client, "query", sql="select id, id, age from users where age > ?", params=[45]) == {
            "columns": ["id", "id_2", "age"],
            "rows": [{"id": 5, "id_2": 5, "age": 50}, {"id": 6, "id_2": 6, "age": 60}],
            "affectedRows": 0,
            "message": "2 rows",
            "truncated": False,
            "_session": SESSION,
        }
        found = await answer(client, "query", sql="select count(*) as n, max(id) as last from users", db="notes")
        assert found["rows"] == [{"n": 6, "last": 6}]
        found = await answer(client, "query", sql="select content, path from chunks, sources")
        assert found["rows"] == [{"content": "A passage that is knowledge.", "path": "a.md"}]

        near = await answer(
            client, "vector_search", table="vectors", column="embedding", query_vector=[6, 1, 0, 0], k=2,
            metric="euclidean",
        )  # fmt: skip
        assert near["index_size"] == 6
        assert [(each["id"], each["distance"]) for each in near["results"]] == [(6, 0.0), (5, 1.0)]
        assert near["results"][0]["metadata"]["tenant"] == A
        assert {key: near[key] for key in ("table", "column", "k", "metric", "_session")} == {
            "table": "vectors", "column": "embedding", "k": 2, "metric": "euclidean", "_session": SESSION,
        }  # fmt: skip

        shown = await answer(client, "schema_inspect")
        assert shown["table_count"] == len(shown["tables"]) == 13
        [users] = (await answer(client, "schema_inspect", table="users"))["tables"]
        assert (users["row_count"], users["primary_key"]) == (6, ["id"])
        assert users["columns"][2] == {
            "name": "name", "type": "TEXT", "primary_key": False, "not_null": False, "unique": True, "default": None,
            "foreign_key": None,
        }  # fmt: skip
        [orders] = (await answer(client, "schema_inspect", table="orders"))["tables"]
        assert orders["columns"][1]["foreign_key"] == {"table": "users", "column": "id"}
        assert B not in json.dumps([near, shown, users, orders])

        # Who asks is fixed; an argument may repeat it, and never change it.
        assert (await answer(client, "query", sql="select 1", tenant_id=A))["_session"] == SESSION
        for tool, more in (
            ("query", {"sql": "select count(*) from users"}),
            ("vector_search", {"table": "vectors", "column": "embedding", "query_vector": [1, 0, 0, 0]}),
            ("schema_inspect", {}),
        ):
            assert "tenant_id" in await refusal(client, tool, tenant_id=B, **more)
        assert "syntax error at line 1, column 15" in await refusal(client, "query", sql="select * form users")
        assert "only reading" in await refusal(client, "query", sql="delete from users")


async def test_without_the_key_nobody_asks(served: str):
    async with httpx2.AsyncClient(verify=False) as http:
        answered = await http.post(f"{served}/mcp", json=call("query", sql="select 1"))
        assert answered.status_code == 401


@pytest.fixture(scope="module")
def local(tables: Path) -> Generator[Library]:
    with closing(library_of_file(tables / "again")) as library:
        yield library


@asynccontextmanager
async def here(library: Library) -> AsyncGenerator[Client]:
    async with Client(build_server(library, lambda _: Principal(believed=True), version="0")) as client:
        yield client


async def test_arguments_come_as_clients_really_send_them(local: Library):
    async with here(local) as client:
        for absent in ("", "null", dict[str, object]()):
            found = await answer(client, "query", sql="select 1 as one", params=absent, db=absent, user_id=absent)
            assert found["rows"] == [{"one": 1}]
            assert (await answer(client, "schema_inspect", table=absent))["table_count"] == 13
            found = await answer(
                client, "vector_search", table="vectors", column="plain", query_vector="[1, 1, 0, 0]", k=absent,
                metric=absent, filter_column=absent, filter_value=absent, tenant_id=A,
            )  # fmt: skip
            assert len(found["results"]) == 6
        found = await answer(client, "query", sql="select ?, ?", params='["a", null]')
        assert list(found["rows"][0].values()) == ["a", None]
        found = await answer(client, "vector_search", table="vectors", column="plain", query_vector=[1, 1, 0, 0], k="2",
                             filter_column="id", filter_value=3, tenant_id=A)  # fmt: skip
        assert [each["id"] for each in found["results"]] == [3]


async def test_values_of_every_kind_go_there_and_back(local: Library):
    values: list[object] = [
        None,
        True,
        False,
        5,
        -(2**63),
        2.5,
        "表 \U0001f600",
        {"base64": "AP8="},
        2**53,
        2**53 + 1,
        25.0,
    ]
    sql = "select " + ", ".join(f"? as c{n}" for n in range(len(values)))
    async with here(local) as client:
        found = await answer(client, "query", sql=sql, params=values)
        assert list(found["rows"][0].values()) == [
            None, 1, 0, 5, str(-(2**63)), 2.5, "表 \U0001f600", "AP8=", 2**53, str(2**53 + 1), 25.0,
        ]  # fmt: skip
        found = await answer(
            client, "query", sql="select typeof(?), typeof(?), 9e999, -9e999", params=[{"base64": ""}, "x"]
        )
        assert list(found["rows"][0].values()) == ["blob", "text", "Infinity", "-Infinity"]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("query", {}, 'missing argument: "sql" must be text of 1 to 50,000 characters'),
        ("query", {"sql": 5}, '"sql" must be text'),
        ("query", {"sql": "select ?", "params": [2**63]}, '"params" must be a list of 0 to 1,000 values'),
        ("query", {"sql": "select ?", "params": [[1]]}, '"params" must be a list'),
        ("query", {"sql": "select ?", "params": [{"base64": "!"}]}, '"params" must be a list'),
        ("query", {"sql": "select ?", "params": "no list"}, '"params" must be a list'),
        ("query", {"sql": "select ?", "params": {"a": 1}}, '"params" must be a list'),
        ("query", {"sql": "select ?", "params": [1] * 1001}, '"params" must be a list'),
        ("query", {"sql": "select 1", "limit": 1}, 'unknown argument "limit"; known are sql, params, db'),
        ("vector_search", {"table": "vectors"}, 'missing argument: "column"'),
        ("vector_search", {"table": "t", "column": "c", "query_vector": []}, "a list of 1 to 65,536 numbers"),
        ("vector_search", {"table": "t", "column": "c", "query_vector": ["a"]}, "a list of 1 to 65,536 numbers"),
        ("vector_search", {"table": "t", "column": "c", "query_vector": [True]}, "a list of 1 to 65,536 numbers"),
        ("vector_search", {"table": "t", "column": "c", "query_vector": [1], "k": 0}, "a whole number from 1 to 1000"),
        (
            "vector_search",
            {"table": "t", "column": "c", "query_vector": [1], "metric": "l2"},
            "one of cosine, euclidean",
        ),
        ("vector_search", {"table": "t", "column": "c", "query_vector": [1], "filter_column": "x"}, "go together"),
        ("schema_inspect", {"table": 5}, '"table" must be text'),
    ],
    ids=str,
)
async def test_wrong_arguments_are_refused_with_the_rule(
    local: Library, tool: str, arguments: dict[str, Any], said: str
):
    async with here(local) as client:
        assert said in await refusal(client, tool, **arguments)


async def test_where_writing_is_on_the_tools_say_so_and_write(tables: Path):
    settings = read_settings(data_dir=tables / "writing", allow_writes=("notes",), sql_rows=3)
    library_of_file(settings.data_dir).close()
    with closing(Handler(read_settings(data_dir=settings.data_dir, allow_writes=("notes",), key_hash=HASH, tenant=A,
                                       embedder="hashing", sql_rows=3))) as handler:  # fmt: skip
        async with (
            httpx2.AsyncClient(headers=HEADERS, transport=EventTransport(handler, "function_url")) as http,
            Client(streamable_http_client("http://localhost:8080/mcp", http_client=http)) as client,
        ):
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            hints = {name: tool.annotations.read_only_hint for name, tool in tools.items() if tool.annotations}
            assert hints == {
                "list_rag": True, "search_rag": True, "query": False, "vector_search": True, "schema_inspect": True,
            }  # fmt: skip
            assert "these databases: notes" in (tools["query"].description or "")
            found = await answer(client, "query", sql="update users set age = 1 where id < ?", params=[3])
            assert (found["affectedRows"], found["message"]) == (2, "2 rows changed")
            found = await answer(client, "query", sql="select id from users")
            assert (len(found["rows"]), found["truncated"]) == (3, True)
    assert "It cannot change anything" in instructions(Rules())
    assert "Rows of tables can be changed by query, where the operator allowed it: notes" in instructions(
        settings.rules
    )
