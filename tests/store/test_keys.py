"""API keys in a catalog: in a file here, or in a database on a server."""

import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import pytest

from kura.access.keys import hash_key, make_key
from kura.errors import StoreError
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere, enter
from kura.store.engine import Connection
from kura.store.keys import KEYS_TABLE, Key, add_key, keys_of, replace_key, revoke_key
from kura.store.tokens import Tokens
from kura.types import READING, SCOPES
from local.sqld import Key as Signer
from tests.store.places import Place, on_a_server

KEYS = [
    Key("aaaaaaaa", "a" * 64, "plain", created_at="2026-01-01T00:00:00Z"),
    Key(
        "bbbbbbbb", "b" * 64, "茶", "acme", "ann", frozenset({"notes", "茶 'x\"", ""}), READING,
        "2026-01-02T00:00:00Z", "2030-01-01T00:00:00Z",
    ),
    Key("cccccccc", "c" * 64, "", None, None, frozenset(), frozenset({"sql:write"}), "2026-01-03T00:00:00Z"),
]  # fmt: skip
AT = "2026-06-01T00:00:00Z"


@pytest.fixture
def connection(empty: Place) -> Generator[Connection]:
    with closing(empty.write()) as connection:
        yield connection


def test_a_catalog_that_never_had_a_key_has_none(connection: Connection):
    assert keys_of(connection) == []
    assert connection.rows("select name from sqlite_schema") == []


def test_keys_come_back_as_they_were_kept_oldest_first(connection: Connection):
    for key in reversed(KEYS):
        add_key(connection, key)
    assert keys_of(connection) == KEYS


def test_a_key_of_the_same_id_or_hash_is_not_kept(connection: Connection):
    add_key(connection, KEYS[0])
    for twin in (replace(KEYS[1], id=KEYS[0].id), replace(KEYS[1], hash=KEYS[0].hash)):
        with pytest.raises((StoreError, sqlite3.IntegrityError)):
            add_key(connection, twin)
    assert keys_of(connection) == KEYS[:1]


def test_a_revoked_key_stays_with_the_time_when_it_was_revoked_first(connection: Connection):
    for key in KEYS:
        add_key(connection, key)
    revoke_key(connection, "bbbbbbbb", AT)
    revoke_key(connection, "bbbbbbbb", "2026-06-02T00:00:00Z")
    revoke_key(connection, "nothing1", AT)
    assert keys_of(connection) == [KEYS[0], replace(KEYS[1], revoked_at=AT), KEYS[2]]


def test_a_key_is_kept_in_place_of_another_whose_end_is_kept_too(connection: Connection):
    add_key(connection, KEYS[0])
    add_key(connection, KEYS[1])
    replace_key(connection, KEYS[2], replace(KEYS[0], expires_at=AT, label="is not looked at"))
    assert keys_of(connection) == [replace(KEYS[0], expires_at=AT), KEYS[1], KEYS[2]]


def test_where_the_new_key_cannot_be_kept_the_old_one_does_not_end(connection: Connection):
    for key in KEYS:
        add_key(connection, key)
    for twin in (replace(KEYS[2], hash="d" * 64), replace(KEYS[2], id="dddddddd")):
        with pytest.raises((StoreError, sqlite3.IntegrityError)):
            replace_key(connection, twin, replace(KEYS[0], expires_at=AT))
    assert keys_of(connection) == KEYS


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("databases", value) for value in ("notes", "5", '{"notes": 1}', '"notes"')),
        *(("databases", value) for value in ("[1]", "[null]", '["notes"', b"\xff", "")),
        *(("scopes", value) for value in ("admin", "search,sql", "sql admin", "SQL", b"sql")),
    ],
)  # fmt: skip
def test_a_row_that_is_not_as_we_write_it_is_an_error_that_names_the_key(empty: Place, column: str, value: object):
    with closing(empty.write()) as connection:
        for key in KEYS:
            add_key(connection, key)
        connection.atomically([(f"update keys set {column} = ? where id = 'bbbbbbbb'", (value,))])
        with pytest.raises(StoreError, match='the key "bbbbbbbb" in the catalog is not as Kura writes it'):
            keys_of(connection)


def test_the_catalog_of_this_machine_has_keys_beside_its_databases(catalog: Catalog):
    assert catalog.keys() == []
    assert not catalog.data_dir.exists()
    entry = catalog.add("notes")
    assert catalog.keys() == []
    with catalog.writing() as connection:
        add_key(connection, KEYS[1])
    assert catalog.keys() == KEYS[1:2]
    assert catalog.entries() == [entry]


def test_a_catalog_can_begin_with_a_key(catalog: Catalog):
    with catalog.writing() as connection:
        add_key(connection, KEYS[0])
    assert catalog.entries() == []
    assert catalog.keys() == KEYS[:1]


def test_a_catalog_that_is_damaged_is_no_catalog_without_keys(catalog: Catalog):
    catalog.data_dir.mkdir()
    catalog.file.write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(StoreError, match=r"catalog\.db in the data directory") as refused:
        catalog.keys()
    assert str(catalog.data_dir) not in str(refused.value)
    with pytest.raises(StoreError, match=r"catalog\.db"), catalog.writing():
        pass


def test_a_strange_row_is_said_to_be_the_catalogs(catalog: Catalog):
    with catalog.writing() as connection:
        add_key(connection, KEYS[0])
        connection.run("update keys set scopes = 'admin'")
    with pytest.raises(StoreError, match=r'catalog\.db in the data directory\): the key "aaaaaaaa"'):
        catalog.keys()


def test_no_file_holds_the_text_of_a_key_or_its_secret(catalog: Catalog):
    made = [
        make_key(f"label {n}", tenant="acme", user=None, databases=None, scopes=SCOPES, expires_at=None)
        for n in range(3)
    ]
    with catalog.writing() as connection:
        add_key(connection, made[0][1])
        replace_key(connection, made[1][1], made[0][1])
        add_key(connection, made[2][1])
        revoke_key(connection, made[2][1].id, AT)
        files = [file.read_bytes() for file in catalog.data_dir.iterdir() if file.is_file()]
    files += [catalog.file.read_bytes()]
    for text, key in made:
        assert any(hash_key(text).encode() in held for held in files)
        assert any(key.id.encode() in held for held in files)
        assert not any(text.rpartition("_")[2].encode() in held or b"kura_" + key.id.encode() in held for held in files)


@on_a_server
def test_the_catalog_on_a_server_has_keys_beside_its_databases(empty: Place, url: str, key: Signer, catalog: Catalog):
    elsewhere = Elsewhere([], Tokens(f"catalog={key.token(read_only=True)}"), catalog=url)
    with closing(elsewhere), closing(empty.write()) as connection:
        assert elsewhere.keys() == []
        entry = replace(catalog.add("notes"), file="")
        enter(connection, entry, "https://notes.example")
        assert elsewhere.keys() == []
        for kept in KEYS:
            add_key(connection, kept)
        assert elsewhere.keys() == KEYS
        assert [each.name for each in elsewhere.entries()] == ["notes"]


def test_without_a_catalog_on_a_server_there_are_no_keys_there():
    assert Elsewhere([], Tokens()).keys() == []


def test_a_catalog_on_a_server_that_cannot_be_read_is_an_error():
    with closing(Elsewhere([], Tokens(), catalog="http://127.0.0.1:9")) as elsewhere, pytest.raises(StoreError):
        elsewhere.keys()


def test_the_databases_of_a_key_are_json_and_its_scopes_words(connection: Connection):
    connection.atomically([(KEYS_TABLE, ())])
    add_key(connection, KEYS[1])
    databases, scopes = connection.one("select databases, scopes from keys")
    assert json.loads(databases) == ["", "notes", "茶 'x\""]
    assert scopes == "search sql"
