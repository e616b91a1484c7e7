"""Which files below a root are sources, and under which names."""

import os
import socket
from pathlib import Path

import pytest

from kura.ingest.files import walk


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}", encoding="utf-8")


def paths(root: Path, *others: Path) -> list[str]:
    return [file.path for file in walk(root, others=others).files]


def test_files_come_in_the_order_of_their_paths_with_size_and_time(tmp_path: Path):
    write(tmp_path, "b.md", "a/z.md", "a/b/c.txt", "A.md")
    found = walk(tmp_path).files
    assert [file.path for file in found] == ["A.md", "a/b/c.txt", "a/z.md", "b.md"]
    for file in found:
        stat = (tmp_path / file.path).stat()
        assert (file.size, file.mtime_ns) == (stat.st_size, stat.st_mtime_ns)


def test_a_file_can_be_a_root(tmp_path: Path):
    write(tmp_path, "notes.md", "other.md")
    assert paths(tmp_path / "notes.md") == ["notes.md"]


def test_a_root_that_is_not_there_is_said_to_be_so(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        walk(tmp_path / "unmounted")


@pytest.mark.parametrize(
    "name", ["with space.md", "标题.md", "line\nbreak.md", "ünïcode.md", "back\\slash.md", "e\u0301.md"]
)
def test_odd_names_are_names(tmp_path: Path, name: str):
    write(tmp_path, name)
    assert paths(tmp_path) == [name]


def test_a_name_that_is_not_unicode_is_named_and_left_out(tmp_path: Path):
    write(tmp_path, "good.md")
    for name in (b"bad\xff.md", b"folder\xfe"):
        try:
            if name.endswith(b".md"):
                Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text("x", encoding="utf-8")  # noqa: PTH118
            else:
                Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).mkdir()  # noqa: PTH118
        except OSError:
            pytest.skip("this file system takes Unicode names only")
    found = walk(tmp_path)
    assert [file.path for file in found.files] == ["good.md"]
    assert [problem.path for problem in found.problems] == ["bad\\xff.md", "folder\\xfe"]
    assert all("rename" in problem.reason for problem in found.problems)


def test_hidden_generated_and_backup_files_are_left_out(tmp_path: Path):
    write(tmp_path, "a.md", ".hidden.md", ".git/x.md", "node_modules/p/readme.md", "__pycache__/m.txt", "a.md~")
    write(tmp_path, "env/pyvenv.cfg", "env/lib/x.txt", "target/CACHEDIR.TAG", "target/out.txt", "build/kept.md")
    assert paths(tmp_path) == ["a.md", "build/kept.md"]


def test_a_hidden_root_is_indexed_for_it_was_asked_for(tmp_path: Path):
    write(tmp_path, ".notes/a.md")
    assert paths(tmp_path / ".notes") == ["a.md"]


def test_gitignore_files_hold_for_their_own_folder_and_below(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/only-here.md\nout/\n!keep.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("/private.md\n!seen.log\n")
    write(tmp_path, "a.log", "keep.log", "only-here.md", "out/x.md", "private.md")
    write(
        tmp_path,
        "sub/b.log",
        "sub/seen.log",
        "sub/only-here.md",
        "sub/private.md",
        "sub/deep/private.md",
        "sub/out/y.md",
    )
    assert paths(tmp_path) == [
        "keep.log", "private.md", "sub/deep/private.md", "sub/only-here.md", "sub/seen.log",
    ]  # fmt: skip


def test_kuraignore_has_the_last_word_over_gitignore(tmp_path: Path):
    (tmp_path / ".gitignore").write_text("drafts/\n*.tmp.md\n")
    (tmp_path / ".kuraignore").write_text("!drafts/\nsecret.md\n")
    write(tmp_path, "drafts/a.md", "secret.md", "b.tmp.md", "c.md")
    assert paths(tmp_path) == ["c.md", "drafts/a.md"]


def test_an_ignore_file_in_any_encoding_does_not_stop_the_walk(tmp_path: Path):
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\x00[bad\n*.log\n")
    write(tmp_path, "a.md")
    assert paths(tmp_path) == ["a.md"]


def test_a_link_to_a_file_below_the_root_is_no_second_source(tmp_path: Path):
    write(tmp_path, "z/real.md")
    (tmp_path / "alias.md").symlink_to(tmp_path / "z" / "real.md")
    (tmp_path / "a-folder").symlink_to(tmp_path / "z")
    assert paths(tmp_path) == ["z/real.md"]


def test_a_file_outside_is_one_source_under_its_first_link(tmp_path: Path):
    write(tmp_path, "outside/shared.md", "root/own.md")
    for name in ("b.md", "a.md"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "outside" / "shared.md")
    assert paths(tmp_path / "root") == ["a.md", "own.md"]


def test_a_folder_outside_is_followed_once(tmp_path: Path):
    write(tmp_path, "outside/x.md", "outside/deep/y.md", "root/own.md")
    (tmp_path / "root" / "one").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "two").symlink_to(tmp_path / "outside" / "deep")
    assert paths(tmp_path / "root") == ["one/deep/y.md", "one/x.md", "own.md"]


def test_links_that_lead_around_in_circles_end(tmp_path: Path):
    write(tmp_path, "root/a/x.md", "outside/y.md")
    (tmp_path / "root" / "a" / "up").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "far-up").symlink_to(tmp_path)
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "back").symlink_to(tmp_path / "root")
    (tmp_path / "outside" / "self").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "ring1").symlink_to("ring2")
    (tmp_path / "root" / "ring2").symlink_to("ring1")
    found = walk(tmp_path / "root")
    assert [file.path for file in found.files] == ["a/x.md", "out/y.md"]
    assert [problem.path for problem in found.problems] == ["ring1", "ring2"]


def test_a_link_to_nothing_is_a_problem(tmp_path: Path):
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    [problem] = walk(tmp_path).problems
    assert problem.path == "gone.md"
    assert "link to nothing" in problem.reason


def test_hard_links_are_files_of_their_own(tmp_path: Path):
    write(tmp_path, "one.md")
    (tmp_path / "two.md").hardlink_to(tmp_path / "one.md")
    assert paths(tmp_path) == ["one.md", "two.md"]


def test_what_lies_in_another_root_is_left_to_it(tmp_path: Path):
    write(tmp_path, "a.md", "nested/b.md", "nested/c.md")
    (tmp_path / "link.md").symlink_to(tmp_path / "nested" / "b.md")
    assert paths(tmp_path, tmp_path / "nested") == ["a.md"]
    assert paths(tmp_path / "nested", tmp_path) == ["b.md", "c.md"]
    assert paths(tmp_path, tmp_path / "nested" / "b.md") == ["a.md", "nested/c.md"]


def test_pipes_and_sockets_are_not_opened(tmp_path: Path):
    write(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "to-pipe.md").symlink_to(tmp_path / "pipe.md")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.md"))
        assert paths(tmp_path) == ["a.md"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_named_and_known_to_be_unread(tmp_path: Path):
    write(tmp_path, "locked/a.md", "b.md")
    (tmp_path / "locked").chmod(0)
    try:
        found = walk(tmp_path)
    finally:
        (tmp_path / "locked").chmod(0o700)
    assert [file.path for file in found.files] == ["b.md"]
    assert found.unread == ("locked",)
    assert [problem.path for problem in found.problems] == ["locked"]


def test_a_very_deep_tree_is_walked(tmp_path: Path):
    deep = tmp_path
    for _ in range(400):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("x")
    assert len(paths(tmp_path)) == 1
