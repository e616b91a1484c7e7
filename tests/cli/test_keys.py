"""`kura keys`, as a person uses it, and what a server then makes of the keys."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result

from kura.access.credentials import choose_gate
from kura.access.keys import make_key
from kura.chosen import elsewhere_of, ring_of
from kura.cli.root import kura
from kura.errors import KuraError
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere
from kura.store.keys import Key
from kura.types import READING
from local.sqld import Key as Signer
from local.sqld import Server, libsql_server
from tests.serve.knowledge import fill, open_library
from tests.serve.running import JSON, asked, call


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KURA_DATA_DIR", str(tmp_path))
    return tmp_path


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(kura, ["keys", *arguments])


def made(*options: str) -> tuple[str, str]:
    """A new key and its id."""
    result = ran("create", "agent", *options)
    assert result.exit_code == 0, result.output
    text = result.stdout.strip()
    found = re.fullmatch(r"kura_([a-z0-9]{8})_[A-Za-z0-9]{43}", text)
    assert found, text
    return text, found[1]


def kept(data_dir: Path) -> dict[str, Key]:
    return {key.id: key for key in Catalog(data_dir).keys()}  # noqa: SIM118 - no dictionary


def test_a_key_is_shown_once_and_only_its_hash_is_kept(data_dir: Path):
    text, name = made("--tenant", "acme", "--user", "ann", "--db", "notes", "--scope", "search")
    key = kept(data_dir)[name]
    assert (key.label, key.tenant, key.user, key.databases, key.scopes) == (
        "agent", "acme", "ann", frozenset({"notes"}), frozenset({"search"}),
    )  # fmt: skip
    assert text not in ran("list").output + ran("list", "--json").output + ran("export").output
    assert key.hash not in ran("list").output + ran("list", "--json").output
    secret = text.rpartition("_")[2].encode()
    assert not any(secret in file.read_bytes() for file in data_dir.rglob("*") if file.is_file())


def test_a_key_ends_after_ninety_days_unless_something_else_is_said(data_dir: Path):
    usual, never, dated = made()[1], made("--expires", "never")[1], made("--expires", "2090-01-31")[1]
    ends = datetime.fromisoformat(kept(data_dir)[usual].expires_at or "")
    assert abs(ends - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)
    assert kept(data_dir)[never].expires_at is None
    assert kept(data_dir)[dated].expires_at == "2090-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", ""], "LABEL must be text"),
        (["create", "a\nb"], "LABEL must be text"),
        (["create", "x", "--tenant", " "], "--tenant must be text"),
        (["create", "x", "--expires", "soon"], "such as 90d"),
        (["create", "x", "--expires", "2001-01-01"], "is past"),
        (["create", "x", "--scope", "everything"], "sql:write"),
        (["create", "x", "--catalog"], "KURA_CATALOG"),
        (["revoke", "nothing"], "no key of that id"),
        (["rotate", "nothing"], "no key of that id"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(data_dir: Path, arguments: list[str], said: str):
    result = ran(*arguments)
    assert result.exit_code != 0
    assert said in f"{result.output}{result.exception}"
    assert kept(data_dir) == {}


def test_a_key_is_replaced_by_one_that_opens_the_same(data_dir: Path):
    _, old = made("--tenant", "acme", "--db", "notes")
    result = ran("rotate", old, "--overlap", "1h")
    assert result.exit_code == 0
    new = result.stdout.strip().split("_")[1]
    keys = kept(data_dir)
    assert (keys[new].tenant, keys[new].databases, keys[new].scopes) == (
        keys[old].tenant, keys[old].databases, keys[old].scopes,
    )  # fmt: skip
    ends = datetime.fromisoformat(keys[old].expires_at or "")
    assert abs(ends - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
    assert ran("rotate", old, "--overlap", "0").exit_code == 0
    assert "not valid any more" in str(ran("rotate", old).exception)


def test_a_server_takes_a_key_for_what_it_opens_until_it_is_revoked(data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kura.access.keys.LOOK_AGAIN_SECONDS", 0.0)
    fill(data_dir)
    settings = read_settings(data_dir=data_dir)
    with closing(open_library(data_dir)) as library:
        library.start(within=10)
        status = served(library, settings)
        # Without any key the person at this machine is let in.
        assert status("/api/list", None) == 200
        acme, name = made("--tenant", "acme", "--db", "acme-plans", "--scope", "search")
        sql, _ = made("--scope", "sql")
        assert status("/api/list", None) == 401
        assert status("/api/search?db=acme-plans&q=plan", acme) == 200
        assert status("/api/search?db=notes&q=plan", acme) == 404
        assert status("/api/search?db=globex-plans&q=plan", acme) == 404
        assert status("/api/search?db=notes&q=plan", sql) == 403
        assert status("/api/list", acme[:-1] + ("a" if acme[-1] != "a" else "b")) == 401
        assert ran("revoke", name).exit_code == 0
        assert status("/api/search?db=acme-plans&q=plan", acme) == 401


@pytest.mark.usefixtures("data_dir")
def test_keys_from_a_setting_open_the_same(tmp_path_factory: pytest.TempPathFactory):
    text, _ = made("--tenant", "acme", "--db", "acme-plans")
    revoked, name = made()
    ran("revoke", name)
    exported = ran("export").output
    assert len(json.loads(exported)) == 1
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    fill(elsewhere)
    file = elsewhere / "keys.json"
    file.write_text("[]")
    with closing(open_library(elsewhere)) as library:
        library.start(within=10)
        by_value = served(library, read_settings(data_dir=elsewhere, keys=exported))
        by_file = served(library, read_settings(data_dir=elsewhere, keys_file=file))
        # Whoever names a file of keys wants one to be asked for, even while there is none.
        assert by_file("/api/list", None) == 401
        # A secret that is replaced is read again, without a new start.
        file.write_text(exported)
        for status in (by_value, by_file):
            assert status("/api/search?db=acme-plans&q=plan", text) == 200
            assert status("/api/list", revoked) == 401
            assert status("/api/list", None) == 401


def test_the_list_shows_what_each_key_opens_and_whether_it_is_valid(data_dir: Path):
    for options in (["--tenant", "acme", "--user", "ann", "--db", "b", "--db", "a"], ["--expires", "never"], []):
        made(*options)
    revoked, expired = made()[1], made()[1]
    ran("revoke", revoked)
    with Catalog(data_dir).writing() as connection:
        connection.run("update keys set expires_at = '2001-01-01T00:00:00Z' where id = ?", (expired,))
    listed = json.loads(ran("list", "--json").stdout)
    assert {each["id"] for each in listed} == kept(data_dir).keys()
    by_id = {each["id"]: each for each in listed}
    assert {name for name, each in by_id.items() if not each["valid"]} == {revoked, expired}
    assert by_id[revoked]["revoked_at"] is not None
    [limited] = [each for each in listed if each["tenant"]]
    assert (limited["user"], limited["databases"], limited["scopes"]) == ("ann", ["a", "b"], ["search", "sql"])
    lines = dict(line.split("\t", 1) for line in ran("list").stdout.splitlines())
    assert lines.keys() == by_id.keys()
    assert "revoked 2" in lines[revoked]
    assert "expired 2001-01-01T00:00:00Z" in lines[expired]
    assert "tenant acme\tuser ann\tonly a, b\tsearch sql" in lines[limited["id"]]
    assert sum("never expires" in line for line in lines.values()) == 1


def test_before_the_first_key_the_list_is_empty_and_says_how_to_make_one(data_dir: Path):
    assert ran("list").stdout == ""
    assert "kura keys create" in ran("list").stderr
    assert json.loads(ran("list", "--json").stdout) == json.loads(ran("export").stdout) == []
    assert not (data_dir / "catalog.db").exists()


def test_a_key_for_scripts_is_one_json_document(data_dir: Path):
    for command in (["create", "ci", "--json"], ["rotate", "", "--json"]):
        arguments = [next(iter(kept(data_dir))) if argument == "" else argument for argument in command]
        shown = json.loads(ran(*arguments).stdout)
        text = shown.pop("key")
        assert shown["id"] == text.split("_")[1]
        assert shown in json.loads(ran("list", "--json").stdout)
        assert kept(data_dir)[shown["id"]].hash not in json.dumps(shown)


@pytest.mark.usefixtures("data_dir")
def test_a_whole_key_in_place_of_its_id_is_not_repeated():
    text, name = made()
    for command in ("revoke", "rotate"):
        said = str(ran(command, text).exception)
        assert f'known: "{name}" (agent)' in said
        assert text not in said


def test_a_bad_overlap_changes_nothing(data_dir: Path):
    _, name = made()
    before = kept(data_dir)
    for overlap in ("soon", "0d", "-1h", "1w"):
        assert "24h or 7d" in str(ran("rotate", name, "--overlap", overlap).exception)
    assert kept(data_dir) == before
    ran("revoke", name)
    assert "not valid any more" in str(ran("rotate", name).exception)


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture(scope="module")
def server(signer: Signer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    with libsql_server(tmp_path_factory.mktemp("server"), jwt_key=signer.public) as running:
        yield running


def test_keys_in_the_catalog_on_a_server_are_for_all_who_read_it(
    data_dir: Path, server: Server, signer: Signer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KURA_CATALOG", server.url)
    monkeypatch.setenv("KURA_DATABASE_TOKENS", f"catalog={signer.token()}")
    monkeypatch.setattr("kura.access.keys.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("kura.access.keys.SOONEST_SECONDS", 0.0)
    fill(data_dir)
    elsewhere = elsewhere_of(read_settings())
    assert elsewhere is not None
    with closing(open_library(data_dir)) as library, closing(elsewhere):
        library.start(within=10)
        status = served(library, read_settings(), elsewhere)
        assert json.loads(ran("list", "--catalog", "--json").stdout) == []
        assert status("/api/list", None) == 200
        text, name = made("--catalog", "--tenant", "acme")
        assert kept(data_dir) == {}
        assert [each["id"] for each in json.loads(ran("list", "--catalog", "--json").stdout)] == [name]
        assert text not in ran("list", "--catalog").output + ran("export", "--catalog").output
        assert [status("/api/list", key) for key in (None, text)] == [401, 200]
        newer = ran("rotate", name, "--catalog").stdout.strip()
        assert [status("/api/search?db=acme-plans&q=plan", key) for key in (text, newer)] == [200, 200]
        assert len(json.loads(ran("export", "--catalog").stdout)) == 2
        assert "no key of that id" in str(ran("revoke", name).exception)
        assert ran("revoke", name, "--catalog").exit_code == 0
        assert [status("/api/list", key) for key in (None, text, newer)] == [401, 401, 200]


@pytest.mark.usefixtures("data_dir")
def test_a_key_that_a_catalog_does_not_take_is_not_shown_and_no_token_is_named(
    server: Server, signer: Signer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KURA_CATALOG", server.url)
    for token in (signer.token(read_only=True), Signer().token()):
        monkeypatch.setenv("KURA_DATABASE_TOKENS", token)
        result = ran("create", "agent", "--catalog")
        assert isinstance(result.exception, KuraError)
        assert token not in f"{result.exception}{result.output}"
        assert "kura_" not in result.output


@pytest.fixture
def address(environment: dict[str, str], data_dir: Path) -> Generator[str]:
    """Where `kura serve` listens, in a process of its own."""
    fill(data_dir)
    command = [sys.executable, "-m", "kura", "serve", "--port", "0"]
    where = environment | {"KURA_DATA_DIR": str(data_dir)}
    with subprocess.Popen(command, env=where, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[1].removesuffix("/mcp")
        finally:
            process.kill()


def test_a_process_that_serves_takes_a_new_key_and_refuses_a_revoked_one(address: str):
    with httpx2.Client(base_url=address, verify=False) as client:

        def asking(path: str, key: str | None) -> httpx2.Response:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            if path == "/mcp":
                return client.post(path, json=call("query", db="notes", sql="select 1"), headers=JSON | headers)
            return client.get(path, headers=headers)

        def becomes(status: int, key: str) -> bool:
            """Whether it does, soon: an unknown key has the catalog read again, though only once a second."""
            stranger, _ = make_key("", tenant=None, user=None, databases=None, scopes=READING, expires_at=None)
            until = time.monotonic() + 10
            while asking("/api/list", key).status_code != status:
                if time.monotonic() > until:
                    return False
                assert asking("/api/list", stranger).status_code in {200, 401}
                time.sleep(0.1)
            return True

        assert asking("/api/list", None).status_code == 200
        text, name = made("--tenant", "acme", "--db", "notes", "--scope", "search")
        assert becomes(401, make_key("", tenant=None, user=None, databases=None, scopes=READING, expires_at=None)[0])
        assert asking("/api/list", None).status_code == 401
        assert asking("/api/list", text).json()["loaded"] == ["notes"]
        assert asking("/api/search?db=acme-plans&q=plan", text).status_code == 404
        lacking = asking("/mcp", text)
        assert (lacking.status_code, lacking.json()["code"]) == (403, "insufficient_scope")
        assert ran("revoke", name).exit_code == 0
        assert becomes(401, text)
        assert asking("/mcp", text).status_code == 401


def served(
    library: Library, settings: Settings, elsewhere: Elsewhere | None = None
) -> Callable[[str, str | None], int]:
    """The status that a server with these settings answers with, to a path and a key."""
    ring = ring_of(settings, Catalog(settings.data_dir), elsewhere)
    gate = choose_gate(key_hash=None, public=False, loopback=True, tenant=None, user=None, ring=ring)
    app = build_app(library, gate, version="0")

    def status(path: str, key: str | None) -> int:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return asked(app, "GET", path, headers=headers).status_code

    return status


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("hash", b"x"), ("expires_at", b"5"), ("expires_at", "soon"), ("expires_at", "5"), ("label", b"x"),
        ("tenant", b"x"), ("created_at", b"x"), ("databases", "[" * 100_000), ("scopes", "admin"),
    ],
)  # fmt: skip
def test_a_row_that_nobody_of_ours_wrote_is_named_and_can_be_revoked(data_dir: Path, column: str, value: str | bytes):
    _, good = made()
    _, strange = made()
    with Catalog(data_dir).writing() as connection:
        connection.atomically([(f"update keys set {column} = ? where id = ?", (value, strange))])
    assert f'the key "{strange}" in the catalog is not as Kura writes it' in str(ran("list").exception)
    assert ran("revoke", strange).exit_code == 0
    listed = ran("list", "--json")
    assert listed.exit_code == 0
    assert {key["id"]: key["valid"] for key in json.loads(listed.stdout)} == {good: True, strange: False}


def test_the_name_of_a_database_is_composed_as_the_catalog_does_it(data_dir: Path):
    name = made("--db", "cafe\u0301")[1]
    assert kept(data_dir)[name].databases == frozenset({"caf\u00e9"})
    assert ran("create", "x", "--db", "").exit_code != 0
