import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.errors import ArgumentError
from kura.serve.arguments import read, schema
from kura.serve.tools import ListArguments, SearchArguments

ASKED: dict[str, object] = {"db": "notes", "q": "passage"}


def refusal(**arguments: object) -> str:
    with pytest.raises(ArgumentError) as refused:
        read(SearchArguments, arguments)
    assert refused.value.__cause__ is None
    return str(refused.value)


def test_the_schema_is_flat_and_complete():
    shown = schema(SearchArguments)
    assert shown["additionalProperties"] is False
    assert shown["required"] == ["db", "q"]
    assert list(shown["properties"]) == ["db", "q", "mode", "limit", "tenant_id", "user_id"]
    properties = {
        name: {key: value for key, value in field.items() if key != "description"}
        for name, field in shown["properties"].items()
    }
    assert properties == {
        "db": {"type": "string", "minLength": 1, "maxLength": 64},
        "q": {"type": "string", "minLength": 1, "maxLength": 10_000},
        "mode": {"type": "string", "enum": ["keyword", "semantic"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        "tenant_id": {"type": "string", "minLength": 1, "maxLength": 200},
        "user_id": {"type": "string", "minLength": 1, "maxLength": 200},
    }
    assert all(field["description"] for field in shown["properties"].values())


def test_a_tool_without_arguments_of_its_own_requires_none():
    assert "required" not in schema(ListArguments)
    assert read(ListArguments, {}).tenant_id is None


def test_what_is_left_out_has_its_default():
    checked = read(SearchArguments, ASKED)
    assert (checked.mode, checked.limit, checked.tenant_id, checked.user_id) == (None, 10, None, None)


@pytest.mark.parametrize("absent", [None, "", "null", {}], ids=repr)
@pytest.mark.parametrize("name", ["mode", "limit", "tenant_id", "user_id"])
def test_what_clients_send_for_an_open_argument_counts_as_absent(name: str, absent: object):
    assert read(SearchArguments, {**ASKED, name: absent}) == read(SearchArguments, ASKED)


@pytest.mark.parametrize("value", [None, "", " \t\n\u3000", {}, [], 5, True, ["x"]], ids=repr)
@pytest.mark.parametrize("name", ["q"])
def test_a_required_argument_must_be_there(name: str, value: object):
    assert f'"{name}" must be text of 1 to 10,000 characters' in refusal(**{**ASKED, name: value})


def test_the_word_null_is_a_query_like_any_other():
    assert read(SearchArguments, {"db": "null", "q": "null"}).q == "null"


@pytest.mark.parametrize("limit", [7, 7.0, "7", " 7 ", "7.0", "07", "+7"], ids=repr)
def test_a_number_may_come_as_text(limit: object):
    assert read(SearchArguments, {**ASKED, "limit": limit}).limit == 7


@pytest.mark.parametrize(
    "limit",
    [True, False, 0, 101, -1, 7.5, "7.5", "seven", "1e1", "٧", "7_0", "0x7", 1e308, float("inf"), float("nan"), [7],
     {"n": 7}, "9" * 5000, 10**30, " "],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_what_is_no_number_in_bounds_is_refused(limit: object):
    assert refusal(**ASKED, limit=limit) == 'invalid argument: "limit" must be a whole number from 1 to 100'


@pytest.mark.parametrize("mode", ["both", "KEYWORD", "keyword ", 1, True, ["keyword"]], ids=repr)
def test_an_unknown_mode_is_refused_with_those_that_there_are(mode: object):
    assert refusal(**ASKED, mode=mode) == 'invalid argument: "mode" must be left out or one of keyword, semantic'


def test_the_query_is_trimmed_before_it_is_measured():
    assert read(SearchArguments, {**ASKED, "q": f"  {'x' * 10_000}\n"}).q == "x" * 10_000
    assert '"q" must be text of 1 to 10,000 characters' in refusal(**{**ASKED, "q": "x" * 10_001})


def test_unknown_arguments_are_named_with_those_that_there_are():
    assert refusal(**ASKED, top_k=3) == ('unknown argument "top_k"; known are db, q, mode, limit, tenant_id, user_id')


@pytest.mark.parametrize("name", ["x" * 41, "line\nbreak", "\x1b[31m", "\u202e"], ids=repr)
def test_an_unknown_argument_whose_name_is_none_is_not_repeated(name: str):
    assert refusal(**ASKED, **{name: 1}).startswith("unknown argument; known are")


def test_all_that_is_wrong_is_said_at_once():
    text = refusal(db="notes", limit=0, mode="x", extra=1)
    assert all(f'"{name}"' in text for name in ("q", "limit", "mode", "extra"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["db", "q", "mode", "limit", "tenant_id", "x"]) | st.text(), json_values))
def test_whatever_is_sent_is_refused_without_an_echo(arguments: dict[str, object]):
    with pytest.raises(ArgumentError) as refused:
        read(SearchArguments, {**arguments, "user_id": ["sk-very-secret-value"]})
    assert "secret" not in str(refused.value)


@settings(max_examples=50, deadline=None)
@given(json_values)
def test_a_limit_is_taken_only_within_its_bounds(limit: object):
    try:
        checked = read(SearchArguments, {**ASKED, "limit": limit})
    except ArgumentError:
        return
    assert 1 <= checked.limit <= 100
