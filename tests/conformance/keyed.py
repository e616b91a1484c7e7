"""A credential for a suite that has none: `python -m tests.conformance.keyed URL KEY` prints where it listens.

Every request goes on to the server as it came, its `Host` too, with the key added.
"""

import sys

import httpx2
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from local.bridge import serve


class Keyed:
    """Adds the key to what passes through."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        headers = [*scope["headers"], (b"authorization", f"Bearer {self._key}".encode())]
        async with httpx2.AsyncClient(verify=False, timeout=30) as client:
            target = httpx2.URL(self._url + scope["path"], query=scope["query_string"])
            answered = await client.request(request.method, target, headers=headers, content=body)
        kept = {name: value for name, value in answered.headers.items() if name != "transfer-encoding"}
        await Response(answered.content, answered.status_code, kept)(scope, receive, send)


def _say(url: str) -> None:
    print(url, flush=True)


if __name__ == "__main__":
    serve(Keyed(sys.argv[1], sys.argv[2]), 0, _say)
