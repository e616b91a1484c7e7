"""A Lambda Function URL on this machine: `python -m local.bridge --port 9000`.

Each HTTP request becomes the event that AWS makes of it (payload format 2.0), the function answers, and its answer
becomes the HTTP response. As in one Lambda execution environment, one event is answered at a time, in one thread.
"""

import argparse
import asyncio
import base64
import contextlib
import importlib
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Required, TypedDict, cast
from urllib.parse import parse_qsl
from uuid import uuid4

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kura.errors import ConfigurationError
from kura.serve.listener import listen

log = logging.getLogger(__name__)

Event = dict[str, Any]
Invoke = Callable[[Event], object]
"""Answers one event: a function in this process, or the way to one elsewhere."""

HOST = "127.0.0.1"
DOMAIN = "localhost"
HANDLER = "handler.app.handler"
MAX_PAYLOAD = 6 * 1024 * 1024
"""Bytes that Lambda takes as one event, and takes back as one answer."""

TIMEOUT_SECONDS = 30.0
_TEXT = ("text/", "application/json", "application/javascript", "application/xml", "application/x-www-form-urlencoded")
_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


class _Answer(TypedDict, total=False):
    statusCode: Required[int]
    headers: dict[str, str] | None
    cookies: list[str] | None
    body: str | None
    isBase64Encoded: bool


@dataclass(frozen=True, slots=True)
class Context:
    """What a function may ask about its invocation."""

    aws_request_id: str
    function_name: str = "kura"
    function_version: str = "$LATEST"
    invoked_function_arn: str = "arn:aws:lambda:local:000000000000:function:kura"
    memory_limit_in_mb: int = 1024
    log_group_name: str = "/aws/lambda/kura"
    log_stream_name: str = "local"
    identity: None = None
    client_context: None = None
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_SECONDS)

    def get_remaining_time_in_millis(self) -> int:
        """Until the time-out; nothing is cut off here once it has passed."""
        return max(0, round((self.deadline - time.monotonic()) * 1000))


class FunctionUrl:
    """The ASGI application that fronts one function.

    What the function raises is logged and answered with 502, as AWS does it.
    """

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke
        self._environment = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lambda")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        request = Request(scope, receive)
        try:
            body = await _read(request)
        except ClientDisconnect:
            return
        response = _message(413, "Request Too Long") if body is None else await self._answer(to_event(request, body))
        await response(scope, receive, send)

    async def _answer(self, event: Event) -> Response:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._environment, self._invoke, event)
            return to_response(result)
        except Exception:
            log.exception("the function failed")
            return _message(502, "Internal Server Error")


def to_event(request: Request, body: bytes) -> Event:
    """The event that AWS makes of a request: payload format 2.0 of Function URLs."""
    method, path = request.method, request.scope["raw_path"].decode("latin-1")
    query: str = request.scope["query_string"].decode("latin-1")
    now = datetime.now(UTC)
    source = request.client.host if request.client else HOST
    headers = {
        name: ",".join(request.headers.getlist(name))
        for name in sorted(set(request.headers.keys()) - _HOP - {"cookie"})
    }
    headers |= {"x-forwarded-for": source, "x-forwarded-port": str(request.url.port or 80), "x-forwarded-proto": "http"}
    event: Event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "local",
            "domainName": DOMAIN,
            "domainPrefix": "local",
            "http": {
                "method": method,
                "path": path,
                "protocol": f"HTTP/{request.scope['http_version']}",
                "sourceIp": source,
                "userAgent": request.headers.get("user-agent", ""),
            },
            "requestId": str(uuid4()),
            "routeKey": "$default",
            "stage": "$default",
            "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": round(now.timestamp() * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies := [part.strip() for sent in request.headers.getlist("cookie") for part in sent.split(";")]:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = _joined(parse_qsl(query, keep_blank_values=True))
    if body:
        text = _as_text(body, request)
        event |= {"body": base64.b64encode(body).decode() if text is None else text, "isBase64Encoded": text is None}
    return event


def to_response(result: object) -> Response:
    """The HTTP response that AWS makes of a function's answer.

    Raises:
        ValueError: if it can make none; AWS answers 502 then.
    """
    text = json.dumps(result, ensure_ascii=False)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_PAYLOAD:
        raise ValueError(f"the answer is larger than {MAX_PAYLOAD:,} bytes")
    if isinstance(result, dict) and "errorMessage" in result:
        raise ValueError(f"the function failed: {text[:2000]}")
    if not isinstance(result, dict) or "statusCode" not in result:
        # Whatever has no status is taken for the body itself.
        return Response(text, media_type="application/json")
    answer = cast(_Answer, result)
    body = answer.get("body") or ""
    content = base64.b64decode(body, validate=True) if answer.get("isBase64Encoded") else body.encode()
    headers = {name.lower(): str(value) for name, value in (answer.get("headers") or {}).items()}
    kept = {name: value for name, value in headers.items() if name not in _HOP | {"content-length"}}
    response = Response(content, int(answer["statusCode"]), {"content-type": "application/json"} | kept)
    for cookie in answer.get("cookies") or []:
        response.headers.append("set-cookie", cookie)
    return response


def load_function(name: str = HANDLER) -> Invoke:
    """The function of that dotted name, imported as the Lambda runtime does it, to be called with a context."""
    module, _, attribute = name.rpartition(".")
    function: Callable[[Event, Context], object] = getattr(importlib.import_module(module), attribute)
    return lambda event: function(event, Context(event["requestContext"]["requestId"]))


def serve(app: ASGIApp, port: int, ready: Callable[[str], None]) -> None:
    """Serve `app` on loopback until the process is told to end.

    Args:
        app: What answers.
        port: Port to listen on; 0 takes a free one.
        ready: Called with the URL once it can be reached.

    Raises:
        ConfigurationError: if it cannot listen there.
    """
    with listen(socket.AF_INET, (HOST, port), HOST) as listener, contextlib.suppress(KeyboardInterrupt):
        ready(f"http://{HOST}:{listener.getsockname()[1]}")
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> None:
    """Front the function until the process is told to end."""
    parser = argparse.ArgumentParser(prog="python -m local.bridge", description=__doc__)
    parser.add_argument("--port", type=int, default=9000, help="0 takes a free one; the URL is printed")
    parser.add_argument("--handler", default=HANDLER, help="dotted name of the function [%(default)s]")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    try:
        serve(FunctionUrl(load_function(given.handler)), given.port, lambda url: print(url, flush=True))
    except ConfigurationError as error:
        sys.exit(str(error))


async def _read(request: Request) -> bytes | None:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_PAYLOAD:
            return None
    return bytes(body)


def _as_text(body: bytes, request: Request) -> str | None:
    media_type = request.headers.get("content-type", "").lower()
    if not media_type.startswith(_TEXT) or "content-encoding" in request.headers:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _message(status: int, text: str) -> Response:
    return Response(json.dumps({"Message": text}), status, media_type="application/json")


if __name__ == "__main__":
    main()
