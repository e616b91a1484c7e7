"""A server process as the command line starts it, for tests: `python process.py stdio|http DATA_DIR [OPTIONS]`."""

import json
import os
import sys
from contextlib import closing
from pathlib import Path

from kura.embed import Embedder
from kura.embed.hashing import HashingEmbedder
from kura.errors import ConfigurationError
from kura.library.library import Library
from kura.serve.mcp import build_server
from kura.serve.stdio import serve_stdio
from kura.store.catalog import Catalog
from kura.types import Principal


def main(transport: str, data_dir: Path, options: dict[str, object]) -> None:
    embedder = _noisy if transport == "stdio" else HashingEmbedder
    with closing(Library(Catalog(data_dir), embedder, refresh_seconds=0.0)) as library:
        if transport == "stdio":
            principal = Principal(believed=True, **options)  # pyright: ignore[reportArgumentType]
            serve_stdio(build_server(library, lambda _request: principal, version="0"))
            return
        from kura.serve.http import serve_http

        library.start(within=10)
        try:
            serve_http(library, data_dir=data_dir, version="0", ready=_say, **options)  # pyright: ignore[reportArgumentType]
        except ConfigurationError as error:
            sys.exit(str(error))


def _noisy() -> Embedder:
    # The first search loads it, while messages are exchanged.
    print("a banner that some library prints")  # noqa: T201
    os.write(1, b"and another one, from some C code\n")
    return HashingEmbedder()


def _say(url: str) -> None:
    print(url, flush=True)  # noqa: T201 - read by the test


main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
