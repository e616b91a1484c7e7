import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kura.errors import RemoteError, TokenRefused, Unreachable
from kura.store.address import Patience
from kura.store.remote import open_remote
from local.sqld import Key, libsql_server

QUICK = Patience(pause=0.0)


@contextmanager
def started(folder: Path, *flags: str) -> Generator[tuple["subprocess.Popen[str]", str]]:
    """The command, and the URL that it says it listens on."""
    command = [sys.executable, "-m", "local.sqld", str(folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on http://127.0.0.1:")
            yield process, said.split()[-1]
        finally:
            process.send_signal(signal.SIGINT)  # nothing where it has ended
            process.communicate(timeout=30)


def test_the_command_says_where_it_listens_and_needs_no_token(tmp_path: Path):
    with started(tmp_path, "--port", "0") as (_, url), closing(open_remote(url)) as connection:
        connection.run("create table t (x)")
        assert connection.rows("select * from t") == []


def test_the_port_is_the_one_that_was_asked_for(tmp_path: Path):
    with libsql_server(tmp_path / "first") as server:
        port = server.url.rpartition(":")[2]
    with started(tmp_path / "second", "--port", port) as (_, url):
        assert url == f"http://127.0.0.1:{port}"


def test_with_auth_it_prints_one_token_to_publish_and_one_to_read(tmp_path: Path):
    with started(tmp_path, "--port", "0", "--auth") as (process, url):
        assert process.stdout is not None
        what, to_publish = process.stdout.readline().rsplit(maxsplit=1)
        assert what == "to publish"
        what, to_read = process.stdout.readline().rsplit(maxsplit=1)
        assert what == "to read"
        with (
            closing(open_remote(url, lambda: to_publish)) as publishing,
            closing(open_remote(url, lambda: to_read)) as reading,
            closing(open_remote(url)) as anybody,
        ):
            publishing.run("create table t (x)")
            assert reading.rows("select * from t") == []
            with pytest.raises(TokenRefused):
                reading.run("insert into t values (1)")
            with pytest.raises(TokenRefused):
                anybody.rows("select * from t")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "terminate"])
def test_when_it_is_ended_the_server_ends_too_and_what_was_written_stays(tmp_path: Path, end: signal.Signals):
    with started(tmp_path, "--port", "0") as (process, url), closing(open_remote(url, patience=QUICK)) as connection:
        connection.run("create table t (x)")
        process.send_signal(end)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        with pytest.raises(Unreachable):
            connection.rows("select * from t")
    with started(tmp_path, "--port", "0") as (_, url), closing(open_remote(url)) as connection:
        assert connection.rows("select * from t") == []


def test_where_the_port_is_taken_it_says_so(tmp_path: Path):
    with libsql_server(tmp_path / "first") as server:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, "-m", "local.sqld", str(tmp_path / "second"), "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("the server cannot be started: ")
    assert "Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_of_several_databases_adds_and_removes_them(tmp_path: Path):
    with libsql_server(tmp_path, several=True) as server:
        assert server.add("notes") == server.url.replace("127.0.0.1", "notes.localhost")
        # By its address this server has the one that is called as the address begins.
        server.add("127")
        with closing(open_remote(server.url)) as connection:
            connection.run("create table t (x)")
            server.remove("127")
            with pytest.raises(RemoteError, match="no such database"):
                connection.rows("select * from t")
            server.add("127")
            assert connection.rows("select name from sqlite_schema") == []


def test_a_server_of_one_database_adds_none(tmp_path: Path):
    with libsql_server(tmp_path) as server, pytest.raises(ValueError, match="several=True"):
        server.add("notes")


def test_the_end_of_the_context_is_the_end_of_the_server(tmp_path: Path):
    with pytest.raises(LookupError), libsql_server(tmp_path) as server:
        raise LookupError
    assert server.process.returncode == 0
    with closing(open_remote(server.url, patience=QUICK)) as connection, pytest.raises(Unreachable):
        connection.one("select 1")


def test_a_key_takes_its_own_tokens_for_as_long_as_they_say(tmp_path: Path):
    key = Key()
    tokens = {"good": key.token(), "over": key.token(seconds=-3600), "other": Key().token()}
    with libsql_server(tmp_path, jwt_key=key.public) as server:
        for name, token in tokens.items():
            with closing(open_remote(server.url, lambda token=token: token)) as connection:
                if name == "good":
                    assert connection.one("select 1") == (1,)
                else:
                    with pytest.raises(TokenRefused):
                        connection.one("select 1")


UNPACKING = """
import os, subprocess, sys
from local import sqld
unpack = sqld._unpack
def counted(scratch):
    print("unpacked", flush=True)
    unpack(scratch)
sqld._unpack = counted
program = sqld.binary()
assert os.access(program, os.X_OK)
subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
"""


def test_two_processes_that_need_the_program_at_once_unpack_it_once(tmp_path: Path, environment: Mapping[str, str]):
    mine = {**environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen([sys.executable, "-c", UNPACKING], env=mine, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(said) == ["", "unpacked\n"]
    left = [path.name for path in (tmp_path / "cache" / "kura" / "sqld").iterdir()]
    assert sorted(name for name in left if name != "lock") == [name for name in left if name.startswith("sqld-")]
