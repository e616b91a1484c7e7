"""Ten thousand requests that nobody would think of: no failure but the documented ones, and no hang: `make soak`."""

from collections.abc import Generator
from contextlib import closing
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as described

from tests import anything
from tests.probes.issuing import issuing
from tests.probes.world import World, build
from tests.serve.running import JSON, asked
from tests.serve.test_any_message import as_modern

EACH = 1_250
"""Requests of each kind; there are eight kinds."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    with issuing() as issuer:
        built = build(tmp_path_factory.mktemp("world"), issuer)
        with closing(built.library):
            yield built


slowly = settings(
    max_examples=EACH, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "wrong"])
@pytest.mark.parametrize("path", ["/api/list", "/api/search"])
def test_rest_answers_as_it_is_described(world: World, path: str, mode: GenerationMode):
    schema = cast(Any, schemathesis.openapi.from_asgi("/api/openapi.json", app=world.app))
    sent = 0

    @slowly
    @given(case=schema[path]["GET"].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal sent
        sent += 1
        answered = case.call(headers={"Authorization": f"Bearer {world.keys['acme']}"})
        assert answered.status_code not in {500, 504}
        query: dict[str, Any] = case.query or {}
        left_open = any(value in (None, "", "null") for value in query.values())
        # Whatever schemathesis takes for null is sent as an empty text, which counts as left out.
        case.validate_response(answered, excluded_checks=[*_OTHERS, *([_REJECTED] if left_open else [])])

    ask()
    assert sent >= EACH


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"])
def test_every_path_answers_any_method(world: World, method: str):
    key = {"authorization": f"Bearer {world.keys['acme']}"}
    for path in ("/mcp", "/api/health", "/api/list", "/api/search", "/api/openapi.json", "/", "/api"):
        for headers in ({}, key):
            assert asked(world.app, method, path, headers=headers).status_code < 500


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("who", ["acme", "search only"])
def test_mcp_answers_whatever_it_is_sent(world: World, who: str, era: str):
    key = {"authorization": f"Bearer {world.keys[who]}"}
    sent = 0

    @slowly
    @given(body=anything.bodies)
    def ask(body: bytes) -> None:
        nonlocal sent
        sent += 1
        content, headers = (body, JSON) if era == "legacy" else as_modern(body)
        answered = asked(world.app, "POST", "/mcp", content=content, headers=headers | key)
        assert answered.status_code < 500
        assert "globex" not in answered.text.lower() or b"globex" in body.lower()
        if answered.content:
            assert isinstance(answered.json(), dict)

    ask()
    assert sent >= EACH


# Their types are open ones.
_ANY = cast(Any, checks)
_DESCRIBED = cast(Any, described)
_REJECTED = _DESCRIBED.negative_data_rejection
_OTHERS = [
    # Those that are documented are of what stands behind this server; the status tells them from others.
    _ANY.not_a_server_error,
    # A name that is allowed need not be a database's.
    _DESCRIBED.positive_data_acceptance,
]
