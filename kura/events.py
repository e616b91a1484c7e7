"""What an operator wants to know: what happened, as names and numbers, through Python's own logging.

An event is a record of the logger `kura.events` at level INFO that carries its fields. Whoever hosts a process decides
what becomes of it: a line of text, JSON, metrics. No field ever holds a secret, a path of this machine, or what a
caller wrote; the words of a query are the one exception, and only where the operator asked for them.
"""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

EVENTS = "kura.events"
"""Name of the logger."""


class Tracer(Protocol):
    """What makes spans."""

    def start_as_current_span(self, name: str, /) -> AbstractContextManager[object]:
        """A span that is current within its block."""
        ...


_FIELDS = "kura_fields"
_log = logging.getLogger(EVENTS)

Value = str | int | float | bool | None


def tell(name: str, **fields: Value) -> None:
    """Report that something happened; fields that are None are left out."""
    if not _log.isEnabledFor(logging.INFO):
        return
    known = {key: value for key, value in fields.items() if value is not None}
    text = " ".join([name, *(f"{key}={_shown(value)}" for key, value in known.items())])
    _log.info("%s", text, extra={_FIELDS: {"event": name, **known}})


def fields_of(record: logging.LogRecord) -> Mapping[str, Value] | None:
    """The fields of an event, its name under `event`; None if the record is not one."""
    return cast("Mapping[str, Value] | None", getattr(record, _FIELDS, None))


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    # On one line, and as one word: nothing that a field holds can pass for another field or another line.
    return text if text.isprintable() and " " not in text and '"' not in text else ascii(text)


_tracers: list[Tracer] = []


def trace_with(tracer: Tracer) -> None:
    """Let spans be made from now on, by a tracer as OpenTelemetry has it; before, they cost nothing."""
    _tracers[:] = [tracer]


def span(name: str) -> AbstractContextManager[object]:
    """The time of a piece of work, within whatever span is current."""
    return _tracers[0].start_as_current_span(name) if _tracers else nullcontext()
