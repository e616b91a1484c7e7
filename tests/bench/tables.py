"""Rows `metrics`, `query`, `materialized` and `visible`: SQL for agents, and vectors of tables."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from kura.library.library import Library
from kura.sql.guard import Known, guard, known
from kura.sql.query import query
from kura.sql.schema import read_schema
from kura.sql.statement import read
from kura.sql.vector_search import vector_search
from kura.store.catalog import Catalog
from kura.store.guarded import guarded
from kura.store.policies import add_policy, policies
from kura.store.sqlite import open_for_writing
from kura.types import Policy, Rules, Session
from kura.vectors.metrics import Metric, nearest, rows_of
from tests.bench.corpus import NAME, Bench, unit_vectors
from tests.bench.line import Finding, Line, Skipped, at_most
from tests.bench.measure import here, interleaved
from tests.bench.nearest import DIMENSION, K, reads
from tests.bench.peers import Floats, Missing, Nearest, faiss_flat

GOALS: dict[Metric, float] = {"cosine": 1.25, "dot_product": 1.25, "euclidean": 1.3, "manhattan": 3.0}
PATIENT = Rules(seconds=60)
SHARES = (0.01, 0.1, 1.0)
_FOLDER = "tables"
SESSION = Session("company-a", "ada")

_FAISS: dict[Metric, str] = {"cosine": "IP", "dot_product": "IP", "euclidean": "L2", "manhattan": "L1"}
_STATEMENTS = {
    "a row by its key": "select name, age from users where id = 77",
    "a join with groups": "select u.name, count(*), sum(o.total) from users u join orders o on o.user_id = u.id"
    " where u.age > 30 group by u.name having count(*) > 1 order by 3 desc limit 10",
}


def metrics(bench: Bench) -> Iterator[Finding]:
    """Each metric over the largest matrix, beside reading it and beside faiss."""
    count = bench.scale.vectors[-1]
    vectors, queries = unit_vectors(count, DIMENSION), unit_vectors(8, DIMENSION, seed=5)
    rows = rows_of(vectors)
    reading = reads(vectors, queries[0])

    def ours(metric: Metric) -> Callable[[], object]:
        return _in_turn(queries, lambda vector: nearest(rows, vector, K, metric))

    peers: dict[str, Nearest] = {}
    for kind in sorted(set(_FAISS.values())):
        try:
            peers[kind] = faiss_flat(vectors, kind)
        except Missing as error:
            yield Skipped(f"faiss {kind}", str(error))
    timings = interleaved(
        {metric: here(ours(metric)) for metric in GOALS}
        | {name: here(work) for name, work in reading.items()}
        | {kind: here(_in_turn(queries, _asks(peer))) for kind, peer in peers.items()},
        bench.scale.rounds_of(0.5),
    )
    fastest = min(reading, key=lambda name: timings[name].least)
    for metric, goal in GOALS.items():
        what = f"{metric}, nearest {K} of {count:,} × {DIMENSION}"
        limit = at_most(goal, timings[metric], timings[fastest])
        yield Line(what, timings[metric], "reading the memory", timings[fastest], limit, f"fastest read: {fastest}")
        if _FAISS[metric] in peers:
            yield Line(what, timings[metric], f"faiss flat {_FAISS[metric]}", timings[_FAISS[metric]])


def asked(bench: Bench) -> Iterator[Finding]:
    """`query`, and its guard alone, beside the bare statement on a connection that is open."""
    path = _tables(bench)
    with (
        closing(Library(Catalog(bench.folder / _FOLDER), lambda: None)) as library,
        closing(sqlite3.connect(path)) as raw,
        asyncio.Runner() as runner,
    ):
        database = _known(path)
        for kind, sql in _STATEMENTS.items():
            timings = interleaved(
                {
                    "query": here(lambda sql=sql: runner.run(query(library, SESSION, None, sql))),
                    "guard": here(lambda sql=sql: guard(read(sql), (), SESSION, database)),
                    "bare": here(lambda sql=sql: raw.execute(sql).fetchall()),
                },
                bench.scale.rounds,
            )
            yield Line(f"query, {kind}", timings["query"], "bare SQLite, all tenants", timings["bare"])
            yield Line(f"guard, {kind}", timings["guard"], "the whole of query", timings["query"])


def materialized(bench: Bench) -> Iterator[Finding]:
    """What it costs to put a session's rows aside first, beside the same statement with SQLite left to merge it."""
    path = _tables(bench)
    database = _known(path)
    with closing(sqlite3.connect(path)) as raw:
        for kind, sql in {
            "all rows of the session": "select count(*) from users where abs(age) > 30",
            "a row by its key, that could fail": "select abs(age) from users where id = 77",
        }.items():
            bound = guard(read(sql), (), SESSION, database)
            assert "AS MATERIALIZED" in bound.sql
            plain = bound.sql.replace("AS MATERIALIZED", "AS")
            timings = interleaved(
                {
                    "aside": here(lambda bound=bound: raw.execute(bound.sql, bound.params).fetchall()),
                    "merged": here(lambda bound=bound, plain=plain: raw.execute(plain, bound.params).fetchall()),
                },
                bench.scale.rounds,
            )
            yield Line(f"{kind}, of {bench.scale.many:,}", timings["aside"], "merged", timings["merged"])
        simple = guard(read("select age from users where id = 77"), (), SESSION, database)
        timings = interleaved(
            {
                "ours": here(lambda: raw.execute(simple.sql, simple.params).fetchall()),
                "bare": here(lambda: raw.execute("select age from users where id = 77").fetchall()),
            },
            bench.scale.rounds,
        )
        yield Line("a row by its key, that cannot fail", timings["ours"], "without the policy", timings["bare"])


def visible(bench: Bench) -> Iterator[Finding]:
    """`vector_search` in a table with policies, by how many of its rows the session sees."""
    count = bench.scale.vectors[-1]
    catalog = Catalog(bench.folder / "vectors-of-tables")
    vectors = unit_vectors(count, DIMENSION)
    with closing(open_for_writing(catalog.path(catalog.add(NAME)))) as connection:
        connection.run("create table docs (id integer primary key, share integer, embedding blob)")
        with connection.transaction():
            connection.many("insert into docs values (?, ?, ?)", _shared(vectors))
        expressions = ("share = 0", "share < 10", "share < 100")
        for tenant, expression in zip(("few", "some", "all"), expressions, strict=True):
            using = f"current_setting('app.tenant_id') = '{tenant}' and {expression}"
            add_policy(connection, Policy(tenant, "docs", "select", using=using))
    rows, question = rows_of(vectors), unit_vectors(1, DIMENSION, seed=5)[0]
    values = question.tolist()
    with closing(Library(catalog, lambda: None)) as library, asyncio.Runner() as runner:
        for share, tenant in zip(SHARES, ("few", "some", "all"), strict=True):

            def ours(tenant: str = tenant) -> object:
                return runner.run(
                    vector_search(
                        library, Session(tenant), None, "docs", "embedding", values, K, rules=Rules(seconds=60)
                    )
                )

            timings = interleaved(
                {"ours": here(ours), "all": here(lambda: nearest(rows, question, K, "cosine"))},
                bench.scale.rounds_of(0.4),
            )
            what = f"vector_search, {share:.0%} of {count:,} visible"
            yield Line(what, timings["ours"], "the matrix alone, all rows", timings["all"])


def _shared(vectors: Floats) -> Iterator[tuple[int, int, bytes]]:
    for number, row in enumerate(vectors):
        yield number, number % 100, row.tobytes()


def _tables(bench: Bench) -> Path:
    """A database with `scale.many` rows in a table with policies, a hundredth of them the session's."""
    folder = bench.folder / _FOLDER
    catalog = Catalog(folder)
    if folder.exists():
        return catalog.path(catalog.find(NAME))
    path = catalog.path(catalog.add(NAME))
    random = np.random.default_rng(6)
    many = bench.scale.many
    ages, owners = random.integers(1, 90, many).tolist(), random.integers(0, 100, many).tolist()
    with closing(open_for_writing(path)) as connection:
        connection.run("create table users (id integer primary key, tenant text, name text, age integer)")
        connection.run("create table orders (id integer primary key, user_id integer, tenant text, total real)")
        tenants = ["company-a" if owner == 0 else f"company-{owner}" for owner in owners]
        tenants[77 % many] = "company-a"
        with connection.transaction():
            rows = zip(range(many), tenants, [f"user {n % 1000}" for n in range(many)], ages, strict=True)
            connection.many("insert into users values (?, ?, ?, ?)", rows)
            orders = zip(range(many), random.integers(0, many, many).tolist(), tenants, map(float, ages), strict=True)
            connection.many("insert into orders values (?, ?, ?, ?)", orders)
        connection.run("create index users_by_tenant on users (tenant)")
        connection.run("create index orders_by_tenant on orders (tenant)")
        for table in ("users", "orders"):
            add_policy(connection, Policy("own", table, using="tenant = current_setting('app.tenant_id')"))
    return path


def _known(path: Path) -> Known:
    with guarded(path) as connection:
        return known(read_schema(connection), policies(connection))


def _in_turn(queries: Floats, ask: Callable[[Floats], object]) -> Callable[[], object]:
    turn = 0

    def next_one() -> object:
        nonlocal turn
        turn += 1
        return ask(queries[turn % len(queries)])

    return next_one


def _asks(peer: Nearest) -> Callable[[Floats], object]:
    return lambda vector: peer(vector, K)
