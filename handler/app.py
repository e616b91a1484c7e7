"""What AWS Lambda calls: `handler.app.handler`, built once when a process starts cold.

Nothing advances between two invocations, so loading begins here, where there is time for it, and whatever is not
through by then is awaited inside the requests that need it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from mangum import Mangum
from mangum.adapter import DEFAULT_TEXT_MIME_TYPES
from mangum.types import LambdaContext, LambdaEvent
from starlette.types import ASGIApp, Receive, Scope, Send

from kura import __version__
from kura.access.credentials import choose_gate
from kura.embed import Embedder
from kura.embed.choose import load_embedder
from kura.search.library import Library
from kura.serve.app import build_app
from kura.settings import Settings
from kura.store.catalog import Catalog

Handler = Callable[[LambdaEvent, LambdaContext], dict[str, Any]]

INIT_SECONDS = 8.0
"""How long to load before the first request; the platform gives a process ten seconds to start."""


def build_handler(settings: Settings) -> Handler:
    """Build the function that answers events of a Function URL, an HTTP API or a REST API.

    Raises:
        ConfigurationError: if nothing says who may come in. The process then does not start at all, and nothing is
            served by mistake; the platform logs the text.
    """
    logging.getLogger().setLevel(settings.log_level.upper())
    gate = choose_gate(
        key_hash=settings.key_hash, public=settings.public, loopback=False, tenant=settings.tenant, user=settings.user
    )

    def embedder() -> Embedder | None:
        return load_embedder(settings.embedder, cache_dir=settings.cache_dir, model_file=settings.model_file)

    library = Library(Catalog(settings.data_dir), embedder, refresh_seconds=settings.refresh_seconds)
    library.start(within=INIT_SECONDS)
    app = build_app(
        library,
        gate,
        version=__version__,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
        own_host=_own_host,
    )
    loop = asyncio.new_event_loop()
    # Mangum takes whichever loop is set, when it is made and at each call; `asyncio.run` anywhere leaves none behind.
    asyncio.set_event_loop(loop)
    # Without problem+json among the text types, errors would come as base64, which a REST API passes on as it is.
    adapter = Mangum(
        _WithoutStage(app), lifespan="off", text_mime_types=[*DEFAULT_TEXT_MIME_TYPES, "application/problem+json"]
    )

    def handle(event: LambdaEvent, context: LambdaContext) -> dict[str, Any]:
        asyncio.set_event_loop(loop)
        return adapter(event, context)

    return handle


def _own_host(scope: Scope) -> str | None:
    """The domain that the platform itself received the request at. Nobody can make a name of theirs point there."""
    host: str | None = scope["aws.event"]["requestContext"].get("domainName")
    return host


class _WithoutStage:
    """Takes the stage off the path: an HTTP API with a named stage leaves it there."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event = scope["aws.event"]
        stage = event["requestContext"].get("stage", "$default")
        if event.get("version") == "2.0" and stage != "$default" and scope["path"].startswith(f"/{stage}/"):
            scope = {**scope, "path": scope["path"].removeprefix(f"/{stage}")}
        await self.app(scope, receive, send)


handler = build_handler(Settings())
