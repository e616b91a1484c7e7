"""push, pull, rollback, backup and remove --remote, as a person runs them against a server."""

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from kura.cli import main
from kura.store.lock import indexing
from local.sqld import Key, Server, libsql_server

Kura = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kura(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Kura:
    """Runs a command in this process, which is fifteen times as quick as in one of its own."""
    for name in list(os.environ):
        if name.startswith("KURA_"):
            monkeypatch.delenv(name)

    def run(*arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in (environment | extra).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["kura", *arguments])
            with pytest.raises(SystemExit) as end:
                main()
        return subprocess.CompletedProcess(arguments, int(end.value.code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def server(tmp_path: Path, key: Key) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=key.public) as running:
        yield running


@pytest.fixture
def there(server: Server, key: Key) -> dict[str, str]:
    """The settings with which `notes` is on the server."""
    return {"KURA_DATABASES": f"notes={server.url}", "KURA_DATABASE_TOKENS": f"notes={key.token()}"}


@pytest.fixture
def elsewhere(kura: Kura, tmp_path: Path) -> Kura:
    """The same commands on a second machine, which has a data directory of its own."""

    def run(*arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        return kura(*arguments, KURA_DATA_DIR=str(tmp_path / "elsewhere"), **extra)

    return run


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done
    return done.stdout


def one_line(done: "subprocess.CompletedProcess[str]", tmp_path: Path, code: int = 1) -> str:
    """The error, which names no token and no path of this machine."""
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.startswith("kura: ")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) not in done.stderr
    assert "ey" + "J" not in done.stderr  # as every JWT begins
    return done.stderr


def indexed(kura: Kura, docs: Path) -> None:
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))


def found(kura: Kura, words: str) -> list[str]:
    return [group["source"] for group in json.loads(ok(kura("search", "notes", words, "--json")))["keyword"]]


def test_what_is_pushed_is_pulled_searched_and_pushed_again_elsewhere(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str]
):
    indexed(kura, docs)
    told = ok(kura("push", "notes", **there))
    assert "passages: 2 to send, 0 to remove" in told
    assert told.endswith(f'published "notes" to {there["KURA_DATABASES"].removeprefix("notes=")}\n')
    assert "nothing to send" in ok(kura("push", "notes", **there))
    assert 'fetched "notes"' in ok(elsewhere("pull", "notes", **there))
    assert found(elsewhere, "fifty minutes") == ["tides.md"]
    assert "nothing to send" in ok(elsewhere("push", "notes", **there))

    elsewhere_docs = tmp_path / "clone" / "docs"
    elsewhere_docs.mkdir(parents=True)
    for file in docs.iterdir():
        (elsewhere_docs / file.name).write_bytes(file.read_bytes())
    told = ok(elsewhere("index", "notes"))
    assert told.startswith('"docs" was indexed elsewhere')
    assert str(docs) not in told
    (elsewhere_docs / "new.md").write_text("# Harbour\n\nThe harbour master keeps the log.\n", encoding="utf-8")
    assert "1 added, 0 updated, 0 removed, 2 unchanged" in ok(elsewhere("index", "notes", str(elsewhere_docs)))
    told = ok(elsewhere("push", "notes", **there))
    assert "sources: 1 to send, 0 to remove; passages: 1 to send, 0 to remove; vectors: 1 to send" in told

    assert "does not descend" in kura("push", "notes", **there).stderr
    ok(kura("pull", "notes", **there))
    assert found(kura, "harbour master") == ["new.md"]


def test_a_dry_run_sends_nothing(kura: Kura, elsewhere: Kura, docs: Path, there: dict[str, str]):
    indexed(kura, docs)
    assert "passages: 2 to send" in ok(kura("push", "notes", "--dry-run", **there))
    assert "nothing is published there" in elsewhere("pull", "notes", **there).stderr


def test_an_address_is_given_once_and_then_remembered(kura: Kura, docs: Path, tmp_path: Path, server: Server, key: Key):
    indexed(kura, docs)
    unknown = one_line(kura("push", "notes"), tmp_path)
    assert 'it is not known where "notes" is published' in unknown
    ok(kura("push", "notes", "--to", server.url, KURA_DATABASE_TOKENS=key.token()))
    file = tmp_path / "tokens"
    file.write_text(f"notes={key.token()}\n", encoding="ascii")
    assert "nothing to send" in ok(kura("push", "notes", KURA_DATABASE_TOKENS_FILE=str(file)))


def test_a_refused_token_is_named_as_such_and_not_shown(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str], key: Key
):
    indexed(kura, docs)
    ok(kura("push", "notes", **there))
    (docs / "second.md").write_text("A second push.\n", encoding="utf-8")
    ok(kura("index", "notes"))
    ok(kura("push", "notes", **there))
    (docs / "more.md").write_text("More of it.\n", encoding="utf-8")
    ok(kura("index", "notes"))
    for token in (key.token(read_only=True), Key().token(), "nonsense"):
        wrong = there | {"KURA_DATABASE_TOKENS": token}
        for command in (("push", "notes"), ("rollback", "notes"), ("remove", "notes", "--remote", "--yes")):
            done = kura(*command, **wrong)
            assert done.returncode == 1, done
            assert 'database "notes"' in done.stderr
            assert "token" in done.stderr
            assert token not in done.stderr
            assert str(tmp_path) not in done.stderr
    reading = there | {"KURA_DATABASE_TOKENS": key.token(read_only=True)}
    ok(elsewhere("pull", "notes", **reading))
    assert "passages: 1 to send" in ok(kura("push", "notes", "--dry-run", **reading))


def test_a_server_that_is_not_there_is_said_to_be_so(kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path):
    indexed(kura, docs)
    away = {"KURA_DATABASES": "notes=http://127.0.0.1:9"}
    assert 'database "notes"' in one_line(kura("push", "notes", **away), tmp_path)
    assert 'database "notes"' in one_line(elsewhere("pull", "notes", **away), tmp_path)
    assert json.loads(ok(elsewhere("list", "--json"))) == []  # no new name behind


def test_what_was_not_published_is_discarded_by_a_pull_with_force_alone(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str]
):
    indexed(kura, docs)
    ok(kura("push", "notes", **there))
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.md").write_text("My own notes.\n", encoding="utf-8")
    ok(elsewhere("add", "notes"))
    ok(elsewhere("index", "notes", str(other)))
    assert "holds what was not published; push it, or add --force" in one_line(
        elsewhere("pull", "notes", **there), tmp_path
    )
    assert found(elsewhere, "own notes") == ["mine.md"]
    assert "does not descend" in one_line(elsewhere("push", "notes", **there), tmp_path)
    ok(elsewhere("pull", "notes", "--force", **there))
    assert found(elsewhere, "own notes") == []
    assert found(elsewhere, "fifty minutes") == ["tides.md"]


def test_a_rollback_brings_back_what_readers_saw_before(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str]
):
    indexed(kura, docs)
    ok(kura("push", "notes", **there))
    (docs / "wrong.md").write_text("Something wrong.\n", encoding="utf-8")
    ok(kura("index", "notes"))
    ok(kura("push", "notes", **there))
    assert 'readers of "notes" see the push of' in ok(kura("rollback", "notes", **there))
    ok(elsewhere("pull", "notes", **there))
    assert found(elsewhere, "something wrong") == []
    assert "one step back is all that it keeps" in one_line(kura("rollback", "notes", **there), tmp_path)


def test_what_is_published_is_removed_and_the_database_here_stays(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str]
):
    indexed(kura, docs)
    ok(kura("push", "notes", **there))
    assert 'removed what was published of "notes"' in ok(kura("remove", "notes", "--remote", "--yes", **there))
    assert found(kura, "fifty minutes") == ["tides.md"]
    assert "nothing is published there" in one_line(elsewhere("pull", "notes", **there), tmp_path)
    ok(kura("push", "notes", **there))
    ok(elsewhere("pull", "notes", **there))


def test_a_backup_is_a_database_that_answers_alike(kura: Kura, docs: Path, tmp_path: Path, environment: dict[str, str]):
    indexed(kura, docs)
    file = tmp_path / "copies" / "notes.db"
    file.parent.mkdir()
    for number in range(40):
        (docs / f"{number}.md").write_text(f"# Page {number}\n\nThe tide of day {number}.\n", encoding="utf-8")
    indexing = subprocess.Popen(
        [sys.executable, "-m", "kura", "index", "notes"], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        ok(kura("backup", "notes", str(file)))
    finally:
        assert indexing.wait(60) == 0
    assert [each.name for each in file.parent.iterdir()] == ["notes.db"]
    copy = sqlite3.connect(file)
    try:
        assert copy.execute("pragma integrity_check").fetchall() == [("ok",)]
        copy.execute("insert into chunks_fts (chunks_fts, rank) values ('integrity-check', 1)")
        words = "select count(*) from chunks_fts where chunks_fts match 'water'"
        assert copy.execute(words).fetchone() == (1,)
        copy.rollback()
    finally:
        copy.close()
    before = file.read_bytes()
    refused = kura("backup", "notes", str(file))
    assert refused.returncode == 1
    assert "is there already" in refused.stderr
    assert file.read_bytes() == before
    assert kura("backup", "notes", str(tmp_path / "nowhere" / "notes.db")).returncode == 1
    assert [each.name for each in file.parent.iterdir()] == ["notes.db"]


def test_whom_a_database_belongs_to_goes_with_it(
    kura: Kura, elsewhere: Kura, docs: Path, tmp_path: Path, there: dict[str, str]
):
    ok(kura("add", "notes", "--tenant", "acme"))
    ok(kura("index", "notes", str(docs)))
    ok(kura("push", "notes", **there))
    refused = one_line(elsewhere("pull", "notes", "--tenant", "globex", **there), tmp_path)
    assert 'what is published belongs to tenant "acme", with --tenant it would belong to tenant "globex"' in refused
    assert ok(elsewhere("list")) == ""
    ok(elsewhere("pull", "notes", **there))
    assert json.loads(ok(elsewhere("list", "--json")))[0]["tenant"] == "acme"
    ok(elsewhere("remove", "notes", "--yes"))
    ok(elsewhere("add", "notes"))
    refused = one_line(elsewhere("pull", "notes", "--force", **there), tmp_path)
    assert 'what is published belongs to tenant "acme", the database here to nobody' in refused


def test_a_push_does_not_wait_for_an_indexing_run(kura: Kura, docs: Path, tmp_path: Path, there: dict[str, str]):
    indexed(kura, docs)
    [path] = (tmp_path / "data" / "databases").glob("*.db")
    with indexing(path, patience=0):
        assert "published" in ok(kura("push", "notes", **there))


def test_a_copy_is_another_database_to_servers(kura: Kura, docs: Path, tmp_path: Path, there: dict[str, str]):
    indexed(kura, docs)
    ok(kura("push", "notes", **there))
    ok(kura("backup", "notes", str(tmp_path / "copy.db")))
    copy = sqlite3.connect(tmp_path / "copy.db")
    assert copy.execute("select count(*) from publisher").fetchone() == (0,)
    assert copy.execute("select count(*) from publications").fetchone() == (1,)
    copy.close()
