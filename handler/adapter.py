"""From the HTTP application to a function that AWS Lambda can call.

Nothing advances between two invocations, so loading begins when the function is built, where there is time for it, and
whatever is not through by then is awaited inside the requests that need it.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mangum import Mangum
from mangum.adapter import DEFAULT_TEXT_MIME_TYPES
from mangum.types import LambdaContext, LambdaEvent
from starlette.types import ASGIApp, Receive, Scope, Send

from kura import __version__
from kura.access.credentials import choose_gate
from kura.chosen import elsewhere_of, load_chosen, ring_of, trust_of
from kura.events import tell
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings
from kura.store.catalog import Catalog

PATIENCE_SECONDS = 15.0
"""How long a request waits for what is still loading; gateways give up after 29 seconds."""

INIT_SECONDS = 8.0
"""How long to load before the first request; the platform gives a process ten seconds to start."""


class Handler:
    """Answers the events of a Function URL, an HTTP API or a REST API."""

    def __init__(self, settings: Settings, *, begins: Callable[[LambdaContext], None] = lambda _context: None) -> None:
        """Build everything that is kept between invocations, and begin to load.

        Args:
            settings: What was set.
            begins: Called with the context of each invocation before it is answered.

        Raises:
            ConfigurationError: if nothing says who may come in. The process then does not start at all, so nothing is
                served by mistake, and the platform logs the text.
        """
        began = time.perf_counter()
        self._begins = begins
        self._flush = None if settings.traces_to is None else _traced(settings.traces_to.get_secret_value())
        catalog, elsewhere, trust = Catalog(settings.data_dir), elsewhere_of(settings), trust_of(settings)
        gate = choose_gate(
            key_hash=settings.key_hash,
            public=settings.public,
            loopback=False,
            tenant=settings.tenant,
            user=settings.user,
            ring=ring_of(settings, catalog, elsewhere),
            trust=trust,
        )
        self._library = Library(
            catalog,
            partial(load_chosen, settings),
            elsewhere=elsewhere,
            vector_memory=settings.vector_memory,
            spill=settings.cache_dir,
            copies=settings.vector_copies,
            refresh_seconds=settings.refresh_seconds,
            rules=settings.rules,
            patience=PATIENCE_SECONDS,
        )
        self._library.start(within=INIT_SECONDS)
        app = build_app(
            self._library,
            gate,
            version=__version__,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            own_host=_own_host,
            own_id=_own_id,
            time_left=_time_left,
            trust=trust,
            seconds=settings.request_seconds,
            requests_a_minute=settings.rate_limit,
            log_queries=settings.log_queries,
            traced=self._flush is not None,
        )
        self.loop = asyncio.new_event_loop()
        # Mangum wants one to be set already when it is made.
        asyncio.set_event_loop(self.loop)
        self._adapter = Mangum(
            _WithoutStage(app),
            lifespan="off",
            # Otherwise errors would come as base64, which a REST API passes on as it is.
            text_mime_types=[*DEFAULT_TEXT_MIME_TYPES, "application/problem+json"],
        )
        tell("cold_start", seconds=time.perf_counter() - began)

    def __call__(self, event: LambdaEvent, context: LambdaContext) -> dict[str, Any]:
        """Answer one event."""
        self._begins(context)
        # Mangum runs on whichever loop is set, and an `asyncio.run` anywhere leaves none behind.
        asyncio.set_event_loop(self.loop)
        try:
            return self._adapter(event, context)
        finally:
            if self._flush is not None:
                # The process may stand still from now on, for as long as nobody asks it.
                self._flush()

    def close(self) -> None:
        """Let go of everything. Lambda never asks for it; whoever builds several in one process should."""
        asyncio.set_event_loop(None)
        self.loop.close()
        self._library.close()


def _own_host(scope: Scope) -> str | None:
    """The domain that the platform itself received the request at. Nobody can make a name of theirs point there."""
    host: str | None = scope["aws.event"]["requestContext"].get("domainName")
    return host


def _own_id(scope: Scope) -> str | None:
    """What the platform calls the invocation; its own log lines have it too."""
    found: str | None = getattr(scope["aws.context"], "aws_request_id", None)
    return found


def _time_left(scope: Scope) -> float | None:
    ask = getattr(scope["aws.context"], "get_remaining_time_in_millis", None)
    return None if ask is None else ask() / 1000


def _traced(url: str) -> Callable[[], None]:
    from kura.serve.tracing import trace_to  # noqa: PLC0415 - half a second, for those who ask for traces

    return trace_to(url, __version__)


class _WithoutStage:
    """Takes the stage off the path: an HTTP API with a named stage leaves it there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = scope["aws.event"]
        stage = event["requestContext"].get("stage", "$default")
        if event.get("version") == "2.0" and stage != "$default" and scope["path"].startswith(f"/{stage}/"):
            scope = {**scope, "path": scope["path"].removeprefix(f"/{stage}")}
        await self._app(scope, receive, send)
