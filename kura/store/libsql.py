"""The remote engine's way to a server: libsql-client, posting to the endpoints that servers have today.

Nothing else in Kura imports `libsql_client`. Its release 0.3.1, the last one, posts to `/v1/…`; Turso's cloud answers
under `/v3/pipeline` alone, older servers under `/v2/pipeline`. Driver exceptions become ours here.

Protocol: https://github.com/tursodatabase/libsql/blob/main/docs/HRANA_3_SPEC.md
"""

import asyncio
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from libsql_client import LibsqlError, ResultSet
from libsql_client.hrana.convert import (
    _error_from_proto,  # pyright: ignore[reportPrivateUsage]
    _result_set_from_proto,  # pyright: ignore[reportPrivateUsage]
    _stmt_to_proto,  # pyright: ignore[reportPrivateUsage]
)
from libsql_client.http import HttpClient
from pydantic_core import from_json

from kura.errors import Busy, Damaged, QueryFailed, RemoteError, StatementRefused, StoreError, TokenRefused, Unreachable
from kura.store.address import Patience
from kura.store.engine import Answered, Row, Statement
from kura.store.tokens import Token

_IDLE_SECONDS = 15.0
"""A connection that was idle for longer is not used again: while a function is frozen, its sockets may die."""

_SHOWN = 300  # characters of what a server says
_SAID = re.compile(
    r"^(SQLite error|SQL input error|SQL string could not be parsed): | \(at offset \d+\)$| at \(\d+, \d+\)$"
)
_INFINITE = {"type": "float", "value": None}
_PASSING = {408, 425, 429, 502, 503, 504}  # HTTP statuses after which the same request may be answered
_CODES: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY": (Busy, "another process is writing to the database and did not finish in time; try again"),
    "SQLITE_LOCKED": (Busy, "another process is writing to the database and did not finish in time; try again"),
    "SQLITE_CORRUPT": (Damaged, "the database on the server is damaged"),
    "SQLITE_NOTADB": (Damaged, "the file on the server is not a database"),
    "SQLITE_FULL": (StoreError, "the server's disk is full"),
    "SQLITE_TOOBIG": (StoreError, "a value is larger than the server takes"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one statement gave."""

    rows: list[Row]
    changed: int
    last_id: int


class _Passing(Exception):
    """No answer this time.

    Attributes:
        error: What it comes to if it stays so.
        wait: Seconds that the server asked for.
        untouched: Whether nothing of what was asked has taken place, for certain.
    """

    def __init__(self, error: StoreError, wait: float = 0.0, *, untouched: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.wait, self.untouched = error, wait, untouched


class _Connector(aiohttp.TCPConnector):
    """Closes nothing in a process that was forked: that would unregister sockets which the parent still listens to."""

    forked = False

    def __del__(self, _warnings: Any = warnings) -> None:  # noqa: ANN401 - as the driver's own
        if not self.forked:
            super().__del__(_warnings)


class PipelineClient(HttpClient):
    """A client of one database, bound to the event loop that it is made in."""

    def __init__(self, url: str, token: Token, patience: Patience) -> None:
        # Not the driver's own: without a token that sends "Bearer None", and it waits for ever.
        self._url = url.rstrip("/") + "/"
        self._connector = _Connector(limit=32, keepalive_timeout=_IDLE_SECONDS)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=patience.total, connect=patience.connect),
            # Compressed, ten thousand vectors took twenty times as long.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
        )
        self._token = token
        self._patience = patience
        self._version = "v3"
        self.host = urlsplit(url).netloc

    def forget(self) -> None:
        """Let go of the connections without closing them, in a process that was forked."""
        self._connector.forked = True
        self._session.detach()

    async def read(self, statements: Sequence[Statement]) -> list[Result]:
        """Run statements that read, as of one version, and again where that may help: reading twice does no harm.

        Raises:
            StoreError: if there is no usable answer.
        """
        return await self._run(statements, again=lambda _passing: True)

    async def write(self, statements: Sequence[Statement]) -> list[Result]:
        """Run statements once: all of them or, where one fails, none. Again only where nothing took place for certain.

        Raises:
            Unreachable: if it is not known whether they took place.
            StoreError: if they did not.
        """
        return await self._run(statements, again=lambda passing: passing.untouched)

    async def stream(self, baton: str | None, statements: Sequence[Statement], *, last: bool = False) -> "Step":
        """Run statements, up to the first that fails, in a transaction that goes on over several requests.

        Args:
            baton: From the request before; None begins.
            statements: The first of them all is to be a `begin`.
            last: Whether nothing more will come.
        """
        steps: list[dict[str, Any]] = []
        for sql, params in statements:
            condition = {"condition": {"type": "ok", "step": len(steps) - 1}} if steps else {}
            steps.append({"stmt": self._proto(sql, params), **condition})
        requests: list[dict[str, Any]] = [{"type": "batch", "batch": {"steps": steps}}] if steps else []
        try:
            answer = await self._post([*requests, *([{"type": "close"}] if last else [])], baton)
        except _Passing as passing:
            raise passing.error from passing
        with self._understood():
            results = _step_results(answer, len(steps)) if steps else []
        return Step(cast("str | None", answer.get("baton")), results)

    async def version(self) -> object:
        """How far the database's log has come, with what it says of itself; None where the server does not tell.

        Raises:
            StoreError: if there is no usable answer.
        """
        statement = {"sql": "select created_at, generation, version from state"}
        try:
            answer = await self._post([{"type": "execute", "stmt": statement}, {"type": "close"}], None)
        except _Passing as passing:
            raise passing.error from passing
        with self._understood():
            response = answer["results"][0]
            if response["type"] == "error":
                raise _error_from_proto(response["error"])
            result = response["response"]["result"]
            index = result.get("replication_index")
            return None if index is None else (index, json.dumps(result["rows"]))

    async def ask(
        self, baton: str, sql: str, params: Sequence[object]
    ) -> "tuple[str | None, Answered | StatementRefused | QueryFailed]":
        """Run a statement of somebody else's in a transaction, after its plan was asked for.

        Returns:
            What carries the transaction on, and the answer; or, with the engine's words, why the server does not take
            the statement, which depends on no row, or why it failed while it ran, which may.
        """
        plan = sql if sql.startswith("EXPLAIN ") else f"explain query plan {sql}"
        steps = [
            {"stmt": self._proto(plan, params)},
            {"stmt": self._proto(sql, params), "condition": {"type": "ok", "step": 0}},
        ]
        try:
            answer = await self._post([{"type": "batch", "batch": {"steps": steps}}], baton)
        except _Passing as passing:
            raise passing.error from passing
        carried = cast("str | None", answer.get("baton"))
        with self._understood():
            response = answer["results"][0]
            error = response["error"] if response["type"] == "error" else None
            if error is not None:
                if error.get("code") == "RESPONSE_TOO_LARGE":
                    return carried, QueryFailed(
                        "the answer is larger than the server gives; ask for fewer rows or columns"
                    )
                if error.get("code") == "SQL_PARSE_ERROR":
                    return carried, StatementRefused(_SAID.sub("", str(error["message"])))
                raise _error_from_proto(error)
            result = response["response"]["result"]
            for place, kind in enumerate((StatementRefused, QueryFailed)):
                error = result["step_errors"][place]
                if error is not None:
                    if error.get("code") in _CODES and error["code"] != "SQLITE_TOOBIG":
                        raise _error_from_proto(error)
                    return carried, kind(_SAID.sub("", str(error["message"])))
            if any(value == _INFINITE for row in result["step_results"][1]["rows"] for value in row):
                return carried, QueryFailed("the answer holds an infinite number, which the server does not send")
            found = _result_set_from_proto(result["step_results"][1])
            rows = [row.astuple() for row in found.rows]
        return carried, Answered(tuple(found.columns), rows, found.rows_affected, None)

    async def _run(self, statements: Sequence[Statement], again: Callable[["_Passing"], bool]) -> list[Result]:
        attempt = 0
        while True:
            try:
                return await self._once(statements)
            except _Passing as passing:
                attempt += 1
                if attempt >= self._patience.attempts or not again(passing):
                    raise passing.error from passing
                pause = max(self._patience.pause * 2 ** (attempt - 1), passing.wait)
                await asyncio.sleep(min(pause, self._patience.total))

    async def _once(self, statements: Sequence[Statement]) -> list[Result]:
        if len(statements) == 1:
            sql, params = statements[0]
            with self._understood():
                found = [await self.execute(sql, self._args(params))]
        else:
            with self._understood():
                found = await self.batch([(sql, self._args(params)) for sql, params in statements])
        return [_result(each) for each in found]

    async def _send(self, method: str, path: str, request_body: Any) -> Any:  # noqa: ANN401, ARG002 - the driver's
        """What the driver calls for each of its requests: `v1/execute` or `v1/batch`, with the body of that time."""
        answer = await self._post([{"type": path.rpartition("/")[2], **request_body}, {"type": "close"}], None)
        response = answer["results"][0]
        if response["type"] == "error":
            raise _error_from_proto(response["error"])
        return {"result": response["response"]["result"]}

    async def _post(self, requests: list[dict[str, Any]], baton: str | None) -> dict[str, Any]:
        body = json.dumps({"baton": baton, "requests": requests}).encode()
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        status, data, wait = await self._answer(f"{self._url}{self._version}/pipeline", body, headers)
        if status == 404 and self._version == "v3" and baton is None:
            older = await self._answer(f"{self._url}v2/pipeline", body, headers)
            if older[0] != 404:
                self._version = "v2"
                status, data, wait = older
        if status != 200:
            raise self._rejected(status, data, wait, token)
        try:
            answer = from_json(data)
        except ValueError as error:
            raise self._unexpected() from error
        if not isinstance(answer, dict) or not isinstance(cast("dict[str, Any]", answer).get("results"), list):
            raise self._unexpected()
        answer = cast("dict[str, Any]", answer)
        for error in _errors(answer["results"]):
            error |= {key: _shown(str(error[key]), token) for key in ("message", "code") if error.get(key)}
        return answer

    async def _answer(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, float]:
        try:
            # In a file, as aiohttp wants it of large bodies.
            async with self._session.post(
                url, data=io.BytesIO(body), headers=headers, allow_redirects=False
            ) as response:
                wait = response.headers.get("Retry-After", "")
                return response.status, await response.read(), float(wait) if wait.isdecimal() else 0.0
        except aiohttp.ClientConnectorError as error:
            # Nothing was sent, here and in the next case.
            unreachable = Unreachable(f"{self.host} cannot be reached: {_why(error)}")
            raise _Passing(unreachable, untouched=True) from error
        except aiohttp.ConnectionTimeoutError as error:
            reason = f"no connection in {self._patience.connect:g} seconds"
            raise _Passing(Unreachable(f"{self.host} cannot be reached: {reason}"), untouched=True) from error
        except TimeoutError as error:
            reason = f"{self.host} did not answer in {self._patience.total:g} seconds"
            raise _Passing(Unreachable(f"{reason}; what was sent may have taken place")) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to {self.host} broke before the answer was there"
            raise _Passing(Unreachable(f"{reason}; what was sent may have taken place")) from error

    def _rejected(self, status: int, data: bytes, wait: float, token: str | None) -> Exception:
        said = _said(data, token)
        if status in {401, 403}:
            lacking = "no token is set for it" if not token else "the token is not, or no longer, good for this"
            return TokenRefused(f"{self.host} refused access: {lacking} (HTTP {status}{said})")
        if status == 404:
            return RemoteError(f"{self.host} has no such database (HTTP 404{said})")
        if status in _PASSING:
            unable = Unreachable(f"{self.host} is not able to answer now (HTTP {status}{said})")
            # Too many requests: this one was turned away.
            return _Passing(unable, wait, untouched=status == 429)
        if status >= 500:
            return _Passing(RemoteError(f"{self.host} failed (HTTP {status}{said})"), wait)
        return RemoteError(f"{self.host} does not take the request (HTTP {status}{said})")

    @contextmanager
    def _understood(self) -> Generator[None]:
        try:
            yield
        except LibsqlError as error:
            kind, reason = _CODES.get(error.code, (RemoteError, f"{error.code}: {error.explanation}"))
            raise kind(f"{self.host}: {reason}") from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unexpected() from error

    def _unexpected(self) -> RemoteError:
        return RemoteError(f"the answer of {self.host} is not one of a libSQL server, or not a whole one")

    def _proto(self, sql: str, params: Sequence[object]) -> dict[str, Any]:
        return cast("dict[str, Any]", _stmt_to_proto(sql, self._args(params)))

    def _args(self, params: Sequence[object]) -> list[Any]:
        for value in params:
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError as error:
                    raise StoreError(
                        "a text with half a character in it (a lone surrogate) cannot be stored"
                    ) from error
        # SQLite keeps what is no number as null too; JSON has no word for it.
        return [None if isinstance(value, float) and not math.isfinite(value) else value for value in params]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a transaction is after a request: what carries it on, None where the server has ended it, and results."""

    baton: str | None
    results: list[Result]


def _step_results(answer: dict[str, Any], count: int) -> list[Result]:
    response = answer["results"][0]
    if response["type"] == "error":
        raise _error_from_proto(response["error"])
    result = response["response"]["result"]
    for error in result["step_errors"]:
        if error is not None:
            raise _error_from_proto(error)
    results = [_result(_result_set_from_proto(each)) for each in result["step_results"]]
    if len(results) != count:
        raise ValueError("another number of results")
    return results


def _result(found: ResultSet) -> Result:
    return Result([row.astuple() for row in found.rows], found.rows_affected, found.last_insert_rowid or 0)


def _errors(results: list[Any]) -> Iterator[dict[str, Any]]:
    """What went wrong as a server says it: with a request, or with one step of a batch."""
    for result in results:
        with suppress(LookupError, TypeError):  # another shape is told of where the results are taken
            said: list[Any] = (
                [result["error"]] if result["type"] == "error" else result["response"]["result"]["step_errors"]
            )
            yield from (error for error in said if isinstance(error, dict))


def _said(data: bytes, token: str | None) -> str:
    """What a server gives as its reason, as part of a sentence."""
    text = data.decode("utf-8", "replace")
    try:
        given: Any = from_json(data)
        text = str(given.get("error") or given.get("message") or text)
    except (ValueError, AttributeError):
        pass  # not an object in JSON: then it is shown as it is
    shown = _shown(text, token)
    return f": {shown}" if shown else ""


def _shown(text: str, token: str | None) -> str:
    """What a server says, short, in one line, and without the token that it was sent."""
    if token:
        text = text.replace(token, "…")
    text = "".join(character if character.isprintable() else " " for character in text[: 10 * _SHOWN])
    return " ".join(text.split())[:_SHOWN]


def _why(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host is known"
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate cannot be verified"
    number = error.os_error.errno  # asyncio's text names the address again
    return os.strerror(number).lower() if number else "no connection"
