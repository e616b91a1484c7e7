from collections.abc import Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from kura.store.engine import Connection
from kura.store.migrations import create
from kura.store.remote import RemoteReader, open_remote
from kura.store.sqlite import Reader, open_for_reading, open_for_writing
from local.sqld import Key, Server, libsql_server
from tests.store.places import Place

# A server of several databases takes the first label of a request's host for the name of the database, and not every
# machine resolves names below "localhost". Of 127.0.0.1 the first label is this one.
NAME = "127"


@pytest.fixture(scope="session")
def key() -> Key:
    return Key()


@pytest.fixture(scope="session")
def server(key: Key, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A libSQL server that asks for tokens: one for each of pytest's processes."""
    with libsql_server(tmp_path_factory.mktemp("server"), jwt_key=key.public, several=True) as server:
        yield server


@pytest.fixture
def url(server: Server) -> Generator[str]:
    """A database on the server, without a table in it."""
    server.add(NAME)
    yield server.url
    server.remove(NAME)


@pytest.fixture
def executor() -> Generator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(params=["file", "sqld"])
def empty(request: pytest.FixtureRequest, tmp_path: Path, key: Key) -> Place:
    """A database without a table in it, on either engine."""
    if request.param == "file":
        path = tmp_path / "database.db"
        open_for_writing(path, create=True).close()
        return Place(
            lambda: open_for_writing(path), lambda: open_for_reading(path), lambda executor: Reader(path, executor)
        )
    url: str = request.getfixturevalue("url")
    token = key.token()
    return Place(
        lambda: open_remote(url, lambda: token),
        lambda: open_remote(url, lambda: token),
        lambda executor: RemoteReader(url, lambda: token, executor),
    )


@pytest.fixture
def place(empty: Place) -> Place:
    """A knowledge base with nothing in it, on either engine."""
    connection = empty.write()
    create(connection, None, "2026-01-01T00:00:00Z")
    connection.close()
    return empty


@pytest.fixture
def connection(place: Place) -> Generator[Connection]:
    connection = place.write()
    yield connection
    connection.close()
