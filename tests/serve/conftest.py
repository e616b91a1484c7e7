from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from kura.library.library import Library
from tests.serve.knowledge import fill, open_library
from tests.serve.running import process


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    fill(directory)
    return directory


@pytest.fixture(scope="package")
def library(data_dir: Path) -> Generator[Library]:
    with closing(open_library(data_dir)) as opened:
        opened.start(within=10)
        yield opened


@pytest.fixture(scope="package")
def url(data_dir: Path) -> Generator[str]:
    """Where a server process listens."""
    with process(data_dir) as (address, _):
        yield address
