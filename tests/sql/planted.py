"""A database of two tenants: each row tells whose it is, and those of the second hold what makes functions fail.

The same can be made with the rows of one tenant alone: whatever that tenant asks must be answered alike.
"""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kura.embed.hashing import HashingEmbedder
from kura.errors import KuraError
from kura.library.library import Library
from kura.sql.query import Result, query
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere, named
from kura.store.engine import Connection
from kura.store.migrations import create, now
from kura.store.policies import add_policy
from kura.store.remote import open_remote
from kura.store.sqlite import open_for_writing
from kura.store.tokens import Tokens
from kura.types import Policy, Rules, Session
from local.sqld import Key, libsql_server
from tests.search.asking import run
from tests.store.writing import add

TENANTS = ("company-a", "company-b")
OWN = "tenant = current_setting('app.tenant_id')"
SMALLEST = -(2**63)

TABLES = (
    "create table users (id integer primary key, tenant text not null, name text unique, age, secret text)",
    "create table docs (id integer primary key, tenant text, body text, meta text, day text, n)",
    "create table orders (id integer primary key, user_id integer references users (id) on delete cascade, tenant text,"
    " total real)",
    "create table pairs (k text, tenant text, v, primary key (k, tenant)) without rowid",
    'create table "odd ""table"" 表" ("select" text, "a b" text, "名" text)',
    "create table open (id integer primary key, label text, n integer)",
    "create view adults as select id, name, age from users where age >= 18",
    "create view counted (how_many, least) as select count(*), min(abs(n)) from docs",
    "create virtual table notes_fts using fts5 (body)",
    "create virtual table docs_fts using fts5 (body, content = 'docs', content_rowid = 'id')",
    "create table vectors (id integer primary key, tenant text, embedding F32_BLOB(4), plain blob)",
)
INDEXES = (
    "create index users_by_age on users (age)",
    "create index docs_by_n on docs (n)",
    "create index docs_by_meta on docs (meta)",
    "create index docs_by_day on docs (day)",
    "create index orders_by_total on orders (total)",
    "create index orders_by_user on orders (user_id)",
)
POLICIES = (
    Policy("own", "users", using=OWN),
    Policy("own", "docs", using=OWN),
    Policy("own", "orders", using=OWN),
    Policy("own", "pairs", using=OWN),
    Policy("own", "vectors", using=OWN),
    Policy("own", 'odd "table" 表', using="\"a b\" = current_setting('app.tenant_id')"),
)


def rows_of(tenant: str) -> list[tuple[str, Sequence[object]]]:
    """What fills the tables for one tenant."""
    first = tenant == TENANTS[0]
    base = 0 if first else 100
    insert: list[tuple[str, Sequence[object]]] = []
    for k in range(1, 7):
        key = base + k
        age: object = 10 * k if first or k % 2 else SMALLEST
        name, secret = f"user {k} of {tenant}", f"secret {k} of {tenant}"
        insert.append(("insert into users values (?, ?, ?, ?, ?)", (key, tenant, name, age, secret)))
        good = json.dumps({"k": k, "of": tenant, "list": [k, k + 1]})
        meta, day, n = (good, f"2024-0{k}-15", k) if first else (f"not json of {tenant} {{", "no day", SMALLEST)
        body = f"body {k} of {tenant}"
        insert.append(("insert into docs values (?, ?, ?, ?, ?, ?)", (key, tenant, body, meta, day, n)))
        total = 1.5 * k if first else 1e308
        insert.append(("insert into orders values (?, ?, ?, ?)", (key, key, tenant, total)))
        insert.append(("insert into pairs values (?, ?, ?)", (f"k{k}", tenant, k if first else SMALLEST)))
        vector = np.array([k, 1, 0, 0] if first else [k, 0, 1, 1], "<f4").tobytes()
        insert.append(("insert into vectors values (?, ?, ?, ?)", (key, tenant, vector, vector)))
    insert.append(('insert into "odd ""table"" 表" values (?, ?, ?)', (f"row of {tenant}", tenant, tenant)))
    return insert


COMMON: tuple[tuple[str, Sequence[object]], ...] = (
    ("insert into open values (1, 'one', 1), (2, 'two', 2), (3, null, 3)", ()),
    ("insert into notes_fts values ('some words for all'), ('other words')", ()),
)


def plant(connection: Connection, tenants: Sequence[str] = TENANTS, *, indexes: bool = True) -> None:
    """Make the tables with the rows of these tenants, and the policies."""
    connection.atomically(
        [
            *((sql, ()) for sql in TABLES),
            *((sql, ()) for sql in (INDEXES if indexes else ())),
            *(statement for tenant in tenants for statement in rows_of(tenant)),
            *COMMON,
            ("insert into docs_fts (docs_fts) values ('rebuild')", ()),
        ]
    )
    for policy in POLICIES:
        add_policy(connection, policy)


def library_of_file(data_dir: Path, tenants: Sequence[str] = TENANTS, *, indexes: bool = True) -> Library:
    """A library of one database in a file."""
    catalog = Catalog(data_dir)
    add(catalog, "notes", {"a.md": ["A passage that is knowledge."]}, HashingEmbedder(8))
    with closing(open_for_writing(catalog.path(catalog.find("notes")))) as connection:
        plant(connection, tenants, indexes=indexes)
    return Library(catalog, lambda: None, refresh_seconds=0)


@contextmanager
def library_of_server(
    directory: Path, tenants: Sequence[str] = TENANTS, *, indexes: bool = True
) -> Generator[tuple[Library, Callable[[], Connection]]]:
    """A library of one database on a server of its own, and a way to write there."""
    key = Key()
    with libsql_server(directory / "server", jwt_key=key.public) as server:
        with closing(open_remote(server.url, key.token)) as connection:
            create(connection, None, now())
            plant(connection, tenants, indexes=indexes)
        token = key.token()
        elsewhere = Elsewhere(named({"notes": server.url}), Tokens(token))
        with closing(Library(Catalog(directory / "data"), lambda: None, elsewhere=elsewhere)) as library:
            yield library, lambda: open_remote(server.url, key.token)


Outcome = tuple[str, Any]


def outcome(
    library: Library,
    tenant: str | None,
    sql: str,
    params: Sequence[Any] = (),
    *,
    rules: Rules | None = None,
) -> Outcome:
    """What comes of a statement: the answer, or the error with its words."""
    try:
        return "answer", ask(library, tenant, sql, params, rules=rules)
    except KuraError as error:
        return type(error).__name__, str(error)


def ask(
    library: Library,
    tenant: str | None,
    sql: str,
    params: Sequence[Any] = (),
    *,
    rules: Rules | None = None,
) -> Result:
    """The answer to a statement."""
    return run(query(library, Session(tenant, "someone"), "notes", sql, params, rules=rules))
