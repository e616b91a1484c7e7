"""Traces: where they are sent, and how a request over HTTP joins the one that its caller began.

The SDK of MCP makes a span of each message, by OpenTelemetry's global tracer. Ours stand around it and within it.
"""

from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kura.events import trace_with
from kura.serve.problems import REQUEST_ID


def trace_to(url: str, version: str, exporter: SpanExporter | None = None) -> Callable[[], None]:
    """Send traces somewhere from now on, for as long as the process lives.

    Args:
        url: Base URL of a collector (OTLP over HTTP).
        version: Kura's version.
        exporter: Takes the spans in place of that collector.

    Returns:
        What sends those that are waiting to be sent; for a process that may stand still for long after a request.
    """
    if exporter is None:
        exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=5)
    provider = TracerProvider(resource=Resource.create({"service.name": "kura", "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    trace_with(provider.get_tracer("kura", version))
    return lambda: _flushed(provider)


def _flushed(provider: TracerProvider) -> None:
    provider.force_flush(timeout_millis=2000)


class Traced:
    """A span around each request over HTTP, within the trace that its `traceparent` names (W3C Trace Context)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        context = extract(Headers(scope=scope))
        with trace.get_tracer("kura").start_as_current_span(
            f"{scope['method']} HTTP", context=context, kind=trace.SpanKind.SERVER
        ) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            span.set_attribute("http.request.method", scope["method"])
            span.set_attribute("kura.request_id", scope[REQUEST_ID])
            await self.app(scope, receive, watched)
