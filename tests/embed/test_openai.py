import base64
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kura.embed import Kind
from kura.embed.endpoint import Endpoint
from kura.embed.openai import CHARACTERS, PATIENCE, TEXTS, OpenAIEmbedder, Patience
from kura.errors import ConfigurationError, EmbedderError
from tests.embed.endpoints import GOOD, KEY, Answer, Scripted, Time, asked, problem


def test_the_request_is_what_the_api_describes_and_vectors_come_at_unit_length() -> None:
    with asked(GOOD) as (server, embedder, _):
        found = embedder.embed(["a text"], "passage")
    assert found.dtype == np.float32
    assert found.shape == (1, 2)
    assert found[0].tolist() == pytest.approx([0.6, 0.8])
    assert server.paths == ["/v1/embeddings"]
    assert server.requests == [{"model": "some-model", "input": ["a text"], "encoding_format": "float"}]
    assert {name.lower(): value for name, value in server.headers[0].items()}["authorization"] == f"Bearer {KEY}"


def test_queries_and_passages_get_their_model_prefix_and_dimensions() -> None:
    extra = {"query_model": "asks", "query_prefix": "query: ", "passage_prefix": "passage: ", "dimensions": 2}
    with asked(GOOD, key=None, **extra) as (server, embedder, _):
        embedder.embed(["one"], "query")
        embedder.embed(["one"], "passage")
    assert [(r["model"], r["input"], r["dimensions"]) for r in server.requests] == [
        ("asks", ["query: one"], 2),
        ("some-model", ["passage: one"], 2),
    ]
    assert "authorization" not in {name.lower() for name in server.headers[0]}


@pytest.mark.parametrize("ending", ["", "/", "/embeddings", "/?version=2", "/embeddings?version=2"])
def test_the_base_url_may_end_as_people_write_it(ending: str) -> None:
    with Scripted(GOOD) as server:
        OpenAIEmbedder(Endpoint(server.url + ending, "m")).embed(["x"], "query")
    query = "?version=2" if "?" in ending else ""
    assert server.paths == [f"/v1/embeddings{query}"]


def test_a_user_in_the_url_is_sent_as_such() -> None:
    with Scripted(GOOD) as server:
        embedder = OpenAIEmbedder(Endpoint(server.url.replace("//", "//me:secret@"), "m"))
        embedder.embed(["x"], "query")
    sent = {name.lower(): value for name, value in server.headers[0].items()}["authorization"]
    assert sent == "Basic " + base64.b64encode(b"me:secret").decode()


def test_the_length_of_vectors_is_learned_once_and_not_asked_for_where_an_answer_told_it() -> None:
    with asked() as (server, embedder, _):
        assert (embedder.dimension, embedder.dimension, len(server.requests)) == (2, 2, 1)
        assert embedder.embed([], "passage").shape == (0, 2)
    with asked() as (server, embedder, _):
        embedder.embed(["x"], "query")
        assert (embedder.dimension, len(server.requests), embedder.floor) == (2, 1, None)
    with asked(dimensions=512) as (server, embedder, _):
        assert (embedder.dimension, server.requests) == (512, [])


def test_many_texts_go_in_several_requests_and_come_back_in_order() -> None:
    texts = ["x" * length for length in range(1, 2 * TEXTS + 4)]
    with asked() as (server, embedder, _):
        found = embedder.embed(texts, "passage")
    assert [len(request["input"]) for request in server.requests] == [TEXTS, TEXTS, 3]
    assert (found[:, 0] / found[:, 1]).tolist() == pytest.approx([len(text) for text in texts], rel=1e-3)


def test_a_request_has_no_more_characters_than_it_may_unless_one_text_has() -> None:
    with asked() as (server, embedder, _):
        embedder.embed(["x" * (CHARACTERS - 1), "yy", "z" * (CHARACTERS + 1), "z"], "passage")
    assert [len("".join(r["input"])) for r in server.requests] == [CHARACTERS - 1, 2, CHARACTERS + 1, 1]


def test_several_threads_may_embed_at_once() -> None:
    with asked() as (_, embedder, _), ThreadPoolExecutor(8) as pool:
        texts = [["x" * n] * n for n in range(1, 40)]
        found = list(pool.map(embedder.embed, texts, repeat("passage")))
    for n, part in enumerate(found, 1):
        assert (part[:, 0] / part[:, 1]).tolist() == pytest.approx([n] * n, rel=1e-3)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_what_may_pass_is_tried_again_after_a_growing_pause(status: int) -> None:
    with asked(*[problem(status, "not now")] * 3, GOOD) as (server, embedder, time):
        assert embedder.embed(["x"], "passage").shape == (1, 2)
    assert len(server.requests) == 4
    assert 0.25 <= time.slept[0] <= 0.5 <= time.slept[1] <= 1 <= time.slept[2] <= 2


@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "7"},
        {"retry_after": "Wed, 21 Oct 2015 07:28:07 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"},
    ],
    ids=["seconds", "date"],
)
def test_the_endpoint_says_how_long_to_wait(headers: dict[str, str]) -> None:
    with asked(problem(429, "slow down", **headers), GOOD) as (_, embedder, time):
        embedder.embed(["x"], "passage")
    assert len(time.slept) == 1
    assert 7 <= time.slept[0] <= 8


@pytest.mark.parametrize("value", ["soon", "", "-5", "Wed, 99 Foo 2015 07:28:07 GMT", "٧"])
def test_a_pause_that_cannot_be_read_is_our_own(value: str) -> None:
    with asked(problem(503, "later", retry_after=value), GOOD) as (_, embedder, time):
        embedder.embed(["x"], "passage")
    assert 0.25 <= time.slept[0] <= 0.5


def test_a_pause_beyond_all_patience_is_not_begun() -> None:
    with asked(problem(429, "tomorrow", retry_after="86400")) as (server, embedder, time):
        with pytest.raises(EmbedderError, match=r"too many requests \(HTTP 429\)"):
            embedder.embed(["x"], "passage")
        assert (len(server.requests), time.slept) == (1, [])


def test_queries_give_up_much_sooner_than_indexing() -> None:
    spent: dict[Kind, float] = {}
    for kind in ("passage", "query"):
        with asked(problem(500, "broken")) as (_, embedder, time):
            with pytest.raises(EmbedderError, match=r'127.0.0.1:\d+ \(model "some-model"\) fails \(HTTP 500\)'):
                embedder.embed(["x"], kind)
            spent[kind] = time.now
    assert spent["query"] < 3
    assert 20 < spent["passage"] <= PATIENCE["passage"].seconds


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (problem(401, "no"), r"refuses the key \(KURA_EMBEDDING_KEY\) \(HTTP 401\)"),
        (problem(403, "no"), r"refuses the key \(KURA_EMBEDDING_KEY\) \(HTTP 403\)"),
        (problem(404, "no"), "KURA_EMBEDDING_MODEL, and that KURA_EMBEDDING_URL"),
        (problem(400, "no"), "refuses the request"),
        (problem(422, "no"), "refuses the request"),
        (Answer(b"", 302, {"location": "http://127.0.0.1:1/secret-place"}), "elsewhere: set KURA_EMBEDDING_URL"),
    ],
    ids=["401", "403", "404", "400", "422", "redirect"],
)
def test_what_will_not_pass_is_not_tried_again(answer: Answer, says: str) -> None:
    with asked(answer) as (server, embedder, time):
        with pytest.raises(EmbedderError, match=says) as raised:
            embedder.embed(["x", "y"], "passage")
        assert (len(server.requests), time.slept) == (1, [])
    assert "secret-place" not in str(raised.value)


def test_where_no_key_is_set_a_refusal_says_that_one_is_wanted() -> None:
    wanted = pytest.raises(EmbedderError, match="wants a key: set KURA_EMBEDDING_KEY")
    with asked(problem(401, "who are you?"), key=None) as (_, embedder, _), wanted:
        embedder.embed(["x"], "query")


def test_a_connection_that_breaks_off_is_tried_again() -> None:
    with asked(replace(GOOD, cut=5), GOOD) as (server, embedder, _):
        assert embedder.embed(["x"], "query").shape == (1, 2)
        assert len(server.requests) == 2
    broken = pytest.raises(EmbedderError, match="broke off before its answer was complete")
    with asked(replace(GOOD, cut=5)) as (_, embedder, _), broken:
        embedder.embed(["x"], "query")


def test_an_endpoint_that_never_answers_is_given_up() -> None:
    with Scripted(replace(GOOD, hang=True)) as server:
        short: dict[Kind, Patience] = {"query": Patience(0.2, 3), "passage": Patience(0.2, 3)}
        embedder = OpenAIEmbedder(Endpoint(server.url, "m"), patience=short)
        with pytest.raises(EmbedderError, match="gave no answer in time"):
            embedder.embed(["x"], "query")
        embedder.close()


def test_an_endpoint_that_is_not_there_is_given_up_soon() -> None:
    with Scripted() as server:
        pass
    time = Time()
    embedder = OpenAIEmbedder(Endpoint(server.url, "m", key=KEY), sleep=time.sleep, clock=lambda: time.now)
    with pytest.raises(EmbedderError, match=r"cannot be reached: is it running, and is KURA_EMBEDDING_URL right\?"):
        embedder.embed(["x"], "passage")
    assert len(time.slept) == 2


def test_a_proxy_that_cannot_be_used_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://me:secret@127.0.0.1")
    embedder = OpenAIEmbedder(Endpoint("http://127.0.0.1:1/v1", "m"))
    with pytest.raises(EmbedderError, match="a proxy that the environment names") as raised:
        embedder.embed(["x"], "query")
    assert "secret" not in "".join(traceback.format_exception(raised.value))


class Limited(Scripted):
    """Embeds at most four texts at once, each of at most 300 characters."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status

    def embedded(self, request: dict[str, Any]) -> Answer:
        if len(request["input"]) > 4:
            return problem(self.status, "batch size 32 > maximum allowed batch size 4: too large")
        if any(len(text) > 300 for text in request["input"]):
            return problem(self.status, "This model's maximum context length is 300 tokens")
        return super().embedded(request)


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_too_much_at_once_is_split_and_what_is_too_long_counts_by_its_beginning(status: int) -> None:
    with Limited(status) as server:
        time = Time()
        embedder = OpenAIEmbedder(Endpoint(server.url, "m"), sleep=time.sleep, clock=lambda: time.now)
        found = embedder.embed(["x" * length for length in (1, 2, 3, 4, 5, 6, 1100)], "passage")
        embedder.close()
    assert time.slept == []
    assert (found[:, 0] / found[:, 1]).tolist() == pytest.approx([1, 2, 3, 4, 5, 6, 275], rel=1e-3)


def test_an_endpoint_that_finds_everything_too_long_is_told_after_a_bounded_number_of_requests() -> None:
    with asked(problem(413, "too long")) as (server, embedder, _):
        with pytest.raises(EmbedderError, match=r"finds even a short text too long \(HTTP 413\)"):
            embedder.embed(["x" * 1000] * TEXTS, "passage")
        assert len(server.requests) < 12


@pytest.mark.parametrize("text", ["", "  \n\t", "\ud800", "a\udfffb", "\x00", "😀" * 3])
def test_texts_that_endpoints_refuse_do_not_break_their_batch(text: str) -> None:
    with asked() as (server, embedder, _):
        assert embedder.embed(["before", text, "after"], "passage").shape == (3, 2)
    sent = server.requests[0]["input"][1]
    assert sent.strip() or sent == "\x00"
    sent.encode()


@pytest.fixture(scope="module")
def echo() -> Generator[tuple[Scripted, OpenAIEmbedder]]:
    with Scripted() as server:
        embedder = OpenAIEmbedder(Endpoint(server.url, "m"))
        yield server, embedder
        embedder.close()


@given(texts=st.lists(st.text(st.characters(codec=None)), max_size=40))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_texts_there_is_one_unit_vector_for_each(
    texts: list[str], echo: tuple[Scripted, OpenAIEmbedder]
) -> None:
    found = echo[1].embed(texts, "passage")
    assert found.shape == (len(texts), 2)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "echoed",
    [KEY, f"Incorrect API key provided: {KEY[:8]}*****{KEY[-4:]}.", f"header 'Bearer {KEY}' is bad", f"({KEY})"],
)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_the_key_appears_nowhere(status: int, echoed: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reply = problem(status, f"refused: {echoed}", x_key=KEY)
    with Scripted(reply) as server:
        time = Time()
        url = server.url + "?secret=query-string-0815"
        endpoint = Endpoint(url, "some-model", key=KEY)
        embedder = OpenAIEmbedder(endpoint, sleep=time.sleep, clock=lambda: time.now)
        with pytest.raises(EmbedderError) as raised:
            embedder.embed(["x"], "query")
        embedder.close()
    error = raised.value
    assert error.__cause__ is None
    assert error.__context__ is None
    everything = "".join(traceback.format_exception(error)) + caplog.text + repr(embedder) + repr(endpoint) + str(error)
    everything += repr(vars(error)) + repr(error.args)
    assert "says: refused: " in caplog.text
    for part in (KEY, KEY[:8], KEY[-8:], "query-string-0815", "secret=", "/v1"):
        assert part not in everything.replace("[secret]", "")


def test_a_user_and_password_appear_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Scripted(problem(401, "who is someone with hunter%2F2hunter and hunter/2hunter?")) as server:
        endpoint = Endpoint(server.url.replace("//", "//someone:hunter%2F2hunter@"), "m")
        embedder = OpenAIEmbedder(endpoint)
        with pytest.raises(EmbedderError) as raised:
            embedder.embed(["x"], "query")
        embedder.close()
    assert f"endpoint {server.host} " in str(raised.value)
    everything = "".join(traceback.format_exception(raised.value)) + caplog.text + repr(endpoint)
    assert "hunter" not in everything
    assert "someone" not in everything


def test_the_name_changes_with_what_changes_the_vectors_of_passages() -> None:
    plain = Endpoint("http://one/v1", "model")
    assert plain.name == "openai:model"
    same = replace(plain, url="https://two/v1", key="k", query_model="q", query_prefix="query: ", dimensions=3)
    assert same.name == plain.name
    prefixed = replace(plain, passage_prefix="passage: ")
    assert prefixed.name.startswith("openai:model#")
    assert len({plain.name, prefixed.name, replace(plain, passage_prefix="doc: ").name, "openai:other"}) == 4


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a\x00b/v1", "http://127.0.0.1:99999/v1"])
def test_a_url_that_is_none_is_told_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="KURA_EMBEDDING_URL is not a URL") as raised:
        OpenAIEmbedder(Endpoint(url, "m"))
    assert raised.value.__context__ is None


def test_an_embedder_that_nobody_holds_any_more_closes_its_connections() -> None:
    program = """
import gc, sys, warnings
from kura.embed.endpoint import Endpoint
from kura.embed.openai import OpenAIEmbedder
warnings.simplefilter("error")
left = OpenAIEmbedder(Endpoint(sys.argv[1], "m"))
left.embed(["x"], "query")
if sys.argv[2] == "now":
    del left
    gc.collect()
"""
    with Scripted() as server:
        for when in ("now", "at the end"):
            arguments = [sys.executable, "-X", "dev", "-c", program, server.url, when]
            ran = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
            assert ran.stderr == ""


def test_a_client_is_made_once_however_many_threads_begin() -> None:
    gate = threading.Barrier(8)
    with asked() as (_, embedder, _), ThreadPoolExecutor(8) as pool:

        def begin(_: int) -> object:
            gate.wait(timeout=20)
            embedder.embed(["x"], "query")
            return embedder._client  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

        assert len({id(client) for client in pool.map(begin, range(8))}) == 1
