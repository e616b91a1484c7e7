"""After a run, the index says what the files say: no more, no less, and without doing again what was done."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Kind
from kura.embed.hashing import HashingEmbedder
from kura.errors import Busy, EmbedderError, EmbedderMismatch, IngestError
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.report import Done, Embedded, Event, Found, Waiting
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


class Failing(HashingEmbedder):
    """Goes down after some batches, or answers nonsense."""

    def __init__(self, batches: int, *, nonsense: bool = False) -> None:
        super().__init__()
        self.batches = batches
        self.nonsense = nonsense

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        self.batches -= 1
        if self.batches >= 0:
            return super().embed(texts, kind)
        if self.nonsense:
            return np.full((len(texts), self.dimension), np.nan, np.float32)
        raise EmbedderError("the server is down")


@pytest.mark.parametrize("nonsense", [False, True])
def test_an_embedder_that_fails_is_a_problem_and_the_text_is_indexed(docs: Path, index: Index, nonsense: bool):
    for number in range(100):
        write(docs / f"{number}.md", f"text number {number}")
    report = index(model=Model.of(Failing(1, nonsense=nonsense)))
    assert (report.added, report.pending) == (100, 36)
    [problem] = report.problems
    assert problem.path == "embedder"
    assert (index().embedded, index().pending) == (36, 0)


def test_a_source_larger_than_a_batch_is_findable_before_it_is_embedded(
    connection: Connection, docs: Path, index: Index
):
    write(docs / "big.txt", "\n\n".join(f"Paragraph {n}. " + "word " * 150 for n in range(200)))
    seen: list[Event] = []
    report = index(progress=seen.append, should_stop=lambda: Embedded(64) in seen)
    assert report.stopped
    assert report.chunks >= 200
    assert (report.embedded, report.pending) == (64, report.chunks - 64)
    assert len(contents(connection)["docs/big.txt"]) == report.chunks
    assert index().pending == 0


def test_a_run_that_is_stopped_keeps_what_it_did_and_the_next_one_goes_on(
    connection: Connection, docs: Path, index: Index, embedder: CountingEmbedder
):
    for number in range(10):
        write(docs / f"{number}.md", f"text {number}")
    seen: list[Event] = []
    report = index(progress=seen.append, should_stop=lambda: len(seen) > 4)
    assert report.stopped
    assert report.added == 4
    report = index()
    assert (report.unchanged, report.added, report.pending, report.stopped) == (4, 6, 0, False)
    assert len(contents(connection)) == 10
    assert len(embedder.texts) == 10


def test_an_interrupt_in_the_middle_leaves_every_source_whole_or_absent(
    connection: Connection, docs: Path, index: Index
):
    for number in range(10):
        write(docs / f"{number}.md", f"text {number}")

    def interrupt(event: Event) -> None:
        if isinstance(event, Done) and event.path == "5.md":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index(progress=interrupt)
    assert all(chunks == [f"text {path[5]}"] for path, chunks in contents(connection).items())
    report = index()
    assert report.added + report.unchanged == 10
    assert len(contents(connection)) == 10


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


def paragraphs(number: int, of: str) -> str:
    """A text of as many chunks, and texts, as paragraphs."""
    return "\n\n".join(f"{of} {n} " + "word " * 150 for n in range(number))


def test_progress_tells_of_every_file_from_the_smallest_on_and_of_every_batch(docs: Path, tmp_path: Path, index: Index):
    write(docs / "a.md", paragraphs(100, "long"))
    write(docs / "b.md", "beta, which is longer")
    write(docs / "c.md", "gamma")
    write(tmp_path / "more" / "d.md", "delta")
    seen: list[Event] = []
    index(docs, tmp_path / "more", progress=seen.append)
    assert seen == [
        Found("docs", 3, 3), Done("docs/c.md", "added"), Done("docs/b.md", "added"), Embedded(2),
        Done("docs/a.md", "added"), Found("more", 1, 1), Done("more/d.md", "added"), Embedded(1),
        Waiting(100), Embedded(64), Embedded(36),
    ]  # fmt: skip
    (docs / "b.md").unlink()
    seen.clear()
    index(docs, tmp_path / "more", progress=seen.append)
    assert seen == [Found("docs", 2, 0), Found("more", 1, 0), Done("docs/b.md", "removed")]


class Observed(CountingEmbedder):
    """Notes what the index holds whenever a text with the word `long` is embedded, and whenever one is counted."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.at_embedding: list[set[str]] = []
        self.at_counting: list[set[str]] = []

    def embed(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float32]:
        if any("long" in text for text in texts):
            self.at_embedding.append(set(contents(self.connection)))
        return super().embed(texts, kind)

    def count_tokens(self, text: str) -> int:
        if "long" in text:
            self.at_counting.append(set(contents(self.connection)))
        return len(text.split())


def test_a_long_file_keeps_no_other_waiting(connection: Connection, docs: Path, tmp_path: Path, index: Index):
    write(docs / "a.md", paragraphs(300, "long"))
    write(docs / "b.md", "beta")
    write(docs / "sub" / "c.md", "gamma")
    write(tmp_path / "more" / "d.md", "delta")
    observed = Observed(connection)
    report = index(docs, tmp_path / "more", model=Model.of(observed))
    assert (report.added, report.pending) == (4, 0)
    assert observed.at_counting[0] == {"docs/b.md", "docs/sub/c.md"}
    assert observed.at_embedding[0] == {"docs/a.md", "docs/b.md", "docs/sub/c.md", "more/d.md"}


def test_nothing_is_said_to_wait_where_it_will_not_be_embedded_now(docs: Path, index: Index):
    write(docs / "a.md", paragraphs(100, "long"))
    write(docs / "b.md", "beta")
    seen: list[Event] = []
    index(model=None, progress=seen.append)
    write(docs / "c.md", "gamma")
    index(model=Model.of(Failing(0)), progress=seen.append)
    write(docs / "d.md", "delta")
    index(progress=seen.append, should_stop=lambda: Done("d.md", "added") in seen)
    assert Done("d.md", "added") in seen
    assert not any(isinstance(event, Waiting) for event in seen)
    report = index(progress=seen.append)
    assert seen.count(Waiting(103)) == 1
    assert (report.embedded, report.pending) == (103, 0)


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
