"""A run that fails, is stopped or takes long: what it keeps, and what it tells meanwhile."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kura.embed import Kind
from kura.embed.hashing import HashingEmbedder
from kura.errors import EmbedderError
from kura.ingest.embedding import Model
from kura.ingest.report import Done, Embedded, Event, Found, Waiting
from kura.store.sqlite import Connection
from tests.ingest.conftest import CountingEmbedder, Index
from tests.ingest.written import contents, write


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
