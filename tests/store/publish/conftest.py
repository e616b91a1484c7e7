"""A libSQL server for each test, and a way into it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from kura.store.engine import Connection
from local.sqld import Server, libsql_server
from tests.store.publish.publishing import connected


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    with libsql_server(tmp_path / "server") as running:
        yield running


@pytest.fixture
def remote(server: Server) -> Generator[Connection]:
    with connected(server.url) as connection:
        yield connection
