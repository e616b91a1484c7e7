"""The clients: each is told where a server is, does all operations, and reports what it got."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.clients.operations import CALLS, Call, Json, Report
from tests.clients.servers import STDIO, Target
from tests.node import toolchain

SECONDS = 120.0
"""How long one client may take for everything."""

Era = Literal["auto", "legacy", "2026-07-28"]


Run = Callable[[Target, Path], Report]


@dataclass(frozen=True, slots=True)
class Driver:
    """One way in which one client is used."""

    client: str
    era: Era
    run: Run

    @property
    def label(self) -> str:
        return f"{self.client}, {self.era}"

    @property
    def protocol_version(self) -> str:
        """What it should agree on with a server that speaks both eras."""
        return "2025-11-25" if self.era == "legacy" else "2026-07-28"

    @property
    def needs_node(self) -> bool:
        return self.client != PYTHON


def _python(era: Era, target: Target, _scratch: Path) -> Report:
    return asyncio.run(asyncio.wait_for(_ask_with_python(era, target), SECONDS))


async def _ask_with_python(era: Era, target: Target) -> Report:
    server = target.url or StdioServerParameters(command=STDIO[0], args=STDIO[1:], env=target.environ)
    async with Client(server, mode=era) as client:
        connect: Json = {"protocolVersion": client.protocol_version}
        if client.server_info is not None:
            server_info = {"name": client.server_info.name, "version": client.server_info.version}
            connect |= {"server": server_info, "instructions": client.instructions}
        listed = await client.list_tools()
        return Report(
            connect=connect,
            tools=[tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in listed.tools],
            calls={call.title: await _call_with_python(client, call) for call in CALLS},
        )


async def _call_with_python(client: Client, call: Call) -> Json:
    try:
        result = await client.call_tool(call.tool, call.arguments)
    except MCPError as error:
        return {"code": error.code, "message": error.message}
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def _typescript(script: str, era: Era, target: Target, _scratch: Path) -> Report:
    asked = {
        "url": target.url,
        "command": STDIO,
        "era": era,
        "calls": [{"title": call.title, "tool": call.tool, "arguments": call.arguments} for call in CALLS],
    }
    ran = _node([str(toolchain.FOLDER / script)], json.dumps(asked), target.environ)
    assert ran.returncode == 0, ran.stderr
    return Report(**json.loads(ran.stdout))


def _inspector(era: Era, titles: Container[str], target: Target, scratch: Path) -> Report:
    ask = partial(_ask_with_inspector, era, target, scratch)
    greeting = ask("initialize")
    server = greeting["serverInfo"]
    return Report(
        connect={
            "protocolVersion": greeting["protocolVersion"],
            "server": {"name": server["name"], "version": server["version"]},
            "instructions": greeting["instructions"],
        },
        tools=ask("tools/list")["tools"],
        calls={
            call.title: ask("tools/call", "--tool-name", call.tool, "--tool-args-json", json.dumps(call.arguments))
            for call in CALLS
            if call.title in titles
        },
    )


def _ask_with_inspector(era: Era, target: Target, scratch: Path, method: str, *options: str) -> Json:
    where = [target.url, "--transport", "http"] if target.url else [*STDIO, "--cwd", str(scratch)]
    for name in ("PYTHONPATH", "KURA_DATA_DIR", "KURA_CACHE_DIR", "KURA_EMBEDDER"):
        where += [] if target.url else ["-e", f"{name}={target.environ[name]}"]
    command = [
        str(toolchain.PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"),
        *("--cli", *where, "--protocol-era", "legacy" if era == "legacy" else "modern"),
        *("--method", method, *options, "--format", "json", "--quiet"),
    ]
    # Its settings belong to this test, not to whoever runs it.
    ran = _node(command, "", target.environ | {"HOME": str(scratch), "MCP_CATALOG_PATH": str(scratch / "mcp.json")})
    assert ran.stdout, ran.stderr
    answer: Json = json.loads(ran.stdout)["result"]
    return answer


def _node(command: list[str], given: str, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(toolchain.node()), *command],
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        env=environ | {"NODE_COMPILE_CACHE": str(toolchain.PACKAGES / ".compiled")},
        check=False,
    )


PYTHON = "Python `mcp`"
CLIENT = "npm `@modelcontextprotocol/client`"
SDK = "npm `@modelcontextprotocol/sdk`"
INSPECTOR = "npm `@modelcontextprotocol/inspector --cli`"

# It starts anew for each question, over stdio together with a server. An unknown tool it refuses by itself.
_INSPECTED = ("`list_rag`", "English", "wrong argument", "Chinese", "unknown database")

DRIVERS: tuple[Driver, ...] = (
    Driver(PYTHON, "auto", partial(_python, "auto")),
    Driver(PYTHON, "legacy", partial(_python, "legacy")),
    Driver(PYTHON, "2026-07-28", partial(_python, "2026-07-28")),
    Driver(CLIENT, "auto", partial(_typescript, "client.mjs", "auto")),
    Driver(CLIENT, "legacy", partial(_typescript, "client.mjs", "legacy")),
    Driver(CLIENT, "2026-07-28", partial(_typescript, "client.mjs", "2026-07-28")),
    Driver(SDK, "legacy", partial(_typescript, "sdk.mjs", "legacy")),
    Driver(INSPECTOR, "legacy", partial(_inspector, "legacy", _INSPECTED)),
    Driver(INSPECTOR, "2026-07-28", partial(_inspector, "2026-07-28", _INSPECTED[1:3])),
)
