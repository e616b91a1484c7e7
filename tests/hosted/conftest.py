from collections.abc import Generator
from pathlib import Path

import pytest

from local.sqld import Key, Server, libsql_server

# Starting a server takes a tenth of a second, so every test has one of its own.


@pytest.fixture(scope="session")
def key() -> Key:
    return Key()


@pytest.fixture
def server(tmp_path: Path, key: Key) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        yield server
