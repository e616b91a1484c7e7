"""The fixtures as a process, which prints its URL: `python -m tests.conformance.fixture_server uvicorn|lambda`."""

import asyncio
import sys
from typing import Any, cast

from mangum import Mangum

from local.bridge import Event, FunctionUrl, serve
from tests.conformance.fixtures import build_fixture_app


def main(hosting: str) -> None:
    app = build_fixture_app()
    if hosting == "uvicorn":
        serve(app, 0, _say)
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    function = Mangum(app, lifespan="off")

    def invoke(event: Event) -> dict[str, Any]:
        asyncio.set_event_loop(loop)
        return function(event, cast(Any, None))

    serve(FunctionUrl(invoke), 0, _say)


def _say(url: str) -> None:
    print(url, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
