"""A path that a person types becomes a root, or an error that says what is wrong with it."""

from pathlib import Path

import pytest

from kura.errors import IngestError
from kura.ingest.roots import register, resolved
from kura.store.sources import roots
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
