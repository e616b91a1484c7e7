"""After a run, the index says what the files say: no more, no less, and without doing again what was done."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kura.embed.hashing import HashingEmbedder
from kura.errors import Busy, EmbedderMismatch, IngestError
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.report import Event, Found
from kura.ingest.roots import register, writing
from kura.store.sources import add_root, remove_root, roots, sources, state, statistics
from kura.store.sqlite import Connection
from tests.ingest.conftest import CountingEmbedder, Index
from tests.ingest.written import LONG_AGO, contents, write


def test_new_files_are_added_with_their_vectors(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "# A\n\nalpha")
    write(docs / "sub" / "中文.txt", "知识库")
    report = index()
    assert (report.added, report.chunks, report.embedded, report.pending) == (2, 2, 2, 0)
    assert contents(connection) == {"docs/a.md": ["# A\n\nalpha"], "docs/sub/中文.txt": ["知识库"]}
    assert statistics(connection).vectors == 2


def test_unchanged_files_are_neither_read_nor_counted_as_a_change(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "alpha")
    write(docs / "b.md", "beta")
    index()
    before = state(connection).version
    # The same size and time: had it been read, the change would show.
    write(docs / "a.md", "ALPHA")
    report = index()
    assert (report.unchanged, report.updated, report.added, report.embedded) == (2, 0, 0, 0)
    assert state(connection).version == before


def test_a_touched_file_is_read_once_and_not_embedded_again(
    connection: Connection, docs: Path, index: Index, embedder: CountingEmbedder
):
    write(docs / "a.md", "alpha")
    index()
    write(docs / "a.md", "alpha", when=LONG_AGO + 5)
    report = index()
    assert (report.unchanged, report.updated) == (1, 0)
    [source] = sources(connection, 1).values()
    assert source.mtime_ns == (LONG_AGO + 5) * 10**9
    assert embedder.texts == ["alpha"]


def test_a_file_changed_within_the_tick_of_a_coarse_clock_is_noticed(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "first", when=None)
    index()
    stamp = (docs / "a.md").stat()
    (docs / "a.md").write_text("other", encoding="utf-8")
    os.utime(docs / "a.md", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert index().updated == 1
    assert contents(connection) == {"docs/a.md": ["other"]}


def test_edited_deleted_and_emptied_files_follow(connection: Connection, docs: Path, index: Index):
    for name in ("edited", "deleted", "emptied", "kept"):
        write(docs / f"{name}.md", f"this is {name}")
    index()
    write(docs / "edited.md", "this is new")
    write(docs / "emptied.md", "")
    (docs / "deleted.md").unlink()
    report = index()
    assert (report.updated, report.removed, report.empty, report.unchanged) == (2, 1, 1, 1)
    assert contents(connection) == {
        "docs/edited.md": ["this is new"], "docs/emptied.md": [], "docs/kept.md": ["this is kept"],
    }  # fmt: skip
    assert statistics(connection).vectors == 2
    assert index().unchanged == 3


def test_copies_share_their_vectors_and_moved_files_take_them_along(
    connection: Connection, docs: Path, index: Index, embedder: CountingEmbedder
):
    write(docs / "a.md", "the same text")
    index()
    write(docs / "copy.md", "the same text")
    (docs / "a.md").rename(docs / "moved.md")
    report = index()
    assert (report.added, report.removed, report.embedded) == (2, 1, 0)
    assert embedder.texts == ["the same text"]
    assert set(contents(connection)) == {"docs/copy.md", "docs/moved.md"}
    assert statistics(connection).vectors == 1


def test_a_file_that_moves_to_another_root_takes_its_vectors_along(
    docs: Path, tmp_path: Path, index: Index, embedder: CountingEmbedder
):
    other = tmp_path / "other"
    write(docs / "a.md", "wandering")
    write(other / "b.md", "at home")
    index(docs, other)
    (docs / "a.md").rename(other / "a.md")
    assert index(docs, other).embedded == 0
    assert embedder.texts == ["wandering", "at home"]


def test_an_unreadable_file_is_named_keeps_its_content_and_stops_nothing(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "a.md", "alpha")
    write(docs / "b.md", "beta")
    index()
    (docs / "a.md").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    write(docs / "b.md", "beta two")
    write(docs / "c.md", "x" * 2_000_000)
    report = index()
    assert [(problem.path, problem.reason.split(" ")[0]) for problem in report.problems] == [
        ("a.md", "is"), ("c.md", "holds"),
    ]  # fmt: skip
    assert contents(connection) == {"docs/a.md": ["alpha"], "docs/b.md": ["beta two"]}
    assert len(index().problems) == 2


def test_files_that_are_no_text_are_counted_and_leave_when_they_were_text(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "thing", "text at first")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    assert (index().added, index().not_text) == (1, 1)
    (docs / "thing").write_bytes(bytes(1000))
    report = index()
    assert (report.not_text, report.removed, report.problems) == (2, 1, ())
    assert contents(connection) == {}


def test_a_missing_root_keeps_its_sources_and_is_named(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "alpha")
    index()
    docs.rename(docs.with_name("unmounted"))
    report = index()
    assert [problem.path for problem in report.problems] == ["docs"]
    assert "stays" in report.problems[0].reason
    assert contents(connection) == {"docs/a.md": ["alpha"]}


def test_a_part_of_a_root_is_reconciled_alone(connection: Connection, docs: Path, index: Index):
    write(docs / "one" / "a.md", "a")
    write(docs / "two" / "b.md", "b")
    write(docs / "onerous.md", "c")
    index()
    write(docs / "one" / "a.md", "a new")
    write(docs / "two" / "b.md", "b new")
    (docs / "onerous.md").unlink()
    report = index(docs / "one")
    assert (report.updated, report.removed, report.unchanged) == (1, 0, 0)
    assert contents(connection)["docs/two/b.md"] == ["b"]
    (docs / "two" / "b.md").unlink()
    assert index(docs / "two" / "b.md").removed == 1
    assert len(roots(connection)) == 1


def test_a_nested_root_takes_its_files_over_with_their_vectors(
    connection: Connection, docs: Path, index: Index, embedder: CountingEmbedder
):
    write(docs / "a.md", "outside")
    write(docs / "sub" / "b.md", "inside")
    index(docs / "sub")
    index(docs)
    assert set(contents(connection)) == {"docs/a.md", "sub/b.md"}
    remove_root(connection, roots(connection)[0].id)
    index(docs)
    assert set(contents(connection)) == {"docs/a.md", "docs/sub/b.md"}
    assert embedder.texts == ["inside", "outside", "inside"]


def test_a_root_registered_inside_another_takes_over_what_that_had_indexed(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "a.md", "outside")
    write(docs / "sub" / "b.md", "inside")
    index()
    inner = add_root(connection, str(docs / "sub"), "inner")
    report = index(docs / "sub")
    assert (report.added, report.removed, report.embedded) == (1, 1, 0)
    assert set(contents(connection)) == {"docs/a.md", f"{inner.label}/b.md"}
    assert (index().unchanged, index(docs / "sub").unchanged) == (1, 1)


def test_without_an_embedder_chunks_wait_and_a_later_run_fills_them(docs: Path, index: Index):
    write(docs / "a.md", "alpha")
    report = index(model=None)
    assert (report.added, report.embedded, report.pending) == (1, 0, 1)
    report = index()
    assert (report.unchanged, report.embedded, report.pending) == (1, 1, 0)


def test_another_embedder_is_refused_before_anything_is_written_until_a_rebuild(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "a.md", "alpha")
    index()
    write(docs / "a.md", "beta")
    before = state(connection)
    other = Model.of(HashingEmbedder(32))
    with pytest.raises(EmbedderMismatch, match="--rebuild"):
        index(model=other)
    assert state(connection) == before
    assert contents(connection) == {"docs/a.md": ["alpha"]}
    report = index(model=other, rebuild=True)
    assert (report.updated, report.embedded, report.pending) == (1, 1, 0)
    assert state(connection).dimension == 32


def test_a_file_that_vanishes_between_listing_and_reading_counts_as_deleted(
    connection: Connection, docs: Path, index: Index
):
    for name in ("a.md", "b.md"):
        write(docs / name, name)
    index()
    for name in ("a.md", "b.md"):
        write(docs / name, f"{name} again")

    def delete(event: Event) -> None:
        if isinstance(event, Found):
            (docs / "b.md").unlink()

    report = index(progress=delete)
    assert (report.updated, report.removed, report.problems) == (1, 1, ())
    assert set(contents(connection)) == {"docs/a.md"}


def test_a_link_that_lost_its_target_is_named_and_no_longer_served(
    connection: Connection, docs: Path, tmp_path: Path, index: Index
):
    write(tmp_path / "outside.md", "alpha")
    (docs / "link.md").symlink_to(tmp_path / "outside.md")
    index()
    (tmp_path / "outside.md").unlink()
    report = index()
    assert [problem.path for problem in report.problems] == ["link.md"]
    assert contents(connection) == {}


def test_ignored_files_leave_when_they_become_ignored(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "a")
    write(docs / "draft.md", "b")
    index()
    (docs / ".gitignore").write_text("draft*")
    assert index().removed == 1
    assert set(contents(connection)) == {"docs/a.md"}


def test_kuras_own_folder_is_left_out_but_not_a_root_in_it(connection: Connection, tmp_path: Path, index: Index):
    write(tmp_path / "mine.md", "mine")
    write(tmp_path / "data" / "inbox" / "notes" / "in.md", "in")
    index(tmp_path / "data" / "inbox" / "notes", leave_out=[tmp_path / "data"])
    index(tmp_path, leave_out=[tmp_path / "data"])
    assert {path.rpartition("/")[2] for path in contents(connection)} == {"mine.md", "in.md"}


def test_files_in_old_encodings_are_found_as_text(connection: Connection, docs: Path, index: Index):
    (docs / "gbk.txt").write_bytes("知识库服务器把文件切成段落。".encode("gbk"))
    (docs / "big5.txt").write_bytes("這個伺服器把檔案切成段落。".encode("big5"))
    (docs / "utf16.txt").write_bytes("知识库\n".encode("utf-16"))
    (docs / "latin1.txt").write_bytes("café crème".encode("latin-1"))
    index()
    assert sorted(text for [text] in contents(connection).values()) == [
        "café crème", "知识库", "知识库服务器把文件切成段落。", "這個伺服器把檔案切成段落。",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["paper.pdf", "paper"])
@pytest.mark.parametrize("way", ["root", "part", "linked root"])
def test_a_file_that_is_no_text_is_a_problem_where_it_was_named(
    connection: Connection, docs: Path, tmp_path: Path, index: Index, name: str, way: str
):
    (docs / name).write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)) * 4)
    if way == "part":
        write(docs / "a.md", "alpha")
        report = index()
        assert (report.added, report.not_text, report.problems) == (1, 1, ())
    if way == "linked root":  # the folder has moved since, and a link is in its place
        register(connection, docs / name)
        docs.rename(tmp_path / "moved")
        docs.symlink_to("moved")
        report = reconcile(connection, model=None, max_file_bytes=10_000)
    else:
        report = index(docs / name)
    [problem] = report.problems
    assert (problem.path, problem.reason.split(";")[0]) == (name, "not text")
    assert (report.added, report.not_text) == (0, 0)


def test_a_named_file_that_is_no_text_any_more_keeps_its_content_and_its_tokens_outdated(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "thing", "text at first")
    index(docs / "thing")
    connection.run("update state set tokenizer = 0")
    (docs / "thing").write_bytes(bytes(1000))
    report = index(docs / "thing")
    assert ([problem.path for problem in report.problems], report.removed, report.outdated) == (["thing"], 0, True)
    assert contents(connection) == {"thing/thing": ["text at first"]}


def test_an_older_tokeniser_has_everything_indexed_again_without_new_vectors(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "a.md", "alpha")
    write(docs / "sub" / "b.md", "beta")
    index()
    connection.run("update state set tokenizer = 0")
    report = index(docs / "sub")
    assert (report.updated, report.outdated) == (1, True)
    report = index()
    assert (report.updated, report.embedded, report.outdated) == (2, 0, False)
    assert index().unchanged == 2


def test_a_second_indexing_process_is_told_to_wait(database: Path):
    program = "import sys; from pathlib import Path; from kura.ingest.roots import writing\n"
    program += "with writing(Path(sys.argv[1])): pass"
    with writing(database):
        with pytest.raises(Busy, match="wait until it is done"), writing(database):
            pass
        other = subprocess.run([sys.executable, "-c", program, database], capture_output=True, text=True, check=False)
        assert "Busy" in other.stderr
    subprocess.run([sys.executable, "-c", program, database], check=True)


def test_a_path_that_is_not_there_cannot_be_registered(connection: Connection, tmp_path: Path):
    with pytest.raises(IngestError, match="nowhere"):
        register(connection, tmp_path / "nowhere")


def test_every_registered_root_is_reconciled_when_none_is_named(connection: Connection, docs: Path, tmp_path: Path):
    write(docs / "a.md", "a")
    write(tmp_path / "single.md", "b")
    for path in (docs, tmp_path / "single.md"):
        register(connection, path)
    report = reconcile(connection, model=None, max_file_bytes=1000)
    assert report.added == 2
    assert set(contents(connection)) == {"docs/a.md", "single.md/single.md"}
