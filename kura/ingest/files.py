"""Finding the files below a root: what is a source, and under which name.

The rules, in the order in which they are applied:

- Hidden files and folders (a leading dot), editors' backups (`name~`), the folders that tools fill by themselves
  (`node_modules`, `bower_components`, `__pycache__`, `__MACOSX`) and folders that declare themselves as such
  (`CACHEDIR.TAG`, `pyvenv.cfg`) are left out. Names such as `build` or `dist` are not: people give them to documents.
- `.gitignore` and `.kuraignore` files at and below the root hold as git has it; in one folder `.kuraignore` has the
  last word. Files above the root are not asked: whoever registers a folder wants it.
- Links are followed. A file reached by several ways is one source, under its own name where that lies below the root,
  else under the first link in path order. A link to a folder around the root is a loop and leads nowhere. Hard links
  and copies are files of their own.
- What belongs to another registered root is left to that root.
- A name that is not valid Unicode cannot be stored or shown: it is named as a problem and left out.
- Pipes, sockets and devices are never opened.
"""

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".kuraignore")

_GENERATED = frozenset({"node_modules", "bower_components", "__pycache__", "__MACOSX"})
_MARKERS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be indexed. `path` is relative to its root, and printable."""

    path: str
    reason: str


class File(NamedTuple):
    """A file found below a root. A named tuple, because there may be a hundred thousand of them.

    Attributes:
        path: POSIX path relative to the root; the file's own name where the root is that file.
        location: Where the operating system finds it.
        size: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds.
    """

    path: str
    location: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Walk:
    """What is below a root.

    Attributes:
        files: Sorted by path.
        problems: What could not be looked at, or has no usable name.
        unread: Relative paths of folders that exist but could not be listed: nothing is known about what is in them.
    """

    files: tuple[File, ...]
    problems: tuple[Problem, ...]
    unread: tuple[str, ...]


def walk(root: Path, *, others: Collection[Path] = ()) -> Walk:
    """Find the files below `root`, or `root` itself where it is a file.

    Args:
        root: A folder or a file.
        others: Folders and files that are not this root's: other registered roots. One that contains or equals the
            root takes nothing away.

    Raises:
        FileNotFoundError: if the root is not there; other `OSError`s if it cannot be read.
    """
    real = os.path.realpath(root)
    found = root.stat()
    if stat.S_ISREG(found.st_mode):
        name = root.name
        if not _storable(name):
            return Walk((), (Problem(printable(name), _NOT_UNICODE),), ())
        return Walk((File(name, real, found.st_size, found.st_mtime_ns),), (), ())
    if not stat.S_ISDIR(found.st_mode):
        return Walk((), (Problem(printable(root.name), "is neither a folder nor a regular file"),), ())
    os.scandir(real).close()  # a root that cannot be listed is the caller's problem, not a folder like others
    state = _State(real, frozenset(os.path.realpath(other) for other in others) - {real})
    _descend(state, real, "", ())
    _follow(state)
    state.files.sort()
    return Walk(tuple(state.files), tuple(sorted(state.problems, key=lambda p: p.path)), tuple(state.unread))


def left_out(root: Path, within: str) -> str | None:
    """Why a walk from the folder `root` does not come to what is at the relative path `within`; None if it does."""
    state, prefix = _State(str(root), frozenset()), ""
    rules: _Rules = ()
    names: set[str] | None = None
    for name in within.split("/"):
        path = prefix + name
        if kind := _passed_over(name):
            return f'"{path}" is {kind}'
        try:
            names = _names(root) if names is None else names
            rules = _with_rules_of(state, str(root / prefix), prefix, names, rules)
            folder = (root / path).is_dir()
            names = _names(root / path) if folder else set[str]()
        except OSError:
            return None
        if rules and _ignored(path + "/" if folder else path, rules):
            return f'"{path}" is ignored by a {" or ".join(IGNORE_FILES)} file'
        if marks := _MARKERS & names:
            return f'"{path}" is filled by a program, as its {min(marks)} says'
        prefix = path + "/"
    return None


def printable(path: str) -> str:
    """The path as text that can be stored, printed and sent: bytes that are not Unicode appear as escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def below(path: str, folder: str) -> bool:
    """Whether the relative POSIX path is `folder` or lies in it; everything lies in the empty path."""
    return not folder or path == folder or path.startswith(folder + "/")


def reason_of(error: OSError) -> str:
    """What went wrong, in the operating system's words, without the path."""
    return (error.strerror or type(error).__name__).lower()


_NOT_UNICODE = "the name is not valid Unicode; rename it"

_Rules = tuple[tuple[str, "GitIgnoreSpec"], ...]
"""Ignore rules in force, outermost first, each with the path (ending in a slash, or empty) that it is relative to."""


@dataclass(slots=True)
class _State:
    """What one walk has gathered so far."""

    root: str
    others: frozenset[str]
    files: list[File] = field(default_factory=list[File])
    problems: list[Problem] = field(default_factory=list[Problem])
    unread: list[str] = field(default_factory=list[str])
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    folders: set[str] = field(default_factory=set[str])


def _descend(state: _State, location: str, prefix: str, rules: _Rules) -> None:
    """Gather what is in the folder at `location`; links are put aside. A stack, for trees deeper than Python's own."""
    stack = [(location, prefix, rules)]
    while stack:
        location, prefix, rules = stack.pop()
        if location in state.folders:
            continue
        try:
            with os.scandir(location) as listing:
                entries = list(listing)
        except FileNotFoundError:
            continue  # gone since its parent was listed: deleted
        except OSError as error:
            state.problems.append(Problem(prefix.rstrip("/"), f"the folder cannot be listed: {reason_of(error)}"))
            state.unread.append(prefix.rstrip("/"))
            continue
        names = {entry.name for entry in entries}
        if prefix and not _MARKERS.isdisjoint(names):
            continue
        state.folders.add(location)
        rules = _with_rules_of(state, location, prefix, names, rules)
        for entry in entries:
            folder = _take(state, entry, prefix, rules)
            if folder is not None:
                stack.append(folder)


def _take(state: _State, entry: os.DirEntry[str], prefix: str, rules: _Rules) -> tuple[str, str, _Rules] | None:
    """Put the entry where it belongs; a folder to descend into is returned."""
    name = entry.name
    if _passed_over(name):
        return None
    path = prefix + name
    try:
        if not _storable(name):
            state.problems.append(Problem(printable(path), _NOT_UNICODE))
        elif entry.is_symlink():
            # Git too takes a link for a file when it matches patterns.
            if not (rules and _ignored(path, rules)):
                state.links.append((path, entry.path))
        elif entry.is_file(follow_symlinks=False):
            if not (rules and _ignored(path, rules)) and entry.path not in state.others:
                found = entry.stat(follow_symlinks=False)
                state.files.append(File(path, entry.path, found.st_size, found.st_mtime_ns))
        elif (
            entry.is_dir(follow_symlinks=False)
            and not (rules and _ignored(path + "/", rules))
            and entry.path not in state.others
        ):
            return entry.path, path + "/", rules
    except FileNotFoundError:
        pass  # gone since the folder was listed: deleted
    except OSError as error:
        state.problems.append(Problem(path, reason_of(error)))
        state.unread.append(path)
    return None


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def _passed_over(name: str) -> str | None:
    """What kind of name it is that is never a source."""
    if name[0] == ".":
        return "hidden"
    if name[-1] == "~":
        return "an editor's backup"
    return "filled by a program" if name in _GENERATED else None


def _follow(state: _State) -> None:
    """Follow the links that were put aside, and those found on the way."""
    if not state.links:
        return
    seen = {file.location for file in state.files}
    while state.links:
        links = sorted(state.links)
        state.links.clear()
        for path, location in links:
            try:
                found = Path(location).stat()
                target = os.path.realpath(location)
            except OSError as error:
                broken = isinstance(error, FileNotFoundError)
                state.problems.append(Problem(path, "a link to nothing" if broken else reason_of(error)))
                continue
            if any(_holds(other, target) for other in state.others if not _holds(other, state.root)):
                continue
            if stat.S_ISREG(found.st_mode) and target not in seen:
                seen.add(target)
                state.files.append(File(path, target, found.st_size, found.st_mtime_ns))
            elif stat.S_ISDIR(found.st_mode) and not _holds(target, state.root):
                before = len(state.files)
                _descend(state, target, path + "/", ())
                fresh = [file for file in state.files[before:] if file.location not in seen]
                del state.files[before:]
                state.files.extend(fresh)
                seen.update(file.location for file in fresh)


def _with_rules_of(state: _State, location: str, prefix: str, names: set[str], rules: _Rules) -> _Rules:
    for name in IGNORE_FILES:
        if name not in names:
            continue
        from pathspec import GitIgnoreSpec  # noqa: PLC0415  (60 ms, and many folders have no such file)

        try:
            text = Path(location, name).read_text("utf-8", "replace").removeprefix("\ufeff")
            rules = (*rules, (prefix, GitIgnoreSpec.from_lines(text.splitlines())))
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "it holds a pattern that is not valid"
            state.problems.append(Problem(prefix + name, f"its rules are not applied: {reason}"))
    return rules


def _ignored(path: str, rules: _Rules) -> bool:
    for prefix, spec in reversed(rules):  # the innermost rule that says anything decides
        verdict = spec.check_file(path[len(prefix) :]).include
        if verdict is not None:
            return verdict
    return False


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _storable(name: str) -> bool:
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
