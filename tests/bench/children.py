"""Kura as children run it, and how they are talked to."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from kura.embed.choose import Choice
from tests.bench.corpus import NAME, english_words

ROOT = Path(__file__).resolve().parents[2]

Json = dict[str, Any]


def environment(data_dir: Path, embedder: Choice) -> dict[str, str]:
    """What a child of ours is started with, and nothing of Kura's that the machine has set, bar the model's place."""
    kept = {"KURA_CACHE_DIR", "KURA_MODEL_FILE"}
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_") or name in kept}
    ours = {"KURA_DATA_DIR": str(data_dir), "KURA_EMBEDDER": embedder, "KURA_PUBLIC": "true", "PYTHONPATH": str(ROOT)}
    return mine | ours


def python(*arguments: str) -> list[str]:
    """The command that runs this Python."""
    return [sys.executable, *arguments]


def question(*ranks: int) -> str:
    """A question of the words that have these ranks in English texts of the corpus."""
    return " ".join(english_words()[rank] for rank in ranks)


def search_call(q: str, **more: object) -> Json:
    """The JSON-RPC message that asks `search_rag`."""
    arguments = {"db": NAME, "q": q, **more}
    return {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "search_rag", "arguments": arguments},
    }


def asking(q: str, seen: Callable[[Json], None]) -> Callable[[IO[str], IO[str]], None]:
    """Greet an MCP server on standard streams as a client does, and ask it `q`; `seen` gets the answer."""
    client = {"name": "bench", "version": "0"}
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}

    def talk(stdin: IO[str], stdout: IO[str]) -> None:
        _send(stdin, [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}])
        _received(stdout, 1)
        _send(stdin, [{"jsonrpc": "2.0", "method": "notifications/initialized"}, search_call(q)])
        seen(_received(stdout, 2))

    return talk


def one_line(seen: Callable[[Json], None]) -> Callable[[IO[str], IO[str]], None]:
    """Wait for one line of JSON; `seen` gets it."""

    def talk(_: IO[str], stdout: IO[str]) -> None:
        seen(_message(stdout))

    return talk


def _send(stdin: IO[str], messages: Iterable[Json]) -> None:
    for message in messages:
        stdin.write(json.dumps(message) + "\n")
    stdin.flush()


def _received(stdout: IO[str], number: int) -> Json:
    while True:
        message = _message(stdout)
        if message.get("id") == number:
            return message


def _message(stdout: IO[str]) -> Json:
    line = stdout.readline()
    while line.startswith('{"_aws"'):  # what the handler tells CloudWatch
        line = stdout.readline()
    if not line:
        raise EOFError
    message: Json = json.loads(line)
    return message
