import multiprocessing
import sqlite3
import unicodedata
from pathlib import Path

import pytest

from kura.errors import ArgumentError, Busy, Damaged, StoreError, UnknownDatabase, WrongSchema
from kura.store.catalog import Catalog, legal_name
from kura.store.lock import indexing
from kura.store.migrations import now, require_readable
from kura.store.sources import add_root, state
from kura.text.tokens import TOKENIZER_VERSION
from tests.store.writing import reading, writing


@pytest.mark.parametrize(
    "name",
    [
        "notes",
        "n",
        "0",
        "a.b-c_d",
        "x" * 64,
        "知识库",
        "заметки",
        "हिन्दी",
        "ข้อมูล",
        "Ärger",
        "no spaces".replace(" ", "_"),
    ],
)
def test_a_word_in_any_script_can_be_a_name(catalog: Catalog, name: str):
    entry = catalog.add(name)
    assert entry.name == name
    assert catalog.find(name) == entry
    assert catalog.inbox(entry).is_dir()
    with reading(catalog, entry) as connection:
        require_readable(connection)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "-a",
        ".a",
        "..",
        "../a",
        "a/b",
        "a\\b",
        "a\0b",
        "x" * 65,
        "a\n",
        "a:b",
        "\ud800",
        "😀",
        "a*",
        "_a",
        "ा",
    ],
    ids=ascii,
)
def test_what_is_no_word_cannot_be_a_name(catalog: Catalog, name: str):
    with pytest.raises(ArgumentError, match="cannot be a database name") as caught:
        catalog.add(name)
    str(caught.value).encode()
    assert not catalog.data_dir.exists()


def test_a_name_is_the_same_however_its_accents_are_typed(catalog: Catalog):
    entry = catalog.add(unicodedata.normalize("NFD", "café"))
    assert entry.name == unicodedata.normalize("NFC", "café")
    assert catalog.find(unicodedata.normalize("NFD", "café")) == entry
    with pytest.raises(ArgumentError, match="exists already"):
        catalog.add("café")


@pytest.mark.parametrize(("first", "second"), [("notes", "notes"), ("notes", "Notes"), ("straße", "STRASSE")])
def test_names_that_differ_in_case_alone_collide(catalog: Catalog, first: str, second: str):
    catalog.add(first)
    with pytest.raises(ArgumentError, match=f'"{first}" exists already'):
        catalog.add(second)
    assert [entry.name for entry in catalog.entries()] == [first]
    assert len(list((catalog.data_dir / "databases").glob("*.db"))) == 1


def test_a_new_database_says_what_it_is(catalog: Catalog):
    entry = catalog.add("notes", tenant="company-a")
    assert (entry.tenant, (entry.created_at or "") <= now()) == ("company-a", True)
    with reading(catalog, entry) as connection:
        known = state(connection)
    assert (known.tenant, known.created_at, known.tokenizer) == ("company-a", entry.created_at, TOKENIZER_VERSION)
    assert (known.version, known.generation, known.embedder, known.dimension) == (1, 1, None, None)


@pytest.mark.parametrize("tenant", ["", "  "])
def test_a_blank_tenant_is_refused(catalog: Catalog, tenant: str):
    with pytest.raises(ArgumentError, match="tenant"):
        catalog.add("notes", tenant=tenant)


def test_a_missing_data_directory_has_no_databases_and_is_not_made_by_looking(catalog: Catalog):
    assert catalog.entries() == []
    for change in (lambda: catalog.remove("notes"), lambda: catalog.rename("notes", "other")):
        with pytest.raises(UnknownDatabase):
            change()
    assert not catalog.data_dir.exists()


def test_entries_come_by_name(catalog: Catalog):
    for name in ("b", "c", "a"):
        catalog.add(name)
    assert [entry.name for entry in catalog.entries()] == ["a", "b", "c"]


def test_an_unknown_name_is_told_with_those_there_are(catalog: Catalog):
    catalog.add("notes")
    with pytest.raises(UnknownDatabase, match='"other" not exist; available: "notes"'):
        catalog.find("other")


def test_a_renamed_database_keeps_its_file_and_its_inbox(catalog: Catalog):
    entry = catalog.add("notes")
    (catalog.inbox(entry) / "a.md").write_text("# A")
    renamed = catalog.rename("notes", "journal")
    assert (renamed.file, renamed.created_at) == (entry.file, entry.created_at)
    assert [known.name for known in catalog.entries()] == ["journal"]
    assert catalog.inbox(renamed) == catalog.inbox(entry)
    assert (catalog.inbox(renamed) / "a.md").exists()


def test_what_lies_in_the_inbox_of_a_removed_or_renamed_database_never_turns_up_in_its_successor(catalog: Catalog):
    for leave in (lambda: catalog.remove("team"), lambda: catalog.rename("team", "elsewhere")):
        first = catalog.add("team", tenant="company-a")
        (catalog.inbox(first) / "salaries.md").touch()
        leave()
        second = catalog.add("team", tenant="company-b")
        assert list(catalog.inbox(second).iterdir()) == []
        catalog.remove("team")


def test_a_name_can_change_its_case(catalog: Catalog):
    catalog.add("notes")
    assert catalog.rename("notes", "Notes").name == "Notes"
    assert [entry.name for entry in catalog.entries()] == ["Notes"]


def test_renaming_to_its_own_name_changes_nothing(catalog: Catalog):
    entry = catalog.add("notes")
    assert catalog.rename("notes", "notes") == entry


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [("notes", "taken", ArgumentError), ("notes", "a b", ArgumentError), ("none", "b", UnknownDatabase)],
)
def test_a_rename_that_cannot_be_changes_nothing(catalog: Catalog, old: str, new: str, error: type[Exception]):
    catalog.add("notes")
    catalog.add("taken")
    before = catalog.entries()
    with pytest.raises(error):
        catalog.rename(old, new)
    assert catalog.entries() == before


def test_a_database_that_is_being_indexed_is_not_removed(catalog: Catalog):
    entry = catalog.add("notes")
    with indexing(catalog.path(entry), patience=0.0), pytest.raises(Busy, match="another process is indexing"):
        catalog.remove("notes")
    assert catalog.entries() == [entry]
    catalog.remove("notes")
    assert catalog.entries() == []


def test_removing_leaves_no_file_but_those_of_the_person(catalog: Catalog):
    first, second = catalog.add("first"), catalog.add("second")
    (catalog.inbox(second) / "mine.md").touch()
    for entry in (first, second):
        catalog.path(entry).with_suffix(".db.lock").touch()
        with writing(catalog, entry) as connection:
            add_root(connection, "/files", "files")
            catalog.remove(entry.name)
    assert catalog.entries() == []
    assert list((catalog.data_dir / "databases").iterdir()) == []
    assert list((catalog.data_dir / "inbox").rglob("*")) == [catalog.inbox(second), catalog.inbox(second) / "mine.md"]


def test_an_add_that_fails_on_the_way_leaves_nothing(catalog: Catalog):
    catalog.data_dir.mkdir()
    (catalog.data_dir / "inbox").touch()
    with pytest.raises(StoreError, match="data directory cannot be changed"):
        catalog.add("notes")
    assert catalog.entries() == []
    assert list((catalog.data_dir / "databases").iterdir()) == []


def test_a_data_directory_that_cannot_be_made_is_an_error_without_its_path(tmp_path: Path):
    (tmp_path / "data").touch()
    with pytest.raises(StoreError, match="data directory cannot be changed") as caught:
        Catalog(tmp_path / "data").add("notes")
    assert str(tmp_path) not in str(caught.value)


def test_a_catalog_that_is_no_database_is_called_damaged(catalog: Catalog):
    catalog.add("notes")
    catalog.file.write_bytes(b"junk " * 1000)
    for use in (catalog.entries, lambda: catalog.add("more")):
        with pytest.raises(Damaged, match="catalog of databases"):
            use()


@pytest.mark.parametrize("sql", ["create table theirs (x)", "create table databases (id integer)"])
def test_a_catalog_of_others_is_refused_and_untouched(catalog: Catalog, sql: str):
    catalog.data_dir.mkdir()
    raw = sqlite3.connect(catalog.file)
    raw.execute(sql)
    raw.commit()
    raw.close()
    before = catalog.file.read_bytes()
    for use in (catalog.entries, lambda: catalog.add("notes")):
        with pytest.raises(WrongSchema, match="catalog of databases"):
            use()
    assert catalog.file.read_bytes() == before


def test_an_empty_catalog_file_is_one_that_another_process_is_about_to_fill(catalog: Catalog):
    catalog.data_dir.mkdir()
    catalog.file.touch()
    assert catalog.entries() == []
    catalog.add("notes")
    assert [entry.name for entry in catalog.entries()] == ["notes"]


def test_legal_names_are_kept_composed():
    assert legal_name(unicodedata.normalize("NFD", "がぎ")) == unicodedata.normalize("NFC", "がぎ")


def add(data_dir: Path, own: str, outcome: "multiprocessing.Queue[str]") -> None:
    catalog = Catalog(data_dir)
    try:
        catalog.add(own)
        catalog.add("notes")
        outcome.put("added")
    except ArgumentError as error:
        outcome.put(str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test shall show it
        outcome.put(repr(error))


def test_of_processes_that_add_the_same_name_at_once_one_wins(catalog: Catalog):
    spawn = multiprocessing.get_context("spawn")
    outcome: multiprocessing.Queue[str] = spawn.Queue()
    processes = [spawn.Process(target=add, args=(catalog.data_dir, f"own-{n}", outcome)) for n in range(2)]
    for process in processes:
        process.start()
    outcomes = sorted(outcome.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    outcome.close()
    assert outcomes == ["added", 'invalid argument: a database named "notes" exists already']
    assert [entry.name for entry in catalog.entries()] == ["notes", "own-0", "own-1"]
    assert len(list((catalog.data_dir / "databases").glob("*.db"))) == 3
