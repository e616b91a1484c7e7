"""Kura as strangers reach it: the real commands, each in a process of its own."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
Transport = Literal["stdio", "uvicorn", "lambda"]
TRANSPORTS: tuple[Transport, ...] = ("stdio", "uvicorn", "lambda")

STDIO = [sys.executable, "-m", "kura", "mcp"]
HTTP: dict[Transport, list[str]] = {
    "uvicorn": [sys.executable, "-m", "kura", "serve", "--port", "0"],
    "lambda": [sys.executable, "-m", "local.bridge", "--port", "0"],
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is: at a URL, or behind `STDIO`, the command that starts it, with this environment."""

    url: str | None
    environ: dict[str, str]


def environment(data_dir: Path) -> dict[str, str]:
    """What the processes of Kura are started with, and nothing of Kura's that the machine has set."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_")}
    return mine | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        "KURA_DATA_DIR": str(data_dir),
        "KURA_CACHE_DIR": str(data_dir / "cache"),
        "KURA_EMBEDDER": "hashing",
        "KURA_PUBLIC": "true",
    }


@contextmanager
def serving(command: Sequence[str], environ: dict[str, str]) -> Generator[str]:
    """Run a server that says its URL; it is ended with the block."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=ROOT
    )
    with process:
        said: list[str] = []
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        try:
            url = _url(process, said)
            watchdog.cancel()
            assert process.stdout is not None
            # Read on, or a full pipe would stop the server.
            threading.Thread(target=said.extend, args=(process.stdout,), daemon=True).start()
            yield url
        finally:
            watchdog.cancel()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def reaching(transport: Transport, data_dir: Path) -> Generator[Target]:
    """Everything that a client needs to reach Kura over a transport, for the time of the block."""
    environ = environment(data_dir)
    if transport == "stdio":
        yield Target(None, environ)
        return
    with serving(HTTP[transport], environ) as url:
        yield Target(f"{url}/mcp", environ)


def _url(process: "subprocess.Popen[str]", said: list[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("the server did not start: " + "".join(said))
