import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kura.errors import Damaged, StoreError
from kura.store.sqlite import Connection, Reader, open_for_reading, open_for_writing


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a base.db"
    connection = open_for_writing(path)
    connection.run("create table words (id integer primary key, word text not null)")
    connection.many("insert into words (word) values (?)", [(f"word {n} " * 100,) for n in range(200)])
    connection.close()
    return path


@pytest.fixture
def connection(database: Path) -> Generator[Connection]:
    connection = open_for_writing(database)
    yield connection
    connection.close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_reading_changes_nothing_in_the_file(database: Path):
    before = digest(database)
    reader = open_for_reading(database)
    assert reader.rows("select count(*) from words") == [(200,)]
    reader.close()
    assert digest(database) == before


@pytest.mark.parametrize(
    "sql", ["insert into words (word) values ('x')", "create table t (x)", "drop table words", "vacuum"]
)
def test_a_connection_for_reading_refuses_to_write(database: Path, sql: str):
    before = digest(database)
    reader = open_for_reading(database)
    with pytest.raises(StoreError, match="read-only"):
        reader.run(sql)
    reader.close()
    assert digest(database) == before


def test_what_is_still_in_the_log_is_read(database: Path):
    writer = open_for_writing(database)
    writer.run("insert into words (word) values ('late')")
    reader = open_for_reading(database)
    assert reader.one("select word from words order by id desc limit 1") == ("late",)
    reader.close()
    writer.close()


@contextmanager
def as_stranger() -> Generator[None]:
    """Be nobody if we are root, for whom no folder is read-only."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def foreign_folder() -> Generator[Path]:
    # Not below tmp_path, where no other user may enter.
    folder = Path(tempfile.mkdtemp(prefix="kura-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of folders are of another kind there")
def test_in_a_read_only_folder_a_database_without_a_log_is_read(database: Path, foreign_folder: Path):
    shutil.copy(database, foreign_folder / "a.db")
    foreign_folder.chmod(0o555)
    with as_stranger():
        reader = open_for_reading(foreign_folder / "a.db")
        assert reader.one("select count(*) from words") == (200,)
        reader.close()
    assert [path.name for path in foreign_folder.iterdir()] == ["a.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of folders are of another kind there")
def test_in_a_read_only_folder_a_waiting_log_is_never_passed_over(database: Path, foreign_folder: Path):
    writer = open_for_writing(database)
    writer.run("insert into words (word) values ('late')")
    shutil.copy(database, foreign_folder / "a.db")
    shutil.copy(database.with_name(database.name + "-wal"), foreign_folder / "a.db-wal")
    writer.close()
    foreign_folder.chmod(0o555)
    with as_stranger(), pytest.raises(StoreError, match="cannot be opened"):
        open_for_reading(foreign_folder / "a.db")


@pytest.mark.parametrize("left", [0.5, 0.1, 0.02])
def test_a_half_copied_database_is_called_damaged(database: Path, left: float):
    half = database.with_name("half.db")
    half.write_bytes(database.read_bytes()[: int(database.stat().st_size * left)])
    with pytest.raises(Damaged, match="damaged"):
        open_for_reading(half).rows("select * from words")


@pytest.mark.parametrize("opening", [open_for_reading, open_for_writing], ids=["reading", "writing"])
def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path, opening: type):
    (tmp_path / "junk.db").write_bytes(b"junk " * 1000)
    with pytest.raises(Damaged, match="not a SQLite database"):
        opening(tmp_path / "junk.db")


def test_a_missing_file_is_not_created_by_reading(tmp_path: Path):
    with pytest.raises(StoreError, match="does not exist"):
        open_for_reading(tmp_path / "none.db")
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path):
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match="folder"):
        open_for_reading(tmp_path / "folder.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        open_for_writing(tmp_path / "folder.db")


def test_messages_carry_no_path(tmp_path: Path):
    with pytest.raises(StoreError) as caught:
        open_for_reading(tmp_path / "none.db")
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "who?.db", "a#b.db", "知识库.db", "it's.db"])
def test_any_file_name_can_be_opened(tmp_path: Path, name: str):
    if sys.platform == "win32" and "?" in name:
        pytest.skip("no legal file name there")
    writer = open_for_writing(tmp_path / name)
    writer.run("create table t (x)")
    writer.close()
    reader = open_for_reading(tmp_path / name)
    assert reader.rows("select name from sqlite_schema") == [("t",)]
    reader.close()
    assert {path.name for path in tmp_path.iterdir()} <= {name, f"{name}-wal", f"{name}-shm"}


def test_opening_a_file_of_others_for_writing_leaves_it_as_it_is(tmp_path: Path):
    path = tmp_path / "theirs.db"
    raw = sqlite3.connect(path)
    raw.execute("create table theirs (x)")
    raw.commit()
    raw.close()
    before = digest(path)
    open_for_writing(path).close()
    assert digest(path) == before


def test_a_transaction_that_fails_leaves_nothing_and_the_connection_usable(connection: Connection):
    def fail() -> None:
        with connection.transaction():
            connection.run("delete from words")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert connection.one("select count(*) from words") == (200,)
    with connection.transaction():
        connection.run("delete from words where id = 1")
    assert connection.one("select count(*) from words") == (199,)


def test_a_commit_that_fails_leaves_no_transaction_open(connection: Connection):
    connection.run("create table parts (word_id integer references words (id) deferrable initially deferred)")
    with pytest.raises(sqlite3.IntegrityError), connection.transaction():
        connection.run("insert into parts values (4711)")
    with connection.transaction():
        connection.run("insert into parts values (1)")
    assert connection.rows("select word_id from parts") == [(1,)]


def test_half_a_character_is_refused_in_words(connection: Connection):
    with pytest.raises(StoreError, match="lone surrogate"):
        connection.run("insert into words (word) values (?)", ("\ud800",))


def test_nul_and_every_other_character_come_back_as_they_were(connection: Connection):
    text = "a\0b\x1b\u202e\ufeff😀\U0010ffff"
    new = connection.insert("insert into words (word) values (?)", (text,))
    assert connection.one("select word from words where id = ?", (new,)) == (text,)


def test_many_threads_read_through_few_connections(database: Path):
    with ThreadPoolExecutor(16) as threads:
        reader = Reader(database, threads)
        together = threading.Barrier(16)

        def read(_: int) -> int:
            together.wait()
            return reader.read_here(lambda view: view.one("select count(*) from words")[0])

        assert list(threads.map(read, range(640))) == [200] * 640
        reader.close()


def test_all_statements_of_one_read_see_the_same_version(database: Path, connection: Connection):
    with ThreadPoolExecutor(1) as threads:
        reader = Reader(database, threads)

        def read(view: Connection) -> tuple[int, int]:
            before = view.one("select count(*) from words")[0]
            connection.run("delete from words where id < 100")
            return before, view.one("select count(*) from words")[0]

        assert reader.read_here(read) == (200, 200)
        assert reader.read_here(lambda view: view.one("select count(*) from words")[0]) == 101
        reader.close()


def test_a_reader_that_is_closed_while_reading_lets_go_of_the_connection(database: Path):
    with ThreadPoolExecutor(1) as threads:
        reader = Reader(database, threads)
        kept: list[Connection] = []

        def read(view: Connection) -> None:
            kept.append(view)
            reader.close()
            view.rows("select 1")

        reader.read_here(read)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            kept[0].rows("select 1")


def test_a_read_that_fails_does_not_spoil_the_next(database: Path):
    with ThreadPoolExecutor(1) as threads:
        reader = Reader(database, threads)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                reader.read_here(lambda _: 1 // 0)
            assert reader.read_here(lambda view: view.one("select 1")) == (1,)
        reader.close()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced there")
def test_a_file_put_in_the_place_of_the_database_is_what_is_read(database: Path):
    with ThreadPoolExecutor(1) as threads:
        reader = Reader(database, threads)
        assert reader.read_here(lambda view: view.one("select count(*) from words")) == (200,)
        other = open_for_writing(database.with_name("other.db"))
        other.run("create table words (id integer primary key)")
        other.close()
        database.with_name("other.db").replace(database)
        assert reader.read_here(lambda view: view.one("select count(*) from words")) == (0,)
        reader.close()
