"""Show the hosted path on this machine: a libSQL server, `kura push`, and `kura serve` that has nothing but its URL.

Run it with `make hosted`; Ctrl-C ends it, and so does `--once` after the first answers. All that it makes lies in
`.kura-demo`, which can be deleted.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from mcp import Client

from local.sqld import Key, libsql_server

PROJECT = Path(__file__).resolve().parent.parent
CORPUS = PROJECT / "examples" / "corpus"
HOME = PROJECT / ".kura-demo"
KURA = Path(sys.executable).with_name("kura")
QUESTION = "How do I silence noisy brakes on my bicycle?"
READY_SECONDS = 60.0


def main() -> None:
    """Index, publish, serve from the server, and ask."""
    place = HOME / "hosted"
    shutil.rmtree(place, ignore_errors=True)
    key = Key()
    with libsql_server(place / "server", jwt_key=key.public) as server:
        common = {**os.environ, "KURA_CACHE_DIR": str(HOME / "cache"), "PYTHONUNBUFFERED": "1"}
        writer = {**common, "KURA_DATA_DIR": str(place / "laptop"), "KURA_DATABASE_TOKENS": key.token()}
        reader = {
            **common,
            "KURA_DATA_DIR": str(place / "host"),
            "KURA_DATABASES": f"handbook={server.url}",
            "KURA_DATABASE_TOKENS": key.token(read_only=True, seconds=86_400),
        }
        print(f"a libSQL server listens on {server.url}", flush=True)
        kura("add", "handbook", environment=writer)
        kura("index", "handbook", str(CORPUS), environment=writer)
        kura("push", "handbook", "--to", server.url, environment=writer)
        print(
            "$ kura serve   # with an empty data directory, the database's URL and a token that can only read",
            flush=True,
        )
        serving = subprocess.Popen([KURA, "serve"], env=reader)
        try:
            url = endpoint(place / "host" / "endpoint", serving)
            asyncio.run(ask(url))
            if "--once" not in sys.argv:
                print(f"\nconnect your client to {url}; Ctrl-C ends it", flush=True)
                serving.wait()
        except KeyboardInterrupt:
            print()
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait(timeout=READY_SECONDS)


def kura(*arguments: str, environment: dict[str, str]) -> None:
    """Run a command as a person would type it."""
    print(f"$ kura {' '.join(arguments)}", flush=True)
    subprocess.run([KURA, *arguments], check=True, env=environment)


def endpoint(file: Path, serving: "subprocess.Popen[bytes]") -> str:
    """The URL of the MCP endpoint, which the server writes down while it runs."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and serving.poll() is None:
        if file.exists() and (url := file.read_text(encoding="utf-8").strip()):
            return url if url.endswith("/mcp") else url.rstrip("/") + "/mcp"
        time.sleep(0.05)
    sys.exit("kura serve did not start")


async def ask(url: str) -> None:
    """Ask over HTTP, as a remote agent would."""
    async with Client(url) as client:
        listed = await client.call_tool("list_rag", {})
        print(f"list_rag → {json.dumps(listed.structured_content, ensure_ascii=False)}")
        answer = await client.call_tool("search_rag", {"db": "handbook", "q": QUESTION, "limit": 1})
        if answer.is_error or answer.structured_content is None:
            sys.exit(f"the search failed: {answer.content}")
        print(f"search_rag(q={QUESTION!r})")
        for mode in ("keyword", "semantic"):
            for group in answer.structured_content.get(mode, []):
                for match in group["matches"]:
                    print(f"  {mode:<8} {group['source']}  {' '.join(match['content'].split())[:120]}")


if __name__ == "__main__":
    main()
