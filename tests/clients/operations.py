"""What every client does over every transport, and what it should get."""

import asyncio
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.shared.exceptions import MCPError

from kura import __version__
from kura.embed.hashing import HashingEmbedder
from kura.library.library import Library
from kura.serve.mcp import build_server, instructions
from kura.store.catalog import Catalog
from kura.types import Principal, Rules

Json = dict[str, Any]
CONNECT = "greeting"
TOOLS = "list tools"
_SHOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    title: str
    tool: str
    arguments: Json = field(default_factory=dict[str, Any])


def _search(title: str, q: str, **more: object) -> Call:
    return Call(title, "search_rag", {"db": "notes", "q": q, **more})


CALLS = (
    Call("`list_rag`", "list_rag"),
    _search("English", "Which file and lines?"),
    _search("Chinese", "模型怎麼根據段落回答？"),
    _search("keyword only", "段落", mode="keyword", limit=1),
    _search("semantic only", "What finds passages?", mode="semantic", limit=2),
    _search("wrong argument", "lines", limit=0),
    Call("unknown database", "search_rag", {"db": "nowhere", "q": "lines"}),
    Call("unknown tool", "forget_everything"),
)
COLUMNS = (CONNECT, TOOLS, *(call.title for call in CALLS))


@dataclass(frozen=True, slots=True)
class Report:
    """What one client got: the greeting, the tools that it was shown, and by their titles the answers to its calls."""

    connect: Json
    tools: list[Json]
    calls: dict[str, Json]


def expected(data_dir: Path) -> Report:
    """What the server says by itself, without any client or transport in between, and so without a revision."""
    with closing(Library(Catalog(data_dir), HashingEmbedder)) as library:
        library.start(within=30)
        server = build_server(library, lambda _request: Principal(), version=__version__)

        async def ask() -> Report:
            tools = [
                tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in await server.list_tools()
            ]
            return Report(
                connect={
                    "server": {"name": "kura", "version": __version__},
                    "instructions": instructions(Rules()),
                },
                tools=tools,
                calls={call.title: await answer(call) for call in CALLS},
            )

        async def answer(call: Call) -> Json:
            try:
                result = await server.call_tool(call.tool, call.arguments)
            except MCPError as error:
                return {"code": error.code, "message": error.message}
            return result.model_dump(by_alias=True, mode="json", exclude_none=True)

        return asyncio.run(ask())


def compare(got: Report, wanted: Report, protocol_version: str) -> dict[str, str]:
    """For each column that the client asked for: nothing where it got what it should, otherwise what was wrong."""
    found = {TOOLS: _difference(_tools(got), _tools(wanted))}
    if len(got.connect) > 1:
        found[CONNECT] = _difference(got.connect, {**wanted.connect, "protocolVersion": protocol_version})
    for title, answer in got.calls.items():
        found[title] = _difference(_answer(answer), _answer(wanted.calls[title]))
    return found


def _tools(report: Report) -> list[Json]:
    return [{key: tool[key] for key in _SHOWN} for tool in report.tools]


def _answer(answer: Json) -> Json:
    if "content" not in answer:
        return answer
    return {key: answer.get(key) for key in ("isError", "content", "structuredContent")}


def _difference(got: object, wanted: object) -> str:
    return "" if got == wanted else f"got {got!r} instead of {wanted!r}"
