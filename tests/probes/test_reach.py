"""Who is let in sees what is theirs: whatever names, headers, statements and filters they try."""

import itertools
import json
import logging
import unicodedata
from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.probes.test_credentials import LONG, quiet, wide
from tests.probes.world import ABSENT, MARK, Asked, World, method, requests, rest, seen, send, tool
from tests.serve.running import reaching

pytestmark = pytest.mark.anyio

THEIRS = "globex-plans"
assert len(ABSENT) == len(THEIRS)

VECTOR = [0.5] * 64


def names(name: str) -> Iterator[str]:
    """A database's name as people mistype it, and as attackers write it."""
    yield name
    yield name.upper()
    yield name.title()
    yield wide(name)
    yield unicodedata.normalize("NFD", name.replace("e", "é"))
    yield name.replace("-", "\u2011")
    yield name.replace("l", "\u217c")
    yield f"{name}\u200b"
    yield f"{name}\0"
    yield f" {name} "
    yield f"{name}."
    yield f"{name}/"
    yield f"./{name}"
    yield f"acme-plans/../{name}"
    yield f"acme-plans,{name}"
    yield name.replace("-", "%2D")
    yield f"{name}@globex"
    yield f"{name}'; --"
    yield f'"{name}"'
    yield f"{name}.db"
    yield name.ljust(LONG, "x")


BY_NAME: list[Callable[[str], Asked]] = [
    lambda name: tool("search_rag", db=name, q=MARK),
    lambda name: tool("search_rag", db=name, q="plan", mode="keyword"),
    lambda name: tool("query", db=name, sql=f"select '{MARK}', item from orders"),
    lambda name: tool("vector_search", db=name, table="chunks", column="embedding", query_vector=VECTOR),
    lambda name: tool("schema_inspect", db=name),
    lambda name: tool("schema_inspect", db=name, table="orders"),
    lambda name: rest("/api/search", db=name[:50_000], q=MARK),
    lambda name: method("resources/read", uri=f"kura://{name}/plan.md"),
    lambda name: method("resources/read", uri=f"file:///{name}"),
    lambda name: method("resources/subscribe", uri=f"kura://{name}"),
    lambda name: method("completion/complete", ref={"type": "ref/resource", "uri": f"kura://{name}"}),
]
"""Places where a database can be named."""


def without(answer: tuple[int, str, dict[str, str]], name: str) -> tuple[int, str, dict[str, str]]:
    """An answer without the name that was asked for, which it may repeat."""
    status, text, headers = answer
    once = json.dumps(name, ensure_ascii=False)[1:-1]
    for form in (json.dumps(once, ensure_ascii=False)[1:-1], once, json.dumps(name)[1:-1], name):
        text = text.replace(form, "…")
    return status, text, headers


async def test_what_is_not_theirs_is_answered_like_what_does_not_exist(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    callers = [world.keys["acme"], world.keys["notes only"], world.issuer.token()]
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        for caller, built in itertools.product(callers, BY_NAME):
            for theirs, absent in zip(names(THEIRS), names(ABSENT), strict=True):
                answered = without(seen(await send(client, built(theirs), f"Bearer {caller}")), theirs)
                expected = without(seen(await send(client, built(absent), f"Bearer {caller}")), absent)
                assert answered == expected, theirs[:80]
                assert "secret" not in answered[1]
                assert "globexes-own" not in answered[1]
    quiet(world, caplog)


async def test_a_key_for_one_database_opens_no_other_one(world: World):
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        for built in BY_NAME:
            # Of its own tenant, so the key of the whole tenant would open it.
            answered = seen(await send(client, built("acme-plans"), f"Bearer {world.keys['notes only']}"))
            expected = seen(await send(client, built("acme-plane"), f"Bearer {world.keys['notes only']}"))
            assert without(answered, "acme-plans") == without(expected, "acme-plane")
            assert "secret" not in answered[1]


CLAIMED = {"tenant_id": "globex", "user_id": "bob"}
HEADERS = ("x-tenant-id", "x-tenant", "x-user-id", "x-forwarded-user", "tenant-id", "x-amzn-oidc-identity", "cookie")


async def test_no_header_parameter_or_argument_changes_whose_a_caller_is(
    world: World, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    callers = [world.keys["acme"], world.keys["notes only"], world.issuer.token()]
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        for caller, asked in itertools.product(callers, requests()):
            plain = seen(await send(client, asked, f"Bearer {caller}"))
            for header in HEADERS:
                assert seen(await send(client, asked.having(**{header: "globex"}), f"Bearer {caller}")) == plain
            if asked.method == "POST":
                asked_again = Asked(asked.name, "POST", asked.path, asked.headers, CLAIMED, asked.body)
                assert seen(await send(client, asked_again, f"Bearer {caller}")) == plain
        for caller, value in itertools.product(
            callers, ("globex", "GLOBEX", wide("globex"), "ａcme", "acme\0", "x" * 200)
        ):
            for argument in ("tenant_id", "user_id"):
                for asked in (
                    tool("list_rag", **{argument: value}),
                    tool("search_rag", db="notes", q=MARK, **{argument: value}),
                    tool("query", sql=f"select '{MARK}' from orders", **{argument: value}),
                    tool("vector_search", table="chunks", column="embedding", query_vector=VECTOR, **{argument: value}),
                    tool("schema_inspect", **{argument: value}),
                    rest("/api/list", **{argument: value}),
                    rest("/api/search", db="notes", q=MARK, **{argument: value}),
                ):
                    answered = await send(client, asked, f"Bearer {caller}")
                    refused = answered.json()["result"]["isError"] if asked.method == "POST" else None
                    assert refused or answered.status_code in {400, 403}, (asked, answered.text)
                    assert "globex" not in answered.text.lower()
    quiet(world, caplog)


STATEMENTS = [
    'select * from "globex-plans".orders',
    "select * from globex.orders",
    "select item from orders where tenant = 'globex'",
    "select item from orders where 1 = 1 or tenant = 'globex'",
    "select item from main.orders",
    "select item from orders as o join orders as p on 1 = 1 where p.tenant = 'globex'",
    "select (select group_concat(item) from orders) from sources",
    "with everything as (select * from orders) select item from everything",
    "select item from orders union all select item from orders",
    "select count(*) from orders where item like 'globex%'",
    "select max(item) from orders",
    "select item from orders order by case when tenant = 'globex' then 0 else 1 end",
    "attach database '{directory}/databases/globex-plans.db' as other",
    "select * from keys",
    "select * from sqlite_schema",
    "select load_extension('x')",
    "select readfile('{directory}/catalog.db')",
    "pragma database_list",
    "vacuum into '{directory}/copy.db'",
    "select item from orders; select item from orders where tenant = 'globex'",
    "select item from orders where tenant = current_setting('app.tenant_id') or 1",
    "select set_config('app.tenant_id', 'globex', false)",
    "set app.tenant_id = 'globex'",
    "explain query plan select item from orders",
    "insert into orders (tenant, item) values ('globex', 'x')",
    "update orders set tenant = 'globex'",
    "delete from orders",
    "drop table orders",
]


async def test_no_statement_and_no_filter_shows_rows_of_others(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        for caller, text in itertools.product((world.keys["acme"], world.issuer.token()), STATEMENTS):
            for statement in (text, f"{text} -- {MARK}", text.upper(), wide(text), f"/* {'x' * LONG} */ {text}"):
                sent = statement.replace("{directory}", str(world.directory))
                for db in ("acme-plans", "notes"):
                    answered = await send(client, tool("query", db=db, sql=sent), f"Bearer {caller}")
                    assert "globexes-own" not in answered.text, sent[:200]
                    assert str(world.directory) not in answered.text
        for column, value in itertools.product(
            ("tenant", "TENANT", "tenant' or '1", '"tenant"', "rowid", "content", "x" * 200),
            ("globex", "' or 1=1 --", "%", wide("globex"), "x" * LONG, True, 1),
        ):
            asked = tool(
                "vector_search", db="acme-plans", table="orders", column="item", query_vector=VECTOR,
                filter_column=column, filter_value=value,
            )  # fmt: skip
            answered = await send(client, asked, f"Bearer {world.keys['acme']}")
            assert answered.json()["result"]["isError"]
            assert "globexes-own" not in answered.text
    quiet(world, caplog)


async def test_what_a_scope_does_not_open_is_refused_whatever_is_asked_for(world: World):
    asked = [
        tool("query", sql=f"select '{MARK}'"),
        tool("query", db=THEIRS, sql="no sql"),
        tool("query", nothing="right"),
        tool("query", sql="select 1", tenant_id="globex"),
        tool("vector_search", table="chunks", column="embedding", query_vector=VECTOR),
        tool("vector_search", db=ABSENT),
        tool("schema_inspect"),
        tool("schema_inspect", db=THEIRS),
    ]
    callers = [world.keys["search only"], world.issuer.token(scope="search"), world.issuer.token(scope="search SQL sq")]
    async with reaching(httpx2.ASGITransport(world.app)) as client:
        answers = [await send(client, each, f"Bearer {caller}") for caller, each in itertools.product(callers, asked)]
        assert {answer.status_code for answer in answers} == {403}
        assert len({answer.text for answer in answers}) == 1
        assert all('error="insufficient_scope"' in answer.headers["www-authenticate"] for answer in answers)
        for caller in callers:
            listed = (await send(client, method("tools/list"), f"Bearer {caller}")).json()["result"]["tools"]
            assert [each["name"] for each in listed] == ["list_rag", "search_rag"]
        # Nothing at all for a token that is good for nothing here.
        for scope in (None, "", "openid profile", "searching", "SEARCH", wide("search")):
            nothing = world.issuer.token(scope=scope)
            assert (await send(client, tool("list_rag"), f"Bearer {nothing}")).status_code == 403
            assert (await send(client, rest("/api/list"), f"Bearer {nothing}")).status_code == 403
            listed = (await send(client, method("tools/list"), f"Bearer {nothing}")).json()["result"]["tools"]
            assert listed == []
