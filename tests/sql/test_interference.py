"""What a session is told does not depend on rows that it does not see.

Generated statements are run over the rows of both tenants and over those of one alone, with and without indexes. The
rows of the second tenant hold what makes functions fail.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.library.library import Library
from kura.sql.query import Result
from tests.sql.planted import TENANTS, Outcome, library_of_file, library_of_server, outcome

COLUMNS = {
    "users": ("id", "tenant", "name", "age", "secret"),
    "docs": ("id", "tenant", "body", "meta", "day", "n"),
    "orders": ("id", "user_id", "tenant", "total"),
    "pairs": ("k", "tenant", "v"),
    "adults": ("id", "name", "age"),
    "counted": ("how_many", "least"),
    "open": ("id", "label", "n"),
}
FAILING = (
    "abs({})",
    "json_extract({}, '$.k')",
    "json_array_length({})",
    "{} -> '$.k'",
    "substr({}, 1, 3)",
    "cast({} as integer)",
    "strftime('%s', {})",
    "-{}",
    "length({})",
    "lower({})",
    "coalesce({}, 0)",
    "{} * 2",
    "1 / {}",
    "printf('%d', {})",
    "replace({}, 'x', 'y')",
    "iif({} > 0, 1, abs(-9223372036854775807 - 1))",
    "round({}, 1)",
    "(select abs({}))",
)
AGGREGATES = (
    "count({})", "sum({})", "min({})", "max({})", "total({})", "avg({})", "group_concat({})", "count(distinct {})",
    "sum(abs({}))", "json_group_array({})", "json_group_object('k', json({}))",
)  # fmt: skip
VALUES = ("0", "5", "-1", "100", "-9223372036854775808", "'x'", "'2024-01-01'", "null", "1.5", "'user 1 of nobody'")


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> str:
    name = draw(st.sampled_from(names))
    if depth == 0 or draw(st.booleans()):
        return name
    return draw(st.sampled_from(FAILING)).format(draw(expressions(names, depth - 1)))


@st.composite
def conditions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> str:
    left = draw(expressions(names))
    value = draw(st.sampled_from(VALUES))
    simple = draw(
        st.sampled_from(
            (
                f"{left} = {value}",
                f"{left} < {value}",
                f"{left} > {value}",
                f"{left} is {value}",
                f"{left} in ({value}, 1, 2)",
                f"{left} between {value} and 10",
                f"{left} like '%a%'",
                f"not {left}",
                f"{left} in (select id from open)",
                f"exists (select 1 from docs as inner_docs where abs(inner_docs.n) > {value})",
            )
        )
    )
    if depth == 0:
        return simple
    other = draw(conditions(names, depth - 1))
    return draw(st.sampled_from((simple, f"{simple} and {other}", f"({simple} or {other})", f"not ({other})")))


@st.composite
def statements(draw: st.DrawFn) -> str:
    table = draw(st.sampled_from(tuple(COLUMNS)))
    names = tuple(f"t.{column}" for column in COLUMNS[table])
    source = f"{table} as t"
    if draw(st.booleans()):
        other = draw(st.sampled_from(tuple(COLUMNS)))
        more = tuple(f"u.{column}" for column in COLUMNS[other])
        join = draw(st.sampled_from(("join", "left join", "cross join", "full join")))
        on = "" if join == "cross join" else f" on {draw(st.sampled_from(names))} = {draw(expressions(more, 1))}"
        source, names = f"{source} {join} {other} as u{on}", names + more
    where = f" where {draw(conditions(names))}" if draw(st.booleans()) else ""
    shape = draw(st.sampled_from(("rows", "rows", "aggregate", "group", "window", "with", "compound", "scalar")))
    first, second = draw(expressions(names)), draw(expressions(names))
    aggregate = draw(st.sampled_from(AGGREGATES)).format(first)
    if shape == "rows":
        order = draw(st.sampled_from(("", f" order by {second}", f" order by {second} desc limit 3", " limit 50")))
        sql = f"select {first}, {second} from {source}{where}{order}"
    elif shape == "aggregate":
        sql = f"select {aggregate}, count(*) from {source}{where}"
    elif shape == "group":
        having = f" having {draw(conditions(names, 0))}" if draw(st.booleans()) else ""
        sql = f"select {second}, {aggregate} from {source}{where} group by {second}{having}"
    elif shape == "window":
        sql = f"select {first}, sum({second}) over (order by {names[0]}) from {source}{where}"
    elif shape == "with":
        hint = draw(st.sampled_from(("", "not materialized ", "materialized ")))
        inner = f"select {first} as a, {second} as b from {source}{where}"
        sql = f"with x as {hint}({inner}) select * from x where a = b or a > 1"
    elif shape == "compound":
        sql = f"select {first} from {source}{where} union all select n from open"
    else:
        sql = f"select (select {aggregate} from {source}{where})"
    return f"explain query plan {sql}" if draw(st.integers(0, 5)) == 0 else sql


@st.composite
def found_by_index(draw: st.DrawFn) -> str:
    """What an index on a column is good for: to find rows by it, and to compute with it before they are fetched."""
    table, name = draw(st.sampled_from((("docs", "n"), ("docs", "meta"), ("users", "age"), ("docs", "day"))))
    failing = draw(st.sampled_from(("abs({})", "json_extract({}, '$.k')", "abs({} - 1)", "json_array_length({})")))
    compared = f"{name} {draw(st.sampled_from(('<', '<=', '>', '>=', 'is not')))} {draw(st.sampled_from(VALUES))}"
    more = draw(st.sampled_from(("", f" order by {name}", f" group by {name}", " limit 1")))
    shown = draw(st.sampled_from(("id", "count(*)", name)))
    return f"select {shown} from {table} where {compared} and {failing.format(name)} > 0{more}"


Pair = tuple[Library, dict[str, Library]]


@pytest.fixture(scope="module", params=[True, False], ids=["indexes", "no indexes"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    root = tmp_path_factory.mktemp("files")
    with ExitStack() as stack:

        def of(name: str, tenants: list[str]) -> Library:
            return stack.enter_context(closing(library_of_file(root / name, tenants, indexes=request.param)))

        yield of("full", [*TENANTS]), {tenant: of(tenant, [tenant]) for tenant in TENANTS}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    root = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:

        def of(name: str, tenants: list[str]) -> Library:
            directory: Path = root / name
            return stack.enter_context(library_of_server(directory, tenants))[0]

        yield of("full", [*TENANTS]), {tenant: of(tenant, [tenant]) for tenant in TENANTS}


@pytest.mark.slow
@settings(max_examples=250)
@given(sql=statements(), tenant=st.sampled_from(TENANTS))
def test_rows_of_others_make_no_difference_in_a_file(files: Pair, sql: str, tenant: str):
    same(files, sql, tenant)


@settings(max_examples=150)
@given(sql=found_by_index())
def test_nothing_is_computed_of_a_row_before_it_is_known_to_be_visible(files: Pair, sql: str):
    same(files, sql, TENANTS[0])


@settings(max_examples=60)
@given(sql=statements(), tenant=st.sampled_from(TENANTS))
def test_rows_of_others_make_no_difference_on_a_server(servers: Pair, sql: str, tenant: str):
    same(servers, sql, tenant)


def same(pair: Pair, sql: str, tenant: str) -> None:
    full, alone = pair
    there, here = outcome(full, tenant, sql), outcome(alone[tenant], tenant, sql)
    [other] = set(TENANTS) - {tenant}
    assert other not in repr(there)
    assert comparable(there, sql) == comparable(here, sql), sql


def comparable(found: Outcome, sql: str) -> object:
    kind, what = found
    if not isinstance(what, Result):
        return kind, what
    rows = list(map(repr, what.rows)) if " order by" in sql else Counter(map(repr, what.rows))
    return kind, what.columns, rows, what.affected, what.truncated, what.message


def test_most_of_the_statements_are_answered_and_some_fail(files: Pair):
    """The comparison would say nothing if all of them were refused."""
    kinds: Counter[str] = Counter()

    @settings(max_examples=200)
    @given(sql=statements())
    def look(sql: str) -> None:
        kinds[outcome(files[0], TENANTS[1], sql)[0]] += 1

    look()
    assert kinds["answer"] > 60
    assert kinds["QueryFailed"] > 10
    assert kinds["StatementRefused"] < 60
