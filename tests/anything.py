"""What anybody may send: texts, JSON documents and raw bytes, denser in trouble than chance would make them."""

import json
from typing import Any

from hypothesis import strategies as st

CANARY = "Zq9Canary7"
"""A word that stands for a secret: no refusal may repeat it."""

CHARACTERS = (
    "aZ09 .,-_'\"*:^()[]{}<>%@#&|\\/~`$;=+!?\t\n\r\0\x1b\x7f\u0085\u200b\u202e\ufeff\ufffd\u0301éß段落가แ🚲👩\u200d🔬"
)
WORDS = (
    "AND", "OR", "NOT", "NEAR(", "NEAR/2", "a*", '"', '""', "col:", "tokens:x", "^x", "-x", "{a b}", "+", "%", "'; --",
    "passage", "段落", "C++", "node.js", "0x00", "\\u0000", "https://a.example/?q=1", "🚲" * 30, "x" * 300, "a'" * 200,
)  # fmt: skip

typed = st.one_of(
    st.text(st.sampled_from(CHARACTERS), max_size=40),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    st.text(max_size=60),
)
"""Text that UTF-8 can carry."""

text = typed | st.text(st.characters(exclude_categories=()), max_size=40)
"""Any text, with lone surrogates."""

numbers = st.sampled_from([0, -1, 1, 10, 101, 2**31, 2**63, -(2**63), 2**64, 10**30, 1.5, -0.0, 1e308])
leaves = st.none() | st.booleans() | st.integers() | numbers | st.floats() | typed | st.just(CANARY)
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(typed, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value, and the three numbers that JSON has not."""


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


METHODS = (
    "initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list",
    "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
    "completion/complete", "logging/setLevel", "server/discover", "subscriptions/listen", "tasks/get",
    "sampling/createMessage", "roots/list", "notifications/initialized", "notifications/cancelled",
    "notifications/progress", "notifications/roots/list_changed",
)  # fmt: skip

_params = st.dictionaries(
    st.sampled_from(
        ["name", "arguments", "uri", "cursor", "level", "ref", "argument", "protocolVersion", "capabilities",
         "clientInfo", "requestId", "progressToken", "task", "subscriptions", "_meta"]
    )
    | typed,
    st.sampled_from(["search_rag", "list_rag", "2025-11-25", "2026-07-28", "debug", {}, {"name": "x", "version": "0"}])
    | values,
    max_size=5,
)  # fmt: skip
_calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["list_rag", "search_rag", "query", "vector_search", "schema_inspect"]) | values,
        "arguments": st.dictionaries(st.sampled_from(["db", "q", "mode", "limit"]) | typed, values, max_size=4)
        | values,
    }
)
_head: dict[str, st.SearchStrategy[Any]] = {"jsonrpc": st.just("2.0"), "id": st.integers()}
_loose: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers() | typed | values,
    "params": _params | values,
    "result": values,
    "error": values,
}
messages: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS) | typed}, optional=_loose),
    st.fixed_dictionaries({**_head, "method": st.just("tools/call"), "params": _calls}),
    st.fixed_dictionaries({**_head, "method": st.sampled_from(METHODS), "params": _params}),
)
"""Objects that are JSON-RPC messages, or nearly."""


def _twice(message: dict[str, Any]) -> bytes:
    """The document with every member of the object given twice."""
    body = dumped(message)
    return body[:-1] + b"," + body[1:] if message else body


def _nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":[' * depth + b"1" + b"]}" * depth + b"}"


def _numbered(digits: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"method":"ping","params":{"n":%s}}' % (digits.encode(), digits.encode())


bodies: st.SearchStrategy[bytes] = st.one_of(
    messages.map(dumped),
    messages.map(_twice),
    values.map(dumped),
    st.lists(messages, max_size=3).map(dumped),
    st.tuples(messages.map(dumped), st.integers(0, 400)).map(lambda cut: cut[0][: cut[1]]),
    st.binary(max_size=200),
    st.integers(0, 3000).map(_nested),
    st.sampled_from(["9" * 5000, "-" + "9" * 400, "1e999", "-1e999", "1" + "0" * 309 + ".5", "-0"]).map(_numbered),
)
"""What may arrive where a JSON-RPC message should."""
