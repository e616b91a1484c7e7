"""The commands that do not serve: what they print, where, and how they end."""

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kura.store.lock import indexing

Kura = Callable[..., "subprocess.CompletedProcess[str]"]


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def one_line(done: "subprocess.CompletedProcess[str]", code: int = 1) -> str:
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.startswith("kura: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_folder_is_indexed_and_found_in_both_languages(kura: Kura, docs: Path):
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))
    english = json.loads(ok(kura("search", "notes", "when", "is", "high", "water", "--json")))
    assert english["keyword"][0]["source"] == "tides.md"
    chinese = json.loads(ok(kura("search", "notes", "茶汤", "--mode", "keyword", "--json")))
    assert [group["source"] for group in chinese["keyword"]] == ["茶.txt"]
    assert "semantic" not in chinese


def test_the_printed_passages_carry_file_line_and_heading(kura: Kura, docs: Path):
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))
    printed = ok(kura("search", "notes", "fifty minutes"))
    assert "keyword" in printed
    assert "tides.md:1-3" in printed
    assert "fifty minutes later" in printed


def test_the_data_directory_may_stand_before_or_behind_the_command(kura: Kura, tmp_path: Path):
    ok(kura("--data-dir", str(tmp_path / "one"), "add", "first"))
    ok(kura("add", "second", "--data-dir", str(tmp_path / "one")))
    assert [e["db"] for e in json.loads(ok(kura("list", "--json", KURA_DATA_DIR=str(tmp_path / "one"))))] == [
        "first",
        "second",
    ]


def test_list_rename_and_remove_follow_each_other(kura: Kura):
    ok(kura("add", "notes", "--tenant", "company-a"))
    assert json.loads(ok(kura("list", "--json")))[0]["tenant"] == "company-a"
    ok(kura("rename", "notes", "笔记"))
    assert ok(kura("list")).startswith("笔记\t")
    refused = kura("remove", "笔记", stdin="n\n")
    assert refused.returncode == 130
    ok(kura("remove", "笔记", "--yes"))
    assert json.loads(ok(kura("list", "--json"))) == []


def test_one_folder_of_several_is_forgotten_by_its_label_or_path(kura: Kura, docs: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "moon.txt").write_text("the moon pulls", encoding="utf-8")
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs), str(other)))
    both = json.loads(ok(kura("search", "notes", "moon water", "--mode", "keyword", "--json")))
    assert {group["source"] for group in both["keyword"]} == {"docs/tides.md", "other/moon.txt"}
    ok(kura("remove", "notes", "--folder", "other"))
    left = json.loads(ok(kura("search", "notes", "moon water", "--mode", "keyword", "--json")))
    assert {group["source"] for group in left["keyword"]} == {"tides.md"}
    assert (other / "moon.txt").exists()


def test_a_tenants_database_is_searched_as_its_owner_unless_another_tenant_is_given(kura: Kura, docs: Path):
    ok(kura("add", "private", "--tenant", "company-a"))
    ok(kura("index", "private", str(docs)))
    assert json.loads(ok(kura("search", "private", "water", "--mode", "keyword", "--json")))["keyword"]
    refused = one_line(kura("search", "private", "water", "--tenant", "company-b"))
    assert refused == 'kura: invalid argument: "private" not exist; no database is available\n'


def test_status_counts_what_waits_for_an_embedder(kura: Kura, docs: Path):
    ok(kura("add", "notes"))
    kura("index", "notes", str(docs), KURA_EMBEDDER="none")
    [waiting] = json.loads(ok(kura("status", "--json", KURA_EMBEDDER="none")))["databases"]
    assert (waiting["sources"], waiting["pending"], waiting["embedder"]) == (2, 2, None)
    ok(kura("index", "notes"))
    [filled] = json.loads(ok(kura("status", "notes", "--json")))["databases"]
    assert (filled["pending"], filled["embedder"]) == (0, "hashing-64")


@pytest.mark.slow
def test_the_inbox_is_indexed_without_being_named_and_follows_a_rename(kura: Kura, tmp_path: Path, docs: Path):
    ok(kura("add", "notes"))
    [inbox] = (tmp_path / "data" / "inbox").iterdir()
    (inbox / "memo.txt").write_text("remember the milk", encoding="utf-8")
    ok(kura("index", "notes"))
    ok(kura("rename", "notes", "journal"))
    (inbox / "memo.txt").write_text("remember the bread", encoding="utf-8")
    ok(kura("index", "journal"))
    found = json.loads(ok(kura("search", "journal", "bread", "--mode", "keyword", "--json")))
    assert found["keyword"][0]["source"] == "memo.txt"
    ok(kura("index", "journal", str(docs)))
    found = json.loads(ok(kura("search", "journal", "bread", "--mode", "keyword", "--json")))
    assert found["keyword"][0]["source"] == "inbox/memo.txt"
    assert f"your files in {inbox} stay" in ok(kura("remove", "journal", "--yes"))


@pytest.mark.slow
def test_a_folder_is_not_forgotten_nor_a_database_removed_while_it_is_being_indexed(
    kura: Kura, docs: Path, tmp_path: Path
):
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))
    [path] = (tmp_path / "data" / "databases").glob("*.db")
    with indexing(path, patience=0.0):
        for command in (("remove", "notes", "--yes"), ("remove", "notes", "--folder", "docs"), ("index", "notes")):
            assert "another process is indexing" in one_line(kura(*command))
    ok(kura("search", "notes", "water"))


def test_a_file_that_is_no_text_is_refused_and_nothing_of_it_stays(kura: Kura, docs: Path, tmp_path: Path):
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)))
    ok(kura("add", "notes"))
    line = one_line(kura("index", "notes", str(docs), str(tmp_path / "paper.pdf")))
    assert "not text" in line
    assert "convert it first" in line
    assert json.loads(ok(kura("status", "notes", "--json")))["databases"][0]["folders"] == []
    ok(kura("index", "notes", str(docs)))
    ok(kura("index", "notes"))


@pytest.mark.slow
def test_a_hidden_file_that_is_named_is_indexed_and_it_is_said(kura: Kura, docs: Path):
    (docs / ".secret.md").write_text("the hidden harbour", encoding="utf-8")
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))
    said = '".secret.md" is indexed by itself, because it was named: ".secret.md" is hidden in "docs"'
    assert said in ok(kura("index", "notes", str(docs / ".secret.md")))
    ok(kura("index", "notes"))
    found = json.loads(ok(kura("search", "notes", "harbour", "--mode", "keyword", "--json")))
    assert [group["source"] for group in found["keyword"]] == [".secret.md/.secret.md"]
    assert "there is no file" in one_line(kura("index", "notes", str(docs / ".secrets.md")))


@pytest.mark.parametrize("path", ["loop", "x" * 300, "~nosuchuser/y"], ids=["loop", "long name", "no such home"])
def test_a_path_that_leads_nowhere_is_one_line(kura: Kura, tmp_path: Path, path: str):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    ok(kura("add", "notes"))
    one_line(kura("index", "notes", path))
    one_line(kura("remove", "notes", "--folder", path))


def test_an_empty_path_is_wrong_usage_rather_than_the_current_directory(kura: Kura):
    ok(kura("add", "notes"))
    assert kura("index", "notes", "").returncode == 2


def test_a_damaged_database_is_named_with_its_file_and_what_can_be_done(kura: Kura, docs: Path, tmp_path: Path):
    ok(kura("add", "notes"))
    [path] = (tmp_path / "data" / "databases").glob("*.db")
    path.write_bytes(b"junk " * 1000)
    line = one_line(kura("index", "notes", str(docs)))
    assert str(path) in line
    assert "kura remove notes" in line
    ok(kura("remove", "notes", "--yes"))


def test_a_file_that_cannot_be_read_is_named_and_the_exit_code_says_so(kura: Kura, docs: Path):
    (docs / "large.txt").write_text("x" * 2000, encoding="utf-8")
    ok(kura("add", "notes"))
    done = kura("index", "notes", str(docs), KURA_MAX_FILE_BYTES="1000")
    assert done.returncode == 3
    assert "large.txt" in done.stderr
    assert json.loads(ok(kura("search", "notes", "water", "--mode", "keyword", "--json")))["keyword"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("search", "nots", "x"), 'invalid argument: "nots" not exist; available: "notes"'),
        (("index", "nots"), '"nots" not exist'),
        (("index", "notes", "no/such/folder"), "no/such/folder"),
        (("add", "notes"), 'a database named "notes" exists already'),
        (("add", "a/b"), '"a/b" cannot be a database name'),
        (("rename", "nots", "x"), '"nots" not exist'),
        (("remove", "nots", "--yes"), '"nots" not exist'),
        (("remove", "notes", "--folder", "nowhere"), "no folder"),
        (("search", "notes", "   "), '"q" must have 1 to 10,000 characters'),
        (("status", "nots"), '"nots" not exist'),
    ],
    ids=str,
)
def test_what_goes_wrong_is_one_line_that_says_what_and_what_to_do(kura: Kura, arguments: tuple[str, ...], says: str):
    ok(kura("add", "notes"))
    assert says in one_line(kura(*arguments))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KURA_REFRESH_SECONDS", "soon"),
        ("KURA_KEY_HASH", "secret-key-in-plain"),
        ("KURA_EMBEDDER", "bert"),
        ("KURA_PUBLIC", "perhaps"),
    ],
)
def test_a_wrong_setting_is_named_without_its_value(kura: Kura, variable: str, value: str):
    line = one_line(kura("list", **{variable: value}))
    assert variable in line
    assert value not in line


def test_wrong_usage_exits_with_two(kura: Kura):
    assert kura("search", "notes").returncode == 2
    assert kura("frobnicate").returncode == 2
    assert kura("search", "notes", "x", "--limit", "101").returncode == 2


def test_a_port_is_pinned_and_cleared(kura: Kura, tmp_path: Path):
    ok(kura("port", "set", "9123"))
    assert (tmp_path / "data" / "port").read_text(encoding="utf-8") == "9123\n"
    ok(kura("port", "clear"))
    ok(kura("port", "clear"))
    assert not (tmp_path / "data" / "port").exists()
    assert kura("port", "set", "70000").returncode == 2


def test_bytes_that_are_no_text_in_a_query_become_a_replacement_character(kura: Kura, docs: Path):
    ok(kura("add", "notes"))
    ok(kura("index", "notes", str(docs)))
    assert ok(kura("search", "notes", "water \udcff", "--mode", "keyword"))


def test_a_database_of_a_newer_kura_is_refused_by_name(kura: Kura, tmp_path: Path):
    ok(kura("add", "notes"))
    [path] = (tmp_path / "data" / "databases").glob("*.db")
    database = sqlite3.connect(path)
    database.execute("insert into kura_migrations values (99, 'future', '2030-01-01T00:00:00Z')")
    database.commit()
    database.close()
    line = one_line(kura("search", "notes", "x"))
    assert 'database "notes" unavailable' in line
    assert "newer Kura" in line
    assert "newer Kura" in one_line(kura("index", "notes"))
    [described] = json.loads(ok(kura("status", "--json")))["databases"]
    assert "newer Kura" in described["error"]
