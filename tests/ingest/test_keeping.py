"""What is in the index is not lost by accident, nor left as it was by an interruption."""

import shutil
from pathlib import Path

import pytest

from kura.ingest.report import Done, Event
from kura.store.sqlite import Connection
from kura.types import Chunk
from tests.ingest.conftest import CountingEmbedder, Index
from tests.ingest.written import contents, write


def elsewhere(connection: Connection) -> None:
    """As if the files had last been found on another device than the one that the folder is on now."""
    assert connection.run("update roots set device = 'elsewhere' where device is not null") == 1


def test_an_empty_folder_in_the_place_of_a_mounted_drive_keeps_what_was_indexed(
    connection: Connection, docs: Path, index: Index, embedder: CountingEmbedder
):
    write(docs / "sub" / "a.md", "alpha")
    index()
    elsewhere(connection)
    shutil.rmtree(docs / "sub")
    for _ in range(2):
        report = index()
        assert [problem.path for problem in report.problems] == ["docs"]
        assert "not mounted" in report.problems[0].reason
        assert "kura remove NAME --folder docs" in report.problems[0].reason
        assert (report.removed, contents(connection)) == (0, {"docs/sub/a.md": ["alpha"]})
    write(docs / "sub" / "a.md", "alpha")
    assert (index().unchanged, embedder.texts) == (1, ["alpha"])


def test_the_last_file_of_a_folder_can_be_deleted(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "alpha")
    index()
    (docs / "a.md").unlink()
    report = index()
    assert (report.removed, report.problems, contents(connection)) == (1, (), {})


def test_files_that_move_to_another_device_are_followed_there(connection: Connection, docs: Path, index: Index):
    write(docs / "a.md", "alpha")
    write(docs / "b.md", "beta")
    index()
    elsewhere(connection)
    (docs / "b.md").unlink()
    assert (index().removed, index().problems) == (1, ())
    (docs / "a.md").unlink()
    assert (index().removed, contents(connection)) == (1, {})


def test_a_rebuild_that_is_interrupted_is_gone_on_with_by_the_next_run(
    connection: Connection, docs: Path, index: Index, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "sub/c", "sub/d"):
        write(docs / f"{name}.md", f"the text of {name}")
    index()
    seen: list[Event] = []

    def lines(text: str, *_how: object) -> list[Chunk]:
        return [Chunk(1, f"anew {text}")]

    monkeypatch.setattr("kura.ingest.index.split", lines)
    report = index(rebuild=True, progress=seen.append, should_stop=lambda: Done("b.md", "updated") in seen)
    assert (report.updated, report.stopped) == (2, True)
    report = index()
    assert (report.updated, report.unchanged, report.pending) == (2, 2, 0)
    assert all(content.startswith("anew the text") for [content] in contents(connection).values())
    report = index(docs / "sub", rebuild=True)
    assert (report.updated, report.unchanged) == (2, 0)
    assert index().unchanged == 4
