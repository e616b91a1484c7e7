from collections.abc import Generator
from contextlib import closing

import pytest

from kura.library.library import Library
from tests.oauth.authority import Authority, authority
from tests.oauth.protected import Clock
from tests.serve.knowledge import fill, open_library


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def library(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    directory = tmp_path_factory.mktemp("data")
    fill(directory)
    with closing(open_library(directory)) as opened:
        opened.start(within=10)
        yield opened


@pytest.fixture(scope="module")
def trusted() -> Generator[Authority]:
    with authority() as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which keys are fetched again; it stands still until a test moves it."""
    clock = Clock()
    monkeypatch.setattr("kura.store.looked.time", clock)
    return clock
