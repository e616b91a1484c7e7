"""A path that a person types becomes a root, or an error that says what is wrong with it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kura.errors import IngestError
from kura.ingest.index import reconcile
from kura.ingest.roots import left_out_of, register, require_usable, resolved
from kura.store.sources import roots, sources, state
from kura.store.sqlite import Connection


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loop", "link"),
        ("loop/inside.md", "link"),
        ("n" * 300, "name too long"),
        ("n/" * 3000, "name too long"),
        ("~nobody-of-this-name/notes", "no such home folder"),
        ("nul\0inside", "character"),
        ("byte\udcff", "not valid Unicode"),
        ("nowhere", "there is no file or folder"),
        ("plain.md/inside", "there is no file or folder"),
    ],
    ids=["loop", "in a loop", "long name", "long path", "stranger", "nul", "not unicode", "absent", "in a file"],
)
def test_a_path_that_cannot_be_a_root_is_named_with_the_reason(
    connection: Connection, tmp_path: Path, name: str, reason: str
):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "plain.md").write_text("plain")
    path = Path(name) if name.startswith("~") else tmp_path / name
    with pytest.raises(IngestError, match=reason) as caught:
        register(connection, path)
    assert path.name.partition("\udcff")[0] in str(caught.value)
    str(caught.value).encode()
    assert roots(connection) == []


@pytest.mark.parametrize("name", ["~nobody-of-this-name/notes", "nul\0inside"], ids=["stranger", "nul"])
def test_a_path_that_cannot_be_is_not_resolved(name: str):
    with pytest.raises(IngestError, match="cannot be used"):
        resolved(Path(name))


def test_a_path_is_resolved_whether_or_not_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    real = tmp_path.resolve()
    assert resolved(Path("~/gone")) == resolved(Path("gone")) == real / "gone"
    assert resolved(Path("link/a.md")) == real / "folder" / "a.md"


def test_a_root_is_called_as_asked_or_else_by_its_name_and_keeps_that(connection: Connection, tmp_path: Path):
    for name in ("notes", "one", "two"):
        (tmp_path / name).mkdir()
    labels = [("notes", None), ("one", "inbox"), ("two", "inbox"), ("one", "other"), ("one", None)]
    found = [register(connection, tmp_path / name, label=label).root.label for name, label in labels]
    assert found == ["notes", "inbox", "inbox-2", "inbox", "inbox"]


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """A folder with things that a walk leaves out, and some that it does not."""
    folder = tmp_path / "outer"
    for name in (".hidden.md", ".obsidian/plugin.md", "node_modules/p/readme.md", "notes.md~", "out/report.md",
                 "cache/CACHEDIR.TAG", "cache/page.md", "sub/draft.md", "sub/kept.md", "plain.md"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"the text of {name}")
    (folder / ".gitignore").write_text("out/\n")
    (folder / "sub" / ".kuraignore").write_text("draft.md\n")
    return folder


LEFT_OUT = {
    ".hidden.md": "hidden",
    ".obsidian": "hidden",
    ".obsidian/plugin.md": '".obsidian" is hidden',
    "node_modules": "filled by a program",
    "node_modules/p/readme.md": "filled by a program",
    "notes.md~": "backup",
    "out": "ignored by a .gitignore or .kuraignore file",
    "out/report.md": '"out" is ignored',
    "cache": "CACHEDIR.TAG",
    "cache/page.md": "CACHEDIR.TAG",
    "sub/draft.md": '"sub/draft.md" is ignored',
}


@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("registered", [True, False], ids=["below a root", "by itself"])
def test_what_a_folder_leaves_out_is_indexed_where_it_is_named(
    connection: Connection, outer: Path, name: str, registered: bool
):
    if registered:
        register(connection, outer)
    before = roots(connection)
    target = register(connection, outer / name)
    assert (target.within, target.root.path) == ("", str((outer / name).resolve()))
    assert (LEFT_OUT[name] in (left_out_of(before, target.root) or "")) is registered
    report = reconcile(connection, model=None, max_file_bytes=1000)
    assert (report.problems, report.removed) == ((), 0)
    assert len(sources(connection, target.root.id)) == 1 + (name == "cache")
    again = reconcile(connection, model=None, max_file_bytes=1000)
    assert (again.added, again.removed) == (0, 0)
    assert register(connection, outer / name) == target


@pytest.mark.parametrize("name", ["plain.md", "sub", "sub/kept.md", ".gone.md", "sub/gone.md"])
def test_what_a_root_holds_or_held_is_a_part_of_it(connection: Connection, outer: Path, name: str):
    root = register(connection, outer).root
    target = register(connection, outer / name)
    assert (target.root, target.within) == (root, name)
    assert left_out_of([root], root) is None


def large(path: Path) -> None:
    path.write_text("x" * 2000)


def binary(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7\n" + bytes(range(256)))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unlisted(path: Path) -> None:
    path.mkdir(mode=0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may list every folder")


def nothing(_path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("paper.pdf", binary, "not text; text, Markdown and source code can be indexed, so convert it"),
        ("paper", binary, "not text"),
        ("paper.md", binary, "not text but a PDF document"),
        ("film.mp4", large, "not text"),
        ("large.md", large, r"2,000 bytes; at most 1,000 are read \(KURA_MAX_FILE_BYTES\)"),
        ("pipe", pipe, "neither a folder nor a regular file"),
        ("folder", unlisted, "denied"),
        ("nowhere", nothing, "there is no file or folder"),
    ],
    ids=["PDF", "PDF without suffix", "PDF with another suffix", "film", "large", "pipe", "unlisted", "nowhere"],
)  # fmt: skip
def test_what_nothing_can_be_indexed_from_is_refused_before_anything_is_registered(
    connection: Connection, tmp_path: Path, name: str, make: Callable[[Path], None], reason: str
):
    (tmp_path / "good.md").write_text("good")
    make(tmp_path / name)
    version = state(connection).version
    with pytest.raises(IngestError, match=reason) as caught:
        require_usable(connection, [tmp_path / "good.md", tmp_path / name], max_file_bytes=1000)
    assert name in str(caught.value)
    assert (roots(connection), state(connection).version) == ([], version)


def test_a_part_of_a_root_has_to_be_there_or_in_the_index(connection: Connection, outer: Path):
    register(connection, outer)
    reconcile(connection, model=None, max_file_bytes=1000)
    (outer / "plain.md").unlink()
    require_usable(connection, [outer / "plain.md", outer / "sub", outer], max_file_bytes=1000)
    for gone in ("plane.md", ".hiden.md", "sub/deep"):
        with pytest.raises(IngestError, match=f'there is no file or folder ".*{gone}"'):
            require_usable(connection, [outer / gone], max_file_bytes=1000)
