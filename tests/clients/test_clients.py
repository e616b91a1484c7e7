"""Other people's clients, over every transport and in both eras, get what the server says, to the letter."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.clients.drivers import DRIVERS, Driver
from tests.clients.operations import Report, compare, expected
from tests.clients.servers import TRANSPORTS, Target, Transport, reaching
from tests.clients.table import DOCUMENT, document, row
from tests.node import toolchain
from tests.serve.knowledge import fill


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    fill(directory)
    return directory


@pytest.fixture(scope="module")
def wanted(data_dir: Path) -> Report:
    return expected(data_dir)


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


@pytest.fixture(scope="module")
def target(transport: Transport, data_dir: Path) -> Generator[Target]:
    with reaching(transport, data_dir) as reached:
        yield reached


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.label)
def test_a_client_gets_what_the_server_says(
    driver: Driver, transport: Transport, target: Target, wanted: Report, tmp_path: Path
):
    if driver.needs_node:
        toolchain.require()
    got = driver.run(target, tmp_path)
    found = compare(got, wanted, driver.protocol_version)
    assert {column: text for column, text in found.items() if text} == {}
    assert row(driver, transport, found) in DOCUMENT.read_text(encoding="utf-8"), "run `make tables`"


def test_the_page_is_as_the_run_writes_it():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [line + "\n" for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(DRIVERS) * len(TRANSPORTS)
    assert text == document(rows), "run `make tables`"
