"""A server as it would stand on the internet: three databases, keys and tokens of all kinds, and who sends them."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from kura.access.credentials import choose_gate
from kura.access.keys import KeyRing, make_key
from kura.access.trust import Trust
from kura.library.library import Library
from kura.serve.app import build_app
from kura.store.catalog import Catalog
from kura.store.keys import Key, add_key, revoke_key
from kura.store.migrations import now
from kura.store.policies import add_policy
from kura.store.sqlite import open_for_writing
from kura.types import READING, Policy, Scope
from tests.probes.issuing import AUDIENCE, Issuer
from tests.serve.knowledge import fill, open_library
from tests.serve.running import JSON, call, message

ABSENT = "xebolg-plans"
"""A name that no database has, of the same letters as that of the other tenant's."""

MARK = "zanzibar"
"""Stands in every question and statement; no line of the log may hold it."""


@dataclass
class World:
    """The server, and the keys that open it; `secrets` is all that no log and no answer may hold."""

    library: Library
    app: Any
    issuer: Issuer
    directory: Path
    keys: dict[str, str]
    secrets: set[str]


def build(directory: Path, issuer: Issuer) -> World:
    """Fill a data directory and build the application over it."""
    fill(directory)
    catalog = Catalog(directory)
    for entry in catalog.entries():
        with closing(open_for_writing(catalog.path(entry))) as connection:
            connection.atomically([("create table orders (id integer primary key, tenant text, item text)", ())])
            connection.atomically(
                [("insert into orders (tenant, item) values ('acme', 'ours'), ('globex', 'globexes-own')", ())]
            )
            add_policy(connection, Policy("own", "orders", using="tenant = current_setting('app.tenant_id')"))
    made: dict[str, str] = {}

    def add(name: str, **opens: Any) -> Key:
        usual: dict[str, Any] = {"tenant": "acme", "user": None, "databases": None, "scopes": READING}
        opened: dict[str, Any] = usual | {"expires_at": None} | opens
        made[name], key = make_key(name, **opened)
        with catalog.writing() as connection:
            add_key(connection, key)
        return key

    add("acme")
    add("globex", tenant="globex")
    add("notes only", databases=frozenset({"notes"}))
    searching: frozenset[Scope] = frozenset({"search"})
    add("search only", scopes=searching)
    add("expired", expires_at="2020-01-01T00:00:00Z")
    revoked = add("revoked")
    with catalog.writing() as connection:
        revoke_key(connection, revoked.id, now())
    trust = Trust(resource=AUDIENCE, issuers=(issuer.url,), audiences=(AUDIENCE,), tenant_claim="tenant")
    gate = choose_gate(
        key_hash=None, public=False, loopback=False, tenant=None, user=None,
        ring=KeyRing(catalogs=[catalog.keys]), trust=trust,
    )  # fmt: skip
    library = open_library(directory)
    library.start(within=10)
    # The second is what schemathesis addresses its requests to.
    app = build_app(library, gate, version="0", trust=trust, allowed_hosts=("kura.example", "testserver"))
    return World(library, app, issuer, directory, made, set(made.values()))


@dataclass(frozen=True)
class Asked:
    """One request, ready to be sent with one credential or another."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any] | None

    def having(self, **headers: str) -> "Asked":
        """The same with further headers."""
        return replace(self, headers={**self.headers, **headers})


def tool(name: str, **arguments: Any) -> Asked:
    """A call of a tool."""
    return Asked(name, "POST", "/mcp", JSON, {}, call(name, **arguments))


def method(name: str, **params: Any) -> Asked:
    """Another message of MCP."""
    return Asked(name, "POST", "/mcp", JSON, {}, message(name, params))


def rest(path: str, **query: str) -> Asked:
    """A request to the REST API."""
    return Asked(path, "GET", path, {}, query, None)


def requests() -> list[Asked]:
    """One of each kind that wants something."""
    return [
        tool("list_rag"),
        tool("search_rag", db="acme-plans", q=MARK),
        tool("query", db="acme-plans", sql=f"select '{MARK}' from orders"),
        tool("vector_search", db="acme-plans", table="chunks", column="embedding", query_vector=[0.5] * 64),
        tool("schema_inspect", db="acme-plans"),
        method("tools/list"),
        method("resources/read", uri="kura://acme-plans"),
        method("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "a", "version": "0"}),
        rest("/api/list"),
        rest("/api/search", db="acme-plans", q=MARK),
    ]


async def send(client: httpx2.AsyncClient, asked: Asked, authorization: str | bytes | None = None) -> httpx2.Response:
    """Send it, with the value of an `Authorization` header."""
    headers: list[tuple[bytes, bytes]] = [(name.encode(), value.encode()) for name, value in asked.headers.items()]
    if authorization is not None:
        value = authorization if isinstance(authorization, bytes) else authorization.encode()
        headers.append((b"authorization", value))
    return await client.request(asked.method, asked.path, params=asked.query, json=asked.body, headers=headers)


def seen(response: httpx2.Response) -> tuple[int, str, dict[str, str]]:
    """All of an answer that its receiver sees, besides the id that each request has."""
    headers = {name: value for name, value in response.headers.items() if name != "x-request-id"}
    return response.status_code, response.text, headers
