"""A server process as the command line starts it, for tests: `python process.py stdio|http DATA_DIR [OPTIONS]`."""

import json
import sys
from contextlib import closing
from pathlib import Path

from kura.errors import ConfigurationError
from kura.serve.mcp import build_server
from kura.serve.stdio import serve_stdio
from kura.types import Principal
from tests.serve.knowledge import open_library


def main(transport: str, data_dir: Path, options: dict[str, object]) -> None:
    with closing(open_library(data_dir)) as library:
        library.start()
        if transport == "stdio":
            print("a banner that some library prints")  # noqa: T201 - the test is that it does no harm
            principal = Principal(believed=True, **options)  # pyright: ignore[reportArgumentType]
            serve_stdio(build_server(library, lambda _request: principal, version="0"))
            return
        from kura.serve.http import serve_http

        try:
            serve_http(library, data_dir=data_dir, version="0", ready=_say, **options)  # pyright: ignore[reportArgumentType]
        except ConfigurationError as error:
            sys.exit(str(error))


def _say(url: str) -> None:
    print(url, flush=True)  # noqa: T201 - read by the test


main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
