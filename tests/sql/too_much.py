"""Statements that would never end, or take all memory, and what should come of them."""

import time

import pytest

from kura.library.library import Library
from kura.types import Rules
from tests.sql.attacks import ATTACKS
from tests.sql.planted import TENANTS, outcome

TOO_MUCH = [pytest.param(sql, id=str(number)) for number, sql in enumerate(ATTACKS["too much"], 1)]


def ended_in_time(library: Library, tenant: str, sql: str) -> None:
    """Run it, and see that it ends when it should, tells of nobody else, and leaves the library able to answer."""
    [other] = set(TENANTS) - {tenant}
    rules = Rules(seconds=0.3)
    outcome(library, tenant, "select 1")
    begun = time.monotonic()
    found = outcome(library, tenant, sql, rules=rules)
    # What it takes to read a statement, and to notice that time is up, comes on top.
    assert time.monotonic() - begun < rules.seconds + 3
    assert other not in repr(found)
    assert outcome(library, tenant, "select count(*) from users")[0] == "answer"
