"""Statements that people write give exactly what SQLite gives: columns, values, types and order."""

import shutil
import sqlite3
import subprocess
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kura.library.library import Library
from kura.sql.query import Result
from tests.sql.legal import LEGAL, WITH_PARAMS
from tests.sql.planted import COMMON, INDEXES, TABLES, TENANTS, ask, library_of_file, library_of_server, rows_of

TENANT = TENANTS[0]
CASES = [pytest.param(sql, (), id=sql[:60]) for sql in LEGAL] + [
    pytest.param(sql, params, id=sql[:60]) for sql, params in WITH_PARAMS
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of one tenant in a file of SQLite's that has never seen Kura."""
    path = tmp_path_factory.mktemp("reference") / "plain.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for sql in (*TABLES, *INDEXES):
            raw.execute(sql)
        for sql, params in (*rows_of(TENANT), *COMMON):
            raw.execute(sql, params)
    return path


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    """The rows of all tenants, with policies."""
    with closing(library_of_file(tmp_path_factory.mktemp("full"))) as library:
        yield library


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    """The same on a server."""
    with library_of_server(tmp_path_factory.mktemp("remote")) as (library, _):
        yield library


def plain(reference: Path, sql: str, params: Sequence[object]) -> tuple[list[str], list[tuple[object, ...]]]:
    with closing(sqlite3.connect(reference)) as raw:
        cursor = raw.execute(sql, params)
        return [column[0] for column in cursor.description], cursor.fetchall()


def typed(rows: Sequence[Sequence[object]]) -> list[list[tuple[type, object]]]:
    return [[(type(value), value) for value in row] for row in rows]


@pytest.mark.parametrize(("sql", "params"), CASES)
def test_through_policies_the_answer_is_that_of_sqlite_over_the_tenants_rows(
    reference: Path, full: Library, sql: str, params: tuple[None, ...]
):
    columns, rows = plain(reference, sql, params)
    found = ask(full, TENANT, sql, params)
    assert typed(found.rows) == typed(rows)
    assert unnumbered(found) == columns
    assert not found.truncated


@pytest.mark.parametrize(("sql", "params"), CASES)
def test_a_server_gives_the_same(full: Library, remote: Library, sql: str, params: tuple[None, ...]):
    here, there = ask(full, TENANT, sql, params), ask(remote, TENANT, sql, params)
    # The server's SQLite is a newer one: sums of floats may differ in the last digit.
    assert [[approximate(value) for value in row] for row in there.rows] == [
        [approximate(value) for value in row] for row in here.rows
    ]
    assert unnumbered(there) == unnumbered(here)


def approximate(value: object) -> object:
    return pytest.approx(value) if isinstance(value, float) else value


def unnumbered(found: Result) -> list[str]:
    """The names that the columns have without the number that tells equal ones apart."""
    names: list[str] = []
    for name in found.columns:
        stem, _, number = name.rpartition("_")
        names.append(stem if number.isdecimal() and stem in found.columns else name)
    return names


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="this machine has no sqlite3 shell")
@pytest.mark.parametrize("sql", [sql for sql in LEGAL if "random" not in sql and "x'00" not in sql])
def test_the_shell_prints_the_same(reference: Path, full: Library, sql: str):
    done = subprocess.run(
        ["sqlite3", "-batch", "-cmd", ".mode quote", str(reference), sql], capture_output=True, text=True, check=True
    )
    rows = ask(full, TENANT, sql).rows
    assert len(done.stdout.splitlines()) == len(rows)
