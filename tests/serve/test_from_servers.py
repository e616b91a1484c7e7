"""`kura serve` and `kura mcp` with databases on servers that are down, are wrong, change hands or come back."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client

from kura.store.catalog import Catalog
from kura.store.elsewhere import enter
from kura.store.remote import open_remote
from local.sqld import Key, Server, libsql_server
from tests.clients.servers import ROOT
from tests.embed.endpoints import Answer, Scripted
from tests.hosted.hosting import published, reading_from
from tests.hosted.relay import relayed
from tests.serve.knowledge import fill

Json = dict[str, Any]
Q = "Which file and lines?"
MODES: tuple[dict[str, Any], ...] = ({}, {"mode": "keyword"}, {"mode": "semantic"})


class Running(NamedTuple):
    """A process that serves, and all that it has written so far."""

    url: str
    written: list[str]


@pytest.fixture(scope="session")
def key() -> Key:
    return Key()


@pytest.fixture
def server(tmp_path: Path, key: Key) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here")
    return tmp_path / "here"


@contextmanager
def serving(environ: dict[str, str]) -> Generator[Running]:
    command = [sys.executable, "-m", "kura", "serve", "--port", "0"]
    written: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            url = None
            while url is None and (line := process.stdout.readline()):
                written.append(line)
                url = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert url is not None, written
            # Read on, or a full pipe would stop the server.
            threading.Thread(target=written.extend, args=(process.stdout,), daemon=True).start()
            yield Running(url[0], written)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def called(running: Running, tool: str, **arguments: object) -> Json:
    async def ask() -> Json:
        async with Client(f"{running.url}/mcp") as client:
            return (await client.call_tool(tool, arguments)).model_dump(by_alias=True, mode="json")

    return asyncio.run(asyncio.wait_for(ask(), 90))


def rest(running: Running, **params: str) -> httpx2.Response:
    return httpx2.get(f"{running.url}/api/search", params=params, timeout=90)


def require_secret(running: Running, tokens: Iterable[str], *answers: object) -> None:
    """Check that no token is in an answer, nor in what the process has written."""
    for token in tokens:
        assert token not in str(answers)
        assert token not in "".join(running.written)


def test_one_database_that_is_down_is_listed_without_its_date_and_the_others_are_served(
    tmp_path: Path, here: Path, server: Server, key: Key
):
    published(here, "notes", server.url, key)
    with Scripted(Answer(b"", hang=True)) as dead:
        environ = reading_from(tmp_path / "there", f"dead={dead.url},notes={server.url}", key)
        with serving(environ) as running:
            found = called(running, "search_rag", db="notes", q=Q)
            assert found["structuredContent"]["semantic"]
            listed = called(running, "list_rag")["structuredContent"]
            assert listed["loaded"] == ["notes"]
            gone, notes = listed["registered"]
            assert gone == {"db": "dead"}
            assert notes["createAt"]
            assert httpx2.get(f"{running.url}/api/list", timeout=90).json() == listed
            require_secret(running, [environ["KURA_DATABASE_TOKENS"]], found, listed)
            dead.over.set()  # it would be waited for at the end


WRONG: dict[str, Answer] = {
    "401": Answer(b'{"error":"expired"}', 401),
    "403": Answer(b'{"error":"no"}', 403),
    "404": Answer(b"nothing here", 404),
    "500": Answer(b'{"error":"oh"}', 500),
    "half a body": Answer(b'{"results":[' + b" " * 100, cut=50),
    "not JSON": Answer(b"<html>"),
}


def test_every_wrong_answer_of_a_server_is_an_error_that_names_the_database(tmp_path: Path, key: Key):
    servers = {name.replace(" ", "-"): Scripted(answer) for name, answer in WRONG.items()}
    databases = ",".join(f"{name}={server.url}" for name, server in servers.items())
    environ = reading_from(tmp_path / "there", databases, key)
    for each in servers.values():
        each.__enter__()
    try:
        with serving(environ) as running:
            for name, each in servers.items():
                for mode in MODES:
                    said = called(running, "search_rag", db=name, q=Q, **mode)
                    assert said["isError"] is True
                    text = said["content"][0]["text"]
                    assert text.startswith(f'database "{name}" unavailable: ')
                    assert each.host in text
                    problem = rest(running, db=name, q=Q, **mode)
                    assert problem.status_code == 503
                    assert problem.headers["content-type"] == "application/problem+json"
                    assert problem.json()["detail"] == text
                    require_secret(running, [environ["KURA_DATABASE_TOKENS"]], said, problem.text)
            assert called(running, "list_rag")["structuredContent"]["loaded"] == []
    finally:
        for each in servers.values():
            each.__exit__()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_search_that_breaks_off_is_an_error_and_the_next_one_the_right_answer(
    tmp_path: Path, here: Path, server: Server, key: Key, share: float
):
    published(here, "notes", server.url, key)
    with relayed(server.url) as relay:
        environ = reading_from(tmp_path / "there", f"notes={relay.url}", key)
        with serving(environ) as running:
            for mode in MODES:
                expected = called(running, "search_rag", db="notes", q=Q, **mode)
                before = len(relay.received)
                assert called(running, "search_rag", db="notes", q=Q, **mode) == expected
                now = len(relay.received)
                relay.cut_after = now + int((now - before) * share)
                said = called(running, "search_rag", db="notes", q=Q, **mode)
                relay.cut_after = None
                assert said["isError"] is True
                assert said["content"][0]["text"].startswith(
                    'database "notes" unavailable: the connection to 127.0.0.1'
                )
                assert called(running, "search_rag", db="notes", q=Q, **mode) == expected


def test_a_token_that_expires_is_replaced_while_serving(tmp_path: Path, here: Path, server: Server, key: Key):
    published(here, "notes", server.url, key)
    good, bad, file = key.token(read_only=True), key.token(read_only=True, seconds=-3600), tmp_path / "tokens"
    file.write_text(f"notes={good}\n", encoding="utf-8")
    environ = reading_from(tmp_path / "there", f"notes={server.url}", key, KURA_DATABASE_TOKENS_FILE=str(file))
    del environ["KURA_DATABASE_TOKENS"]
    with serving(environ) as running:
        expected = called(running, "search_rag", db="notes", q=Q)
        file.write_text(f"# expired\nnotes={bad}\n", encoding="utf-8")
        said = called(running, "search_rag", db="notes", q=Q)
        problem = rest(running, db="notes", q=Q)
        assert said["content"][0]["text"].startswith('database "notes" unavailable: 127.0.0.1')
        assert problem.status_code == 503
        file.write_text(f"# and a good one again\nnotes={good}\n", encoding="utf-8")
        assert called(running, "search_rag", db="notes", q=Q) == expected
        require_secret(running, [good, bad], said, problem.text, expected)


def test_a_catalog_keeps_tenants_apart_and_goes_on_when_it_is_down(
    tmp_path: Path, here: Path, server: Server, key: Key
):
    published(here, "acme-plans", server.url, key)
    with libsql_server(tmp_path / "names", jwt_key=key.public) as names:
        with closing(open_remote(names.url, key.token)) as remote:
            enter(remote, Catalog(here).find("acme-plans"), server.url)
            enter(remote, Catalog(here).find("globex-plans"), server.url)
        environ = reading_from(tmp_path / "there", "", key, KURA_CATALOG=names.url, KURA_TENANT="globex")
        del environ["KURA_PUBLIC"]
        with serving(environ) as running:
            # What globex sees is a database that is another's by what it says itself.
            assert [entry["db"] for entry in called(running, "list_rag")["structuredContent"]["registered"]] == [
                "globex-plans"
            ]
            swapped = called(running, "search_rag", db="globex-plans", q="plan")["content"][0]["text"]
            assert swapped.startswith('database "globex-plans" unavailable: the database belongs to another owner')
            foreign, unknown = (
                called(running, "search_rag", db=name, q="plan")["content"][0]["text"].replace(name, "NAME")
                for name in ("acme-plans", "nothing")
            )
            assert foreign == unknown
            names.process.kill()
            names.process.wait()
            assert [entry["db"] for entry in called(running, "list_rag")["structuredContent"]["registered"]] == [
                "globex-plans"
            ]
            foreign, unknown = (
                called(running, "search_rag", db=name, q="plan")["content"][0]["text"].replace(name, "NAME")
                for name in ("acme-plans", "nothing")
            )
            assert foreign == unknown
            assert "cannot be read: 127.0.0.1" in unknown


@pytest.mark.parametrize(
    ("command", "variable", "value"),
    [
        ("serve", "KURA_DATABASES", "notes=libsql://x.example?authToken=a-secret"),
        ("mcp", "KURA_DATABASES", "notes=https://a-secret.example,notes@acme=https://a-secret.example"),
        ("serve", "KURA_CATALOG", "a-secret-place"),
        ("mcp", "KURA_DATABASE_TOKENS", "a secret"),
        ("serve", "KURA_DATABASE_TOKENS_FILE", "/nowhere/a-secret"),
    ],
)
def test_a_wrong_setting_ends_the_command_by_its_name(
    tmp_path: Path, key: Key, command: str, variable: str, value: str
):
    environ = reading_from(tmp_path, "notes=https://x.example", key) | {variable: value}
    ran = subprocess.run(
        [sys.executable, "-m", "kura", command],
        env=environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0
    assert variable in ran.stderr
    assert "secret" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
