"""How tests publish: as the command does, in this process, and how they compare what is there with what is here."""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Embedder
from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection, Row, Statement
from kura.store.publish.descent import confirm, intend, owner
from kura.store.publish.plan import Plan, plan
from kura.store.publish.push import push
from kura.store.remote import open_remote
from kura.store.segments import Vectors, load, seal
from kura.store.sources import roots, sources, statistics
from kura.store.statements import matching
from local.sqld import Server, libsql_server
from tests.store.writing import put, reading, writing

QUERIES = ('"tide"', '"word1"', '"word7" or "edition2"', '"passage" and "word3"', '"word5" not "edition1"')


def texts(name: str, count: int, edition: int = 1) -> list[str]:
    """Passages that have words in common and words of their own, and are of unlike lengths."""
    return [
        f"{name} passage {n} the tide edition{edition} word{n % 17} "
        + " ".join(f"x{(n * 31 + len(name) * k + edition) % 97}" for k in range(5 + n % 30))
        for n in range(count)
    ]


def publish(
    catalog: Catalog,
    entry: Entry,
    remote: Connection,
    *,
    told: Callable[[int, int], None] = lambda _done, _all: None,
    **choices: bool,
) -> Plan:
    """Plan and, where there is something to do, push; returns the plan."""
    with writing(catalog, entry) as local, reading(catalog, entry) as view, view.transaction(write=False):
        planned = plan(view, remote, **choices)
        if planned.how != "nothing":
            token = secrets.token_hex(16)
            intend(local, token, "http://there", view)
            push(view, remote, planned, token, owner(local), told)
            confirm(local, token, view)
        return planned


def planned(catalog: Catalog, entry: Entry, remote: Connection, **choices: bool) -> Plan:
    with reading(catalog, entry) as view, view.transaction(write=False):
        return plan(view, remote, **choices)


def index(
    catalog: Catalog, entry: Entry, embedder: Embedder, files: Iterable[str], count: int, edition: int = 1
) -> None:
    """Index sources of `count` passages each and pack their vectors, as a run of indexing does."""
    with writing(catalog, entry) as local:
        for name in files:
            put(local, name, *texts(name, count, edition), embedder=embedder)
        seal(local)


def require_alike(catalog: Catalog, entry: Entry, remote: Connection, known: Vectors | None = None) -> Vectors:
    """Check that the server answers as the local database does; returns what a reader has loaded from it.

    Args:
        catalog: Where the local database is.
        entry: The local database.
        remote: The server.
        known: What a reader has from before, which follows by difference and then has what one has that loads anew.
    """
    with reading(catalog, entry) as local:
        for query in QUERIES:
            assert matching(remote, query, 50)[0] == matching(local, query, 50)[0]
        ours, theirs = load(local), load(remote)
        there, here = statistics(remote), statistics(local)
        assert there == here
        for root in roots(local):
            # Times of files are noted without a new version and travel with the next change.
            assert hashes(remote, root.id) == hashes(local, root.id)
    require_equal(ours, theirs)
    if known is not None:
        followed = load(remote, known)
        require_equal(followed, theirs)
        return followed
    return theirs


def hashes(connection: Connection, root_id: int) -> dict[str, str]:
    return {path: source.content_hash for path, source in sources(connection, root_id).items()}


def require_equal(one: Vectors, other: Vectors) -> None:
    """Check that two readers find the same vectors near to anything, with the same scores."""
    assert one.counts == other.counts
    if one.matrix is None or other.matrix is None:
        assert one.matrix is other.matrix
        return
    assert one.matrix.dimension == other.matrix.dimension
    assert len(one.matrix) == len(other.matrix)
    # How a row's score is rounded depends on how many rows are compared with it at once, so the rows are compared.
    probe = np.random.default_rng(7).standard_normal(one.matrix.dimension).astype(np.float32)
    (ids, scores), (other_ids, other_scores) = (each.nearest(probe, len(each)) for each in (one.matrix, other.matrix))
    assert np.allclose(scores, other_scores, rtol=0, atol=1e-5)
    assert np.array_equal(np.sort(ids), np.sort(other_ids))
    for vector_id in ids.tolist():
        assert bits(one.matrix.row(vector_id)) == bits(other.matrix.row(vector_id))


def bits(row: NDArray[np.float32] | None) -> bytes:
    assert row is not None
    return row.tobytes()


class Counted:
    """A way to a server that counts what goes out, and does as it is told before and after a batch that writes."""

    def __init__(
        self,
        connection: Connection,
        *,
        before: Callable[[Sequence[Statement]], None] = lambda _statements: None,
        after: Callable[[Sequence[Statement]], None] = lambda _statements: None,
    ) -> None:
        self.connection = connection
        self.before, self.after = before, after
        self.requests = self.sent = 0

    def count(self, statements: Sequence[Statement]) -> None:
        self.requests += 1
        for sql, params in statements:
            self.sent += len(sql) + sum(len(value) if isinstance(value, str | bytes) else 8 for value in params)

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[Row]:
        self.count([(sql, params)])
        return self.connection.rows(sql, params)

    def row(self, sql: str, params: Sequence[object] = ()) -> Row | None:
        self.count([(sql, params)])
        return self.connection.row(sql, params)

    def one(self, sql: str, params: Sequence[object] = ()) -> Row:
        self.count([(sql, params)])
        return self.connection.one(sql, params)

    def run(self, sql: str, params: Sequence[object] = ()) -> int:
        self.count([(sql, params)])
        return self.connection.run(sql, params)

    def insert(self, sql: str, params: Sequence[object] = ()) -> int:
        self.count([(sql, params)])
        return self.connection.insert(sql, params)

    def many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        for params in rows:
            self.run(sql, params)

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        self.count(statements)
        return self.connection.together(statements)

    def apart(self, statements: Sequence[Statement]) -> Iterator[list[Row]]:
        self.count(statements)
        return self.connection.apart(statements)

    def atomically(self, statements: Sequence[Statement]) -> None:
        self.before(statements)
        self.count(statements)
        self.connection.atomically(statements)
        self.after(statements)

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        return self.connection.transaction(write=write)

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    """A libSQL server for each test."""
    with libsql_server(tmp_path / "server") as running:
        yield running


@pytest.fixture
def remote(server: Server) -> Generator[Connection]:
    """A way into it."""
    with connected(server.url) as connection:
        yield connection


@contextmanager
def connected(url: str, token: str | None = None) -> Generator[Connection]:
    with closing(open_remote(url, lambda: token)) as remote:
        yield remote


def text_columns(remote: Connection) -> str:
    """All that a database on a server holds as text, its tables' definitions among it."""
    found: list[str] = []
    for (table,) in remote.rows("select name from sqlite_schema where type = 'table'"):
        for row in remote.rows(f'select * from "{table}"'):
            found += [value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in row]
    return "\n".join([*found, *(row[0] or "" for row in remote.rows("select sql from sqlite_schema"))])


def listed(remote: Connection) -> list[list[Row]]:
    """All that readers see, apart from the counts of versions and generations, and the scores of a few queries."""
    state = "select tokenizer, embedder, dimension, centre, tenant, created_at from state"
    tables = ("roots", "sources", "chunk_vectors", "chunks", "segments")
    read = remote.together([(state, ()), *((f"select * from {table} order by 1", ()) for table in tables)])
    removed = remote.rows("select vector_id from removed_vectors order by 1")
    scores = [[(score, found.chunk_id) for found, score in matching(remote, query, 50)[0]] for query in QUERIES]
    return [*read, removed, *scores]
