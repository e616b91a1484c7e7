"""`kura sql` and `kura policy`: what the owner does with tables of their own."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kura.store.catalog import Catalog
from kura.store.script import run_script
from tests.cli.test_commands import ok, one_line

Kura = Callable[..., "subprocess.CompletedProcess[str]"]
OWN = "tenant = current_setting('app.tenant_id')"


@pytest.fixture
def tables(kura: Kura, catalog: Catalog) -> Kura:
    catalog.add("notes")
    made = "create table users (id integer primary key, tenant text, name text unique);"
    run_script(
        catalog.path(catalog.find("notes")),
        made + "insert into users (tenant, name) values ('a', '李雷'), ('b', null)",
    )
    return kura


def test_rows_are_printed_in_columns_that_line_up(tables: Kura):
    assert ok(
        tables("sql", "notes", "select id, name, zeroblob(20) as data, 2.5 as x from users order by id")
    ).splitlines() == [
        "id  name  data                                             x",
        "--  ----  -----------------------------------------------  ---",
        "1   李雷  x'00000000000000000000000000000000…' (20 bytes)  2.5",
        "2   NULL  x'00000000000000000000000000000000…' (20 bytes)  2.5",
    ]


def test_a_script_gets_json_with_large_integers_and_blobs_as_text(tables: Kura):
    sql = "select name, 9007199254740993 as large, x'00ff' as data from users where id = 1"
    assert json.loads(ok(tables("sql", "notes", sql, "--json"))) == {
        "columns": ["name", "large", "data"],
        "rows": [{"name": "李雷", "large": "9007199254740993", "data": "AP8="}],
        "affectedRows": 0,
    }


def test_what_was_changed_is_counted(tables: Kura):
    assert ok(tables("sql", "notes", "update users set name = id")) == "2 rows changed\n"
    assert ok(tables("sql", "notes", "delete from users where id = 1 returning name")) == "name\n----\n1\n"


def test_a_file_of_statements_takes_place_as_a_whole_or_not_at_all(tables: Kura, tmp_path: Path):
    script = tmp_path / "more.sql"
    script.write_text(
        "create table more (a); -- ; not an end\n insert into more values (';'), ('x''; y');\n"
        "create trigger t after insert on more begin insert into users (name) values (new.a); end;\n"
        "insert into more values ('z') /* ; */ ; select count(*) as n from more, users where users.name = 'z'",
        encoding="utf-8",
    )
    assert ok(tables("sql", "notes", "-f", str(script))).splitlines()[-2:] == ["-", "3"]
    script.write_text("insert into more values (1); insert into nowhere values (2);", encoding="utf-8")
    assert "statement 2 of 2: no such table: nowhere" in one_line(tables("sql", "notes", "-f", str(script)))
    assert ok(tables("sql", "notes", "select count(*) as n from more")).split() == ["n", "-", "3"]
    done = tables("sql", "notes", "-f", "-", "--json", stdin="select 1; select 2")
    assert [answer["rows"] for answer in json.loads(ok(done))] == [[{"1": 1}], [{"2": 2}]]


def test_what_cannot_be_is_told_in_one_line(tables: Kura):
    assert "Kura's own" in one_line(tables("sql", "notes", "delete from chunks"))
    assert "no such column: nope" in one_line(tables("sql", "notes", "select nope from users"))


def test_the_index_still_answers_after_vacuum(tables: Kura, docs: Path):
    ok(tables("index", "notes", str(docs)))
    ok(tables("sql", "notes", "vacuum"))
    assert "tides.md" in ok(tables("search", "notes", "water", "--mode", "keyword"))


def test_ctrl_c_ends_a_statement_and_changes_nothing(tables: Kura, environment: dict[str, str], tmp_path: Path):
    endless = "with recursive c (n) as (select 1 union all select n + 1 from c) select count(*) from c"
    script = tmp_path / "endless.sql"
    script.write_text(f"insert into users (name) values ('half'); {endless};", encoding="utf-8")
    # A process that was started in the background may have the signal ignored: this one takes it anyhow.
    start = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "print('ready', flush=True);"
        "import threading; threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start();"
        "from kura.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, "sql", "notes", "-f", str(script)],
        capture_output=True, text=True, env=environment, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (128 + signal.SIGINT, "kura: interrupted")
    assert ok(tables("sql", "notes", "select count(*) as n from users")).split()[-1] == "2"


def test_a_database_on_a_server_is_not_one_of_this_machine(tables: Kura):
    said = one_line(tables("sql", "there", "select 1", KURA_DATABASES="there=http://127.0.0.1:9"))
    assert "kura push" in said
    assert "not exist" in one_line(tables("sql", "nowhere", "select 1"))
    assert "No such file" in one_line(tables("sql", "notes", "-f", "nowhere.sql"))
    assert tables("sql", "notes").returncode == 2
    assert tables("sql", "notes", "select 1", "-f", "-").returncode == 2


def test_a_policy_says_what_it_means_and_is_listed_until_it_is_removed(tables: Kura):
    said = ok(tables("policy", "add", "notes", "USERS", "own", "--using", OWN))
    assert said.startswith(f'added the policy "own": "users" shows a session the rows where {OWN}')
    assert "without a tenant it shows nothing" in said
    ok(tables("policy", "add", "notes", "users", "mine", "--for", "delete", "--using", "name = current_user"))
    assert ok(tables("policy", "list", "notes")).splitlines() == [
        "users\tmine\tfor delete\tusing name = current_user",
        f"users\town\tfor all\tusing {OWN}",
    ]
    assert json.loads(ok(tables("policy", "list", "notes", "--json")))[1] == {
        "table": "users", "name": "own", "for": "all", "using": OWN, "check": None, "table_exists": True,
    }  # fmt: skip
    ok(tables("sql", "notes", "drop table users"))
    assert "(there is no such table now)" in ok(tables("policy", "list", "notes"))
    assert "1 left" in ok(tables("policy", "remove", "notes", "users", "mine"))
    assert "all of the table's rows now" in ok(tables("policy", "remove", "notes", "Users", "OWN"))
    done = tables("policy", "list", "notes")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no policies" in done.stderr


def test_a_policy_of_that_name_is_not_added_twice(tables: Kura):
    ok(tables("policy", "add", "notes", "users", "own", "--using", OWN))
    assert "has a policy" in one_line(tables("policy", "add", "notes", "users", "own", "--using", "1 = 1"))
    assert 'tables of yours: "users"' in one_line(tables("policy", "add", "notes", "chunks", "p", "--using", "1"))
    assert "subquery" in one_line(tables("policy", "add", "notes", "users", "p", "--using", "id in (select 1)"))
    assert 'policies on it: "own"' in one_line(tables("policy", "remove", "notes", "users", "other"))
