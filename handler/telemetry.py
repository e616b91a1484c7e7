"""What AWS Lambda is told in its own forms: log lines as JSON, and events as lines that CloudWatch makes metrics of.

Powertools writes both, and knows what Lambda does to logging. Where it is not installed the same is logged as text.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kura.events import EVENTS, Value, fields_of

if TYPE_CHECKING:
    from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
    from mangum.types import LambdaContext

NAMESPACE = "Kura"
SERVICE = "kura"

_DIMENSIONS = {"call": "tool", "request": "route"}
_SECONDS = {
    "cold_start": "InitTime",
    "opened": "OpenTime",
    "loaded": "LoadTime",
    "refreshed": "RefreshTime",
    "embedder": "EmbedderTime",
    "call": "Latency",
    "request": "Latency",
}


def set_up(level: str) -> "Callable[[LambdaContext], None]":
    """Let the process log in Lambda's forms.

    Args:
        level: Diagnostics below this level are not logged; events always are.

    Returns:
        What is to be called with each invocation's context, so that lines name the invocation.
    """
    root = logging.getLogger()
    root.setLevel(level.upper())
    # It logs the path of each request, which is a caller's own words.
    logging.getLogger("mangum").setLevel(logging.WARNING)
    events = logging.getLogger(EVENTS)
    events.setLevel(logging.INFO)
    try:
        from aws_lambda_powertools.logging.formatter import (  # noqa: PLC0415 - it may not be there
            LambdaPowertoolsFormatter,
        )
    except ImportError:
        return lambda _context: None
    formatter = LambdaPowertoolsFormatter(service=SERVICE, utc=True)
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for handler in root.handlers:
        handler.setFormatter(formatter)
    events.handlers[:] = [Embedded()]
    events.propagate = False
    return lambda context: _name(formatter, context)


class Embedded(logging.Handler):
    """Writes each event as one line of CloudWatch's embedded metric format, its fields and its metrics together."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one event."""
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit  # noqa: PLC0415 - as above

        fields = dict(fields_of(record) or {})
        event = str(fields.pop("event", ""))
        metrics = EphemeralMetrics(namespace=NAMESPACE, service=SERVICE)
        dimension = _DIMENSIONS.get(event, "database")
        if (value := fields.pop(dimension, None)) is not None:
            metrics.add_dimension(name=dimension, value=str(value))
        for name, unit, number in _measures(event, fields):
            metrics.add_metric(name=name, unit=MetricUnit(unit), value=number)
        for name, field in {"level": record.levelname, "event": event, **fields}.items():
            metrics.add_metadata(key=name, value=field)
        metrics.flush_metrics()


def _measures(event: str, fields: dict[str, Value]) -> list[tuple[str, str, float]]:
    """Name, unit and value of each metric of an event."""
    found = [("".join(word.capitalize() for word in event.split("_")), "Count", 1.0)]
    seconds = fields.get("seconds")
    if isinstance(seconds, float):
        found.append((_SECONDS.get(event, "Time"), "Milliseconds", round(seconds * 1000, 3)))
    for field, name in (("hits", "Hits"), ("vectors", "Vectors")):
        value = fields.get(field)
        if isinstance(value, int):
            found.append((name, "Count", float(value)))
    outcome = fields.get("outcome")
    if event == "call":
        found += [("Errors", "Count", float(outcome == "failed")), ("Refusals", "Count", float(outcome == "refused"))]
    if event == "request" and isinstance(status := fields.get("status"), int):
        found += [("Refused", "Count", float(400 <= status < 500)), ("Failed", "Count", float(status >= 500))]
    return found


def _name(formatter: "LambdaPowertoolsFormatter", context: "LambdaContext") -> None:
    known = {"function_request_id": getattr(context, "aws_request_id", None)}
    formatter.append_keys(**known)  # pyright: ignore[reportUnknownMemberType] - its keywords have no type
