"""Traces, as a collector gets them: ours join those of the caller and of the MCP SDK."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.serve.running import JSON, ROOT, call

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@contextmanager
def collecting() -> Generator[tuple[str, list[Any]]]:
    """A collector on this machine: its URL and the spans that it got."""
    spans: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of the base class
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", spans
        finally:
            server.shutdown()
            thread.join()


def test_a_request_is_traced_from_its_caller_to_the_branches_of_the_search(data_dir: Path):
    mine = {name: value for name, value in os.environ.items() if not name.startswith("KURA_")}
    with collecting() as (collector, spans):
        environ = mine | {
            "PYTHONPATH": str(ROOT), "KURA_DATA_DIR": str(data_dir), "KURA_EMBEDDER": "hashing",
            "KURA_TRACES_TO": collector,
        }  # fmt: skip
        command = [sys.executable, "-m", "kura", "serve", "--port", "0"]
        with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            url = process.stderr.readline().split()[1]
            headers = {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01"}
            with httpx2.Client(verify=False) as client:
                answered = client.post(url, json=call("search_rag", db="notes", q="zanzibar"), headers=headers)
            assert answered.status_code == 200
            process.terminate()
            process.communicate(timeout=30)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    by_name = {span.name: span for span in spans}
    request = by_name["POST HTTP"]
    assert request.parent_span_id.hex() == PARENT
    ids = {span.span_id: span for span in spans}
    for name in ("search.keyword", "search.semantic"):
        # Up through the span that the SDK makes of the message.
        way: list[str] = []
        at = by_name[name]
        while at.span_id != request.span_id:
            at = ids[at.parent_span_id]
            way.append(at.name)
        assert way[-1] == "POST HTTP"
        assert any("tools/call" in step for step in way), way
    attributes = {each.key: each.value.string_value or each.value.int_value for each in request.attributes}
    assert attributes["http.response.status_code"] == 200
    assert attributes["kura.request_id"] == answered.headers["x-request-id"]
    assert b"zanzibar" not in b"".join(span.SerializeToString() for span in spans)
