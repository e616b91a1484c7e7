from collections.abc import Generator
from contextlib import closing

import pytest

from tests.probes.issuing import issuing
from tests.probes.world import World, build


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    with issuing() as issuer:
        built = build(tmp_path_factory.mktemp("world"), issuer)
        with closing(built.library):
            yield built
