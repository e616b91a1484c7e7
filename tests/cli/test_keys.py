"""`kura keys`, as a person uses it, and what a server then makes of the keys."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kura.access.credentials import choose_gate
from kura.chosen import ring_of
from kura.cli.root import kura
from kura.library.library import Library
from kura.serve.app import build_app
from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog
from kura.store.keys import Key
from tests.serve.knowledge import fill, open_library
from tests.serve.running import asked


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


def served(library: Library, settings: Settings) -> Callable[[str, str | None], int]:
    """The status that a server with these settings answers with, to a path and a key."""
    ring = ring_of(settings, Catalog(settings.data_dir), None)
    gate = choose_gate(key_hash=None, public=False, loopback=True, tenant=None, user=None, ring=ring)
    app = build_app(library, gate, version="0")

    def status(path: str, key: str | None) -> int:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return asked(app, "GET", path, headers=headers).status_code

    return status
