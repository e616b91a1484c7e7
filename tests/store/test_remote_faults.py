"""Servers that fail: each failure comes to the right error, reading is tried again and writing never is."""

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import pytest

from kura.errors import RemoteError, StoreError, TokenRefused, Unreachable
from kura.store.address import Patience
from kura.store.engine import Connection
from kura.store.remote import open_remote
from tests.embed.endpoints import Answer, Scripted

TOKEN = "eyJhbGciOiJFZERTQSJ9.e30.c2VjcmV0c2VjcmV0c2VjcmV0"
CLOSED = {"type": "ok", "response": {"type": "close"}}


def answer(*results: object, baton: str | None = None) -> Answer:
    return Answer(json.dumps({"baton": baton, "base_url": None, "results": results}).encode())


def rows_of(value: object) -> dict[str, object]:
    row = [{"type": "integer", "value": str(value)}]
    return {"cols": [{"name": "x"}], "rows": [row], "affected_row_count": 0, "last_insert_rowid": None}


def executed(value: int) -> Answer:
    return answer({"type": "ok", "response": {"type": "execute", "result": rows_of(value)}}, CLOSED)


def stepped(*values: int, baton: str | None = "next", errors: object = None) -> Answer:
    steps = [rows_of(value) for value in values]
    result = {"step_results": steps, "step_errors": errors or [None for _ in steps]}
    return answer({"type": "ok", "response": {"type": "batch", "result": result}}, baton=baton)


GOOD = executed(1)
NO_SUCH = Answer(b'{"error":"no such path"}', 404)
HANGING = Answer(b"", hang=True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited in between; nothing really waits."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", counted)
    return slept


@contextmanager
def connected(
    *answers: Answer, token: str | None = TOKEN, patience: Patience | None = None
) -> Generator[tuple[Scripted, Connection]]:
    with (
        Scripted(*answers) as server,
        closing(open_remote(f"http://{server.host}", lambda: token, patience=patience)) as connection,
    ):
        yield server, connection


def read(connection: Connection) -> object:
    return connection.one("select x from t")


def read_together(connection: Connection) -> object:
    return connection.together([("select 1", ()), ("select 2", ())])


def run(connection: Connection) -> object:
    return connection.run("insert into t values (1)")


def run_many(connection: Connection) -> object:
    return connection.many("insert into t values (?)", [(1,), (2,)])


def run_atomically(connection: Connection) -> object:
    return connection.atomically([("insert into t values (1)", ()), ("insert into t values (2)", ())])


def run_in_transaction(connection: Connection) -> None:
    with connection.transaction():
        connection.run("insert into t values (1)")


READS = pytest.mark.parametrize("ask", [read, read_together])
WRITES = pytest.mark.parametrize("ask", [run, run_many, run_atomically, run_in_transaction])
EITHER = pytest.mark.parametrize("ask", [read, read_together, run, run_many, run_atomically, run_in_transaction])
Ask = Callable[[Connection], object]

FAULTS: dict[str, tuple[Answer, type[StoreError], str, bool]] = {
    "401": (Answer(b'{"error":"expired"}', 401), TokenRefused, "refused access.*HTTP 401: expired", False),
    "403": (Answer(b"<html>no</html>", 403), TokenRefused, "refused access.*HTTP 403: <html>no</html>", False),
    "400": (Answer(b'{"message":"what?"}', 400), RemoteError, "does not take.*HTTP 400: what\\?", False),
    "413": (Answer(b"", 413), RemoteError, "does not take the request \\(HTTP 413\\)", False),
    "429": (Answer(b"slow down", 429), Unreachable, "not able to answer now.*429: slow down", True),
    "500": (Answer(b'{"error":"oh"}', 500), RemoteError, "failed \\(HTTP 500: oh\\)", True),
    "502": (Answer(b"", 502), Unreachable, "not able to answer now", True),
    "503": (Answer(b"\x00\xff\n\x1b[31m", 503), Unreachable, "not able to answer now", True),
    "504": (Answer(b"[]", 504), Unreachable, "not able to answer now", True),
    "half-a-body": (Answer(GOOD.body, cut=20), Unreachable, "broke.*may have taken place", True),
    "nothing": (Answer(b""), RemoteError, "not one of a libSQL server", False),
    "html": (Answer(b"<html>", headers={"content-type": "text/html"}), RemoteError, "not one of a libSQL", False),
    "cut-json": (Answer(GOOD.body[:-20]), RemoteError, "not one of a libSQL server, or not a whole", False),
    "number": (Answer(b"5"), RemoteError, "not one of a libSQL server", False),
    "null": (Answer(b"null"), RemoteError, "not one of a libSQL server", False),
    "no-results": (Answer(b"{}"), RemoteError, "not one of a libSQL server", False),
    "results-of-none": (answer(), RemoteError, "not one of a libSQL server", False),
    "result-is-null": (answer(None), RemoteError, "not one of a libSQL server", False),
    "result-is-text": (answer("ok"), RemoteError, "not one of a libSQL server", False),
    "result-is-empty": (answer({}), RemoteError, "not one of a libSQL server", False),
    "no-response": (answer({"type": "ok"}), RemoteError, "not one of a libSQL server", False),
    "null-result": (
        answer({"type": "ok", "response": {"type": "execute", "result": None}}),
        RemoteError,
        "not one of a libSQL server",
        False,
    ),
    "empty-result": (
        answer({"type": "ok", "response": {"type": "execute", "result": {}}}),
        RemoteError,
        "not one of a libSQL server",
        False,
    ),
    "null-error": (answer({"type": "error", "error": None}), RemoteError, "not one of a libSQL server", False),
    "empty-error": (answer({"type": "error", "error": {}}), RemoteError, "not one of a libSQL server", False),
    "error-of-numbers": (answer({"type": "error", "error": {"message": 5, "code": 6}}), RemoteError, "6: 5", False),
    "error": (
        answer({"type": "error", "error": {"message": "no\nsuch table", "code": "SQLITE_ERROR"}}),
        RemoteError,
        "SQLITE_ERROR: no such table",
        False,
    ),
    "redirect": (Answer(b"", 302, {"location": "/elsewhere"}), RemoteError, "does not take.*HTTP 302", False),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@EITHER
def test_a_failure_is_an_error_that_names_the_server_and_no_write_is_repeated_that_may_have_taken_place(
    ask: Ask, fault: tuple[Answer, type[StoreError], str, bool], pauses: list[float]
):
    failing, kind, text, passing = fault
    with connected(failing) as (server, connection):
        with pytest.raises(StoreError, match=text) as caught:
            ask(connection)
        assert type(caught.value) is kind
        assert server.host in str(caught.value)
        # Turned away for their number, requests have not taken place, so they may also be of those that write.
        turned_away = failing.status == 429 and ask is not run_in_transaction
        again = turned_away or (passing and ask in {read, read_together})
        assert len(server.requests) == (3 if again else 1)
        assert server.paths == ["/v3/pipeline"] * len(server.paths)
        assert pauses == ([0.2, 0.4] if again else [])


PASSING = [name for name, (_, _, _, passing) in FAULTS.items() if passing]


@pytest.mark.parametrize("name", PASSING)
def test_reading_goes_on_after_a_failure_that_passes(name: str, pauses: list[float]):
    with connected(FAULTS[name][0], FAULTS[name][0], GOOD) as (server, connection):
        assert read(connection) == (1,)
        assert len(server.requests) == len(pauses) + 1 == 3


@pytest.mark.parametrize("name", PASSING)
def test_a_transaction_never_asks_twice_within_it(name: str, pauses: list[float]):
    with connected(stepped(0, 1), FAULTS[name][0], GOOD) as (server, connection):
        with pytest.raises(StoreError, match=server.host):
            run_in_transaction(connection)
        assert len(server.requests) == 2
        assert pauses == []


@pytest.mark.parametrize(
    ("said", "paused"), [("1", [1.0]), ("600", [30.0]), ("0", [0.2]), ("soon", [0.2]), ("-5", [0.2]), ("²", [0.2])]
)
def test_a_server_that_says_when_to_come_back_is_asked_then(said: str, paused: list[float], pauses: list[float]):
    later = Answer(b"", 429, {"retry-after": said.encode().decode("latin-1")})
    with connected(later, GOOD) as (_, connection):
        assert read(connection) == (1,)
    assert pauses == paused


@EITHER
def test_a_server_that_hangs_is_left_after_a_while(ask: Ask, pauses: list[float]):
    with connected(HANGING, patience=Patience(total=0.1, attempts=2)) as (server, connection):
        with pytest.raises(Unreachable, match=f"{server.host} did not answer in 0.1 seconds; .*may have taken place"):
            ask(connection)
        assert len(server.requests) == (2 if ask in {read, read_together} else 1)
        assert len(pauses) == len(server.requests) - 1


def test_after_a_server_that_hung_the_next_answer_is_the_right_one():
    with connected(HANGING, executed(2), executed(3), patience=Patience(total=0.5)) as (_, connection):
        assert read(connection) == (2,)
        assert read(connection) == (3,)


def test_a_server_that_knows_the_second_version_alone_is_asked_for_that():
    with connected(NO_SUCH, executed(1), executed(2)) as (server, connection):
        assert read(connection) == (1,)
        assert read(connection) == (2,)
        assert server.paths == ["/v3/pipeline", "/v2/pipeline", "/v2/pipeline"]


@EITHER
def test_a_database_that_is_under_neither_version_is_not_there(ask: Ask):
    with connected(NO_SUCH) as (server, connection):
        with pytest.raises(RemoteError, match=f"{server.host} has no such database .HTTP 404: no such path"):
            ask(connection)
        assert server.paths == ["/v3/pipeline", "/v2/pipeline"]
        # It may have been made meanwhile.
        with pytest.raises(RemoteError, match="no such database"):
            ask(connection)
        assert server.paths[2:] == ["/v3/pipeline", "/v2/pipeline"]


def test_a_redirect_is_not_followed_so_that_the_token_stays_here():
    with Scripted(GOOD) as other, connected(Answer(b"", 307, {"location": other.url})) as (_, connection):
        with pytest.raises(RemoteError, match="307"):
            read(connection)
        assert other.requests == []


def test_a_request_asks_for_an_answer_that_is_not_compressed():
    with connected(GOOD) as (server, connection):
        read(connection)
        assert server.headers[0]["Accept-Encoding"] == "identity"
        assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"
        assert server.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("token", [None, ""], ids=["none", "empty"])
def test_without_a_token_none_is_sent_and_a_refusal_says_so(token: str | None):
    with connected(GOOD, Answer(b"", 401), token=token) as (server, connection):
        read(connection)
        with pytest.raises(TokenRefused, match="no token is set for it"):
            read(connection)
        assert not any("authorization" in {name.lower() for name in headers} for headers in server.headers)


def test_the_token_is_asked_for_anew_with_each_request(pauses: list[float]):
    tokens = iter(["first", "second", "third", "fourth"])
    with (
        Scripted(GOOD, Answer(b"", 503), GOOD, GOOD) as server,
        closing(open_remote(f"http://{server.host}", lambda: next(tokens))) as connection,
    ):
        for _ in range(3):
            read(connection)
        sent = [headers["Authorization"] for headers in server.headers]
    assert sent == ["Bearer first", "Bearer second", "Bearer third", "Bearer fourth"]
    assert len(pauses) == 1


ECHOES: dict[str, Answer] = {
    "json": Answer(json.dumps({"error": f"not good: {TOKEN}!"}).encode(), 401),
    "message": Answer(json.dumps({"message": TOKEN}).encode(), 500),
    "text": Answer(f"Authorization: Bearer {TOKEN}".encode(), 403),
    "nested": Answer(json.dumps({"error": {"headers": [TOKEN]}}).encode(), 400),
    "list": Answer(json.dumps([TOKEN]).encode(), 503),
    "often": Answer((TOKEN * 200).encode(), 502),
    "at-the-cut": Answer(("x" * 290 + TOKEN).encode(), 400),
    "latin": Answer(b"\xff\xfe" + TOKEN.encode() + b"\xff", 404),
    "result": answer({"type": "error", "error": {"message": f"bad {TOKEN}", "code": TOKEN}}),
    "step": stepped(1, 2, errors=[None, {"message": f"bad {TOKEN}", "code": "AUTH"}]),
    "step-of-a-batch": stepped(*range(5), errors=[None, {"message": f"bad {TOKEN}"}, None, None, None]),
    "body": Answer(TOKEN.encode()),
    "header": Answer(b"", 302, {"location": f"/{TOKEN}"}),
    "half": Answer(TOKEN.encode() * 2, cut=10),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
@pytest.mark.usefixtures("pauses")
@EITHER
def test_a_token_is_never_shown_also_where_the_server_says_it(ask: Ask, echo: Answer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with connected(echo) as (_, connection):
        with pytest.raises(StoreError) as caught:
            ask(connection)
        logging.getLogger("kura").error("it failed", exc_info=caught.value)
        shown = [repr(connection), caplog.text, *traceback.format_exception(caught.value)]
    error: BaseException | None = caught.value
    while error is not None:
        shown += [str(error), repr(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    # Not even the beginning of it, where a text was cut short.
    assert not any(TOKEN[:12] in text for text in shown)
