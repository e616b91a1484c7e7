"""Show the whole of Kura in one go: index a small corpus, start `kura mcp` as an MCP client would, and ask.

Run it with `make demo`. Everything that it makes lies in `.kura-demo`, which can be deleted.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

PROJECT = Path(__file__).resolve().parent.parent
CORPUS = PROJECT / "examples" / "corpus"
HOME = PROJECT / ".kura-demo"
DATA = HOME / "data"
KURA = Path(sys.executable).with_name("kura")
QUESTIONS = ("How do I stop my bike from squeaking?", "茶为什么会又苦又涩？")


def main() -> None:
    """Index, ask, and show how to connect a client."""
    shutil.rmtree(DATA, ignore_errors=True)
    environment = {**os.environ, "KURA_CACHE_DIR": str(HOME / "cache")}
    say("1. Index a folder of English and Chinese files (no key, no network)")
    kura("add", "handbook", environment=environment)
    kura("index", "handbook", str(CORPUS), environment=environment)
    say("2. Start `kura mcp` and ask it, as Claude, Cursor or VS Code would")
    asyncio.run(ask(environment))
    say("3. Connect your own client")
    connect()


def kura(*arguments: str, environment: dict[str, str]) -> None:
    """Run a command as a person would type it."""
    print(f"$ kura {' '.join(arguments)}", flush=True)
    subprocess.run([KURA, *arguments, "--data-dir", DATA], check=True, env=environment)


async def ask(environment: dict[str, str]) -> None:
    """List the knowledge bases and ask one English and one Chinese question over stdio."""
    server = StdioServerParameters(command=str(KURA), args=["mcp", "--data-dir", str(DATA)], env=environment)
    async with Client(stdio_client(server)) as client:
        listed = await client.call_tool("list_rag", {})
        print(f"list_rag → {json.dumps(listed.structured_content, ensure_ascii=False)}")
        for question in QUESTIONS:
            answer = await client.call_tool("search_rag", {"db": "handbook", "q": question, "limit": 2})
            if answer.is_error or answer.structured_content is None:
                sys.exit(f"the search failed: {answer.content}")
            print(f"\nsearch_rag(q={question!r})")
            show(answer.structured_content)


def show(answer: dict[str, Any]) -> None:
    """Print the passages of an answer."""
    for notice in answer.get("notices", []):
        print(f"  note: {notice}")
    for mode in ("keyword", "semantic"):
        for group in answer.get(mode, []):
            for match in group["matches"]:
                first, last = match["lines"]
                print(f"  {mode:<8} {group['source']}:{first}-{last}  {' '.join(match['content'].split())[:160]}")


def connect() -> None:
    """Print the configuration for common clients, ready to paste."""
    server = {
        "command": str(KURA),
        "args": ["mcp", "--data-dir", str(DATA)],
        "env": {"KURA_CACHE_DIR": str(HOME / "cache")},
    }
    for client, where, block in (
        ("Claude Desktop", "claude_desktop_config.json", {"mcpServers": {"kura": server}}),
        ("Cursor", ".cursor/mcp.json", {"mcpServers": {"kura": server}}),
        ("VS Code", ".vscode/mcp.json", {"servers": {"kura": {"type": "stdio", **server}}}),
    ):
        print(f"{client} ({where}):\n{json.dumps(block, indent=2)}\n")


def say(title: str) -> None:
    """Print the title of a step."""
    print(f"\n== {title}", flush=True)


if __name__ == "__main__":
    main()
