"""Whatever a file holds: the run goes through, nothing of a text is lost, and the next run finds nothing to do."""

import json
import os
import shutil
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.embed.hashing import HashingEmbedder
from kura.errors import Unreadable
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.parse import parse, read
from kura.ingest.report import Report
from kura.ingest.roots import Target, register, writing
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.sources import sources, state
from tests import anything

LONG_AGO = 1_600_000_000
NAMES = ("a.md", "b.txt", "c.py", "d", "e.csv", "f.log", "g.ts", "h.MD", "i.html", "j.json")
ENCODINGS = (
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-7", "latin-1", "cp1252",
    "cp1251", "koi8-r", "cp437", "gb18030", "gbk", "big5", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "cp1255",
    "cp1256", "cp874",
)  # fmt: skip
LINES = (
    "# A", "## B {#b}", "### C ###", "#", "Title\n===", "Sub\n---", "```", "~~~~", "```python", "````", "    code",
    "\tcode", "- item\n  - deeper", "> quote", "> > ```", "1. one", "|a|b|\n|-|-|\n|1|2|", "|a|b|\n|-", "<!-- open",
    "-->", "---", "...", "title: x", "[link](http://a.example", "![](", "[^1]: note", "<div", "</div>", "<script>",
    "$$", "\\", "&amp;", "***", "* * *", "", "", "word " * 60, "中文没有空格的一段话。" * 12, "x" * 400,
    "a'" * 300, "\0", "\x0c", "\x1b[31m", "\ufeff", "\u2028", "\x85", "\r", "a\rb\r\nc", "-" * 300, "[" * 200,
    "> " * 100, "  " * 60 + "- x",
)  # fmt: skip
BINARIES = (
    b"%PDF-1.7\n",
    b"\x89PNG\r\n\x1a\n",
    b"PK\x03\x04",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\xff\xfe\0\0",
    b"\xef\xbb\xbf",
    b"\0",
)

written = st.lists(st.sampled_from(LINES) | anything.typed, max_size=20).map("\n".join)
encoded = st.tuples(written, st.sampled_from(ENCODINGS)).map(lambda pair: pair[0].encode(pair[1], "replace"))
contents = st.one_of(
    written.map(str.encode),
    encoded,
    st.tuples(encoded, st.integers(0, 300)).map(lambda pair: pair[0][: pair[1]]),
    st.tuples(encoded, st.integers(1, 3)).map(lambda pair: pair[0][pair[1] :]),
    st.tuples(encoded, st.binary(max_size=20), encoded).map(b"".join),
    st.tuples(st.sampled_from(BINARIES), st.binary(max_size=60) | encoded).map(b"".join),
    st.binary(max_size=200),
)


class Folder:
    """A folder that is indexed into a database, again and again."""

    def __init__(self, connection: Connection, path: Path) -> None:
        path.mkdir()
        self.connection, self.path = connection, path
        self.model = Model.of(HashingEmbedder(16))
        self.root: Target = register(connection, path)
        self.clock = LONG_AGO

    def fill(self, files: dict[str, bytes]) -> None:
        shutil.rmtree(self.path)
        self.path.mkdir()
        self.clock += 1  # or a file of the same size would count as unchanged
        for name, content in files.items():
            (self.path / name).write_bytes(content)
            os.utime(self.path / name, (self.clock, self.clock))

    def index(self, *, rebuild: bool = False) -> Report:
        return reconcile(self.connection, [self.root], model=self.model, max_file_bytes=1_000_000, rebuild=rebuild)

    def chunks(self, name: str) -> list[tuple[int, str, int, int]]:
        source = sources(self.connection, self.root.root.id)[name]
        return [
            (ordinal, content, first, last)
            for ordinal, content, first, last in self.connection.rows(
                "select ordinal, content, first_line, last_line from chunks where source_id = ? order by ordinal",
                (source.id,),
            )
        ]

    def dumped(self) -> str:
        rows = self.connection.rows(
            """
            select s.path, c.ordinal, c.content, c.heading, c.first_line, c.last_line, c.tokens, v.embedding
            from sources s left join chunks c on c.source_id = s.id left join chunk_vectors v on v.id = c.vector_id
            order by s.path, c.ordinal
            """
        )
        return json.dumps(rows, default=bytes.hex)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Folder]:
    base = tmp_path_factory.mktemp("any")
    catalog = Catalog(base / "data")
    with writing(catalog.path(catalog.add("notes"))) as connection:
        yield Folder(connection, base / "docs")


@settings(max_examples=150)
@given(files=st.dictionaries(st.sampled_from(NAMES), contents, min_size=1, max_size=3))
def test_any_files_are_indexed_whole_or_named_and_only_once(folder: Folder, files: dict[str, bytes]):
    folder.fill(files)
    before = sources(folder.connection, folder.root.root.id)
    report = folder.index()
    indexed = sources(folder.connection, folder.root.root.id)
    problems = {problem.path for problem in report.problems}
    for name in files:
        try:
            got = read(str(folder.path / name), name, most=1_000_000)
            parsed = parse(name, got.data) if got else None
        except Unreadable:
            assert name in problems
            continue
        assert name not in problems
        assert (name in indexed) is (parsed is not None)
        if parsed is not None:
            assert_whole(parsed.text, folder.chunks(name))
    assert set(indexed) <= set(files)
    assert set(indexed) - set(before) <= set(files) - problems
    assert report.pending == 0

    dumped, version = folder.dumped(), state(folder.connection).version
    again = folder.index()
    assert (again.added, again.updated, again.removed, again.chunks, again.embedded) == (0, 0, 0, 0, 0)
    assert {problem.path for problem in again.problems} == problems
    assert state(folder.connection).version == version
    folder.index(rebuild=True)
    assert folder.dumped() == dumped


def assert_whole(text: str, chunks: list[tuple[int, str, int, int]]) -> None:
    assert "".join("".join(content for _, content, _, _ in chunks).split()) == "".join(text.split())
    assert [ordinal for ordinal, _, _, _ in chunks] == list(range(1, len(chunks) + 1))
    lines = text.split("\n")
    for _, content, first, last in chunks:
        assert content.strip()
        assert 1 <= first <= last <= len(lines)
        shown = "\n".join(lines[first - 1 : last])
        assert content in shown
    assert all(one[3] <= other[2] for one, other in pairwise(chunks))
