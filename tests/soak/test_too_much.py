"""Statements that a server would go on with for ever are given up in time."""

from pathlib import Path

import pytest

from tests.sql.planted import TENANTS, library_of_server
from tests.sql.too_much import TOO_MUCH, ended_in_time


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("sql", TOO_MUCH)
def test_what_asks_for_too_much_is_given_up_in_time_on_a_server(tmp_path: Path, tenant: str, sql: str):
    # One of its own: a server goes on with what nobody waits for any more.
    with library_of_server(tmp_path) as (library, _):
        ended_in_time(library, tenant, sql)
