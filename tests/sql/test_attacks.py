"""Nothing that an agent sends shows or changes a row of another tenant, on either engine."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from kura.library.library import Library
from kura.store.engine import Connection
from kura.store.sqlite import open_for_reading
from tests.sql.attacks import ATTACKS
from tests.sql.planted import TENANTS, library_of_file, library_of_server, outcome
from tests.sql.too_much import TOO_MUCH, ended_in_time

CASES = [
    pytest.param(sql, id=f"{family} {number}")
    for family, statements in ATTACKS.items()
    for number, sql in enumerate(statements, 1)
    if family != "too much"
]
DUMPED = (
    "users",
    "docs",
    "orders",
    "pairs",
    '"odd ""table"" 表"',
    "open",
    "vectors",
    "notes_fts",
    "policies",
    "chunks",
)


@dataclass(frozen=True)
class Place:
    """A library over all rows, and one for each tenant over its rows alone."""

    full: Library
    alone: Mapping[str, Library]


def dump(connection: Connection) -> list[object]:
    everything: list[object] = [connection.rows("select type, name, sql from sqlite_schema order by name")]
    return everything + [connection.rows(f"select * from {table} order by 1") for table in DUMPED]


@pytest.fixture(scope="module", params=["file", "sqld"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    root = tmp_path_factory.mktemp("attacked")
    here = set(Path.cwd().iterdir())
    with ExitStack() as stack:
        look: Callable[[], list[object]]
        if request.param == "file":
            full = stack.enter_context(closing(library_of_file(root / "full")))
            alone = {
                tenant: stack.enter_context(closing(library_of_file(root / tenant, [tenant]))) for tenant in TENANTS
            }
            [path] = (root / "full").glob("*/*.db") or (root / "full").glob("*.db")
            assert path

            def look() -> list[object]:
                with closing(open_for_reading(path)) as connection:
                    return dump(connection)
        else:
            full, opened = stack.enter_context(library_of_server(root / "full"))
            alone = {tenant: stack.enter_context(library_of_server(root / tenant, [tenant]))[0] for tenant in TENANTS}

            def look() -> list[object]:
                with closing(opened()) as connection:
                    return dump(connection)

        before, files = look(), {each.name for each in (root / "full").rglob("*")}
        yield Place(full, alone)
        assert look() == before
        # SQLite's own files beside a database that is read are none of the agent's.
        added = {each.name for each in (root / "full").rglob("*")} - files
        assert not {name for name in added if not name.endswith(("-wal", "-shm", ".lock"))}, added
        assert set(Path.cwd().iterdir()) == here


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("sql", CASES)
def test_no_statement_tells_of_rows_of_others(place: Place, tenant: str, sql: str):
    [other] = set(TENANTS) - {tenant}
    params = [1] * sql.count("?") if "?" in sql else []
    found = outcome(place.full, tenant, sql, params)
    assert other not in repr(found) or other in sql
    assert found == outcome(place.alone[tenant], tenant, sql, params)


@pytest.mark.parametrize("sql", CASES)
def test_without_a_tenant_no_statement_tells_of_anybody(place: Place, sql: str):
    found = outcome(place.full, None, sql, [1] * sql.count("?"))
    assert not [tenant for tenant in TENANTS if tenant in repr(found) and tenant not in sql]


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("sql", TOO_MUCH)
def test_what_asks_for_too_much_is_ended_in_time_in_a_file(tmp_path: Path, tenant: str, sql: str):
    with closing(library_of_file(tmp_path)) as library:
        ended_in_time(library, tenant, sql)
