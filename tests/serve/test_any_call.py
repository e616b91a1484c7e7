"""Whatever a call carries: it is answered or refused, in the promised shape, without a word of what was sent."""

import json
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.types import ASGIApp

from kura.access.credentials import open_gate
from kura.library.library import Library
from kura.serve.app import build_app
from kura.serve.sql_tools import tools_of
from kura.serve.tools import Tool
from kura.types import Principal, Rules
from tests import anything
from tests.serve.running import JSON, asked, call, message, modern

NAMES = ["db", "q", "mode", "limit", "tenant_id", "user_id"]
VALUES: list[Any] = ["notes", "passage", "keyword", "semantic", "", "null", {}, 5, "5"]
TAGGED: list[Any] = [anything.CANARY, [anything.CANARY], {anything.CANARY: anything.CANARY}, {"a": [anything.CANARY]}]

values = st.sampled_from(VALUES) | st.sampled_from(TAGGED) | anything.values
arguments = st.one_of(
    st.dictionaries(st.sampled_from(NAMES) | anything.typed, values, max_size=5),
    # Nearly right, so that one wrong value is not hidden behind another.
    st.builds(
        dict[str, Any].__or__,
        st.just({"db": "notes", "q": "passage"}),
        st.dictionaries(st.sampled_from(NAMES) | anything.typed, values, max_size=2),
    ),
)


@pytest.fixture(scope="module")
def app(library: Library) -> ASGIApp:
    return build_app(library, open_gate(Principal()), version="0")


@pytest.mark.parametrize("tool", tools_of(Rules()), ids=lambda tool: tool.name)
@pytest.mark.parametrize("era", ["legacy", "modern"])
@settings(max_examples=40)
@given(given_arguments=arguments)
def test_any_arguments_are_answered_or_refused_without_an_echo(
    app: ASGIApp, tool: Tool[Any], era: str, given_arguments: dict[str, Any]
):
    if era == "legacy":
        body, headers = call(tool.name, **given_arguments), JSON
    else:
        body, headers = modern("tools/call", {"name": tool.name, "arguments": given_arguments})
    response = asked(app, "POST", "/mcp", content=anything.dumped(body), headers=headers)
    assert response.status_code == 200
    result = response.json()["result"]
    [block] = result["content"]
    if not result.get("isError"):
        Draft202012Validator(tool.output).validate(result["structuredContent"])  # pyright: ignore[reportUnknownMemberType]
        assert json.loads(block["text"]) == result["structuredContent"]
        return
    assert "structuredContent" not in result
    assert "internal error" not in block["text"]
    # The name of a database that is not there may be repeated: it says which one is not.
    if "not exist" not in block["text"]:
        assert anything.CANARY not in block["text"]
    json.dumps(block["text"]).encode()


@settings(max_examples=40)
@given(given_arguments=anything.values)
def test_any_value_may_stand_where_the_arguments_should(app: ASGIApp, given_arguments: object):
    body = message("tools/call", {"name": "search_rag", "arguments": given_arguments})
    answer = asked(app, "POST", "/mcp", content=anything.dumped(body), headers=JSON).json()
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32602 if "error" in answer else answer["result"]["isError"]


pairs = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, "target", "db", "q"]) | anything.text,
        st.sampled_from(["notes", "passage", "keyword", "semantic", "5", "", anything.CANARY]) | anything.text,
    ),
    max_size=5,
).map(lambda chosen: urlencode(chosen, errors="surrogatepass"))
raw = st.binary(max_size=80).map(lambda data: quote_from_bytes(data, safe="&=+%;"))
queries = st.one_of(pairs, raw, pairs.map("db=notes&q=passage&".__add__), raw.map("db=notes&q=".__add__))


@settings(max_examples=80)
@given(path=st.sampled_from(["/api/search", "/api/list", "/api/health"]), query=queries)
def test_any_query_string_is_answered_or_refused_as_a_problem(app: ASGIApp, path: str, query: str):
    response = asked(app, "GET", f"{path}?{query}")
    assert response.status_code in {200, 400, 403, 404}
    shown = response.json()
    if response.status_code == 200:
        assert response.headers["content-type"] == "application/json"
        return
    assert response.headers["content-type"] == "application/problem+json"
    assert set(shown) == {"type", "title", "status", "detail", "code"}
    if response.status_code != 404:
        assert anything.CANARY not in shown["detail"]


@settings(max_examples=40)
@given(method=st.sampled_from(["GET", "POST", "HEAD", "DELETE"]), path=st.binary(max_size=30))
def test_any_path_is_answered_with_what_is_there_or_a_problem(app: ASGIApp, method: str, path: bytes):
    response = asked(app, method, "/" + quote_from_bytes(path, safe="/.%;"))
    assert response.status_code in {404, 405}
    assert response.headers["content-type"] == "application/problem+json"
