"""Bytes to text. The one door for all formats: a table from suffix to the function that reads it."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from kura.errors import Unreadable
from kura.ingest.encoding import HEAD, decode, is_binary
from kura.ingest.files import reason_of

Kind = Literal["markdown", "code", "text"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text of a file: lines end in a line feed (so they count as in the file), no NUL, no lone surrogate.

    Attributes:
        text: What the file says.
        kind: How it is to be split.
        language: The programming or data language, where the suffix tells one.
    """

    text: str
    kind: Kind
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """The bytes of a file, with its size and time as they were when it was opened."""

    data: bytes
    size: int
    mtime_ns: int


def read(location: str, name: str, *, most: int) -> Read | None:
    """Read a file that may hold text.

    Args:
        location: Where it is.
        name: Its name or path; the suffix counts.
        most: Bytes beyond which it is not read.

    Returns:
        None where the file is no text and does not claim to be. Of such a file only the beginning is read.

    Raises:
        FileNotFoundError: if it is gone.
        Unreadable: if it cannot be read, is larger than `most`, or has become something that is no file.
    """
    # Not to wait for a writer, should the name have become a pipe since the folder was listed.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(location, flags), "rb") as file:  # noqa: PTH123  (opens a descriptor)
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("is no longer a regular file")
            head = file.read(HEAD)
            if is_binary(head) and not _claims_text(name):
                return None
            if found.st_size > most:
                raise Unreadable(f"holds {found.st_size:,} bytes; at most {most:,} are read (KURA_MAX_FILE_BYTES)")
            # A file that grows meanwhile is taken as it was; its new size tells the next run.
            data = head + file.read(max(found.st_size - len(head), 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"cannot be read: {reason_of(error)}") from error
    return Read(data, found.st_size, found.st_mtime_ns)


def parse(name: str, data: bytes) -> Parsed | None:
    """Turn the bytes of a file into text, by the format that its suffix stands for.

    Args:
        name: The file's name or path.
        data: All of its bytes.

    Returns:
        None where the bytes are no text, and the name does not claim that they are.

    Raises:
        Unreadable: if the name claims text and the bytes are none, or are in an encoding that cannot be told.
    """
    parser = _FORMATS.get(_suffix(name), _parse_text)
    try:
        return parser(data)
    except Unreadable:
        if _claims_text(name):
            raise
        return None


def is_never_text(name: str) -> bool:
    """Whether the suffix alone tells that the file is no text, so that it need not be opened."""
    return _suffix(name) in _NEVER_TEXT


def _parse_text(data: bytes, *, kind: Kind = "text", language: str | None = None) -> Parsed:
    text = decode(data)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return Parsed(text, kind, language)


def _words(text: str) -> list[str]:
    return text.split()


_LANGUAGES: Mapping[str, str] = {
    "bash": "bash sh zsh fish",
    "c": "c h",
    "c#": "cs",
    "c++": "cc cpp cxx hh hpp hxx",
    "clojure": "clj cljs edn",
    "css": "css less sass scss",
    "dart": "dart",
    "elixir": "ex exs",
    "erlang": "erl",
    "f#": "fs fsx",
    "go": "go",
    "graphql": "graphql gql",
    "groovy": "gradle groovy",
    "haskell": "hs",
    "html": "htm html xhtml",
    "java": "java",
    "javascript": "cjs js jsx mjs",
    "json": "json json5 jsonl ndjson",
    "julia": "jl",
    "kotlin": "kt kts",
    "lisp": "el lisp scm",
    "lua": "lua",
    "nix": "nix",
    "objective-c": "m mm",
    "ocaml": "ml mli",
    "perl": "pl pm",
    "php": "php",
    "powershell": "ps1 psm1",
    "protobuf": "proto",
    "python": "py pyi",
    "r": "r",
    "ruby": "rb",
    "rust": "rs",
    "scala": "scala",
    "sql": "sql",
    "svelte": "svelte",
    "swift": "swift",
    "terraform": "hcl tf",
    "toml": "toml",
    "typescript": "cts mts ts tsx",
    "vue": "vue",
    "xml": "xml xsd xsl",
    "yaml": "yaml yml",
    "zig": "zig",
}
_FORMATS: Mapping[str, Callable[[bytes], Parsed]] = {
    **dict.fromkeys(_words("md markdown mdown mdx mkd qmd rmd"), partial(_parse_text, kind="markdown")),
    **dict.fromkeys(_words("adoc asciidoc csv log org rst tex text tsv txt"), _parse_text),
    **{
        suffix: partial(_parse_text, kind="code", language=language)
        for language, suffixes in _LANGUAGES.items()
        for suffix in _words(suffixes)
    },
}
"""The door: what reads a file of that suffix. Files of other suffixes are text if they look like it."""

# `ts` may be a film and `m`, `mm`, `fs`, `r`, `el` may be anything: these do not promise text.
_AMBIGUOUS = frozenset({"ts", "mts", "m", "mm", "fs", "r", "el", "pl", "ml", "h", "log"})

_NEVER_TEXT = frozenset(
    _words("""
    3gp 7z a aac ai aif aiff apk avi avif bin blend bmp br bz2 cab class dat db db3 deb dll dmg doc docm docx dylib eot
    epub exe feather flac flv gif glb gz h5 hdf5 heic heif icns ico img iso jar jpeg jpg key lib lz4 lzma m4a m4v mdb
    mkv mo mov mp3 mp4 mpeg mpg msi npy npz numbers o obj odg odp ods odt ogg onnx opus orc otf pack pages parquet pdf
    pickle pkl png pot ppt pptx psd pt pth pyc pyd pyo rar rpm safetensors so sqlite sqlite3 swf tar tgz tif tiff ttc
    ttf war wasm wav webm webp whl wma wmv woff woff2 xls xlsm xlsx xz zip zst
    """)
)


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix[1:].lower()


def _claims_text(name: str) -> bool:
    suffix = _suffix(name)
    return suffix in _FORMATS and suffix not in _AMBIGUOUS
