"""Bytes become text, whatever they were written with; what is no text is told from what should have been."""

import codecs
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kura.errors import Unreadable
from kura.ingest.encoding import decode
from kura.ingest.parse import Parsed, is_never_text, parse, read

CHINESE = "知识库服务器把文件夹里的文件切成段落,并用关键词和语义两种方式检索。"
TAIWANESE = "這個伺服器把資料夾裡的檔案切成段落,並且用關鍵字和語意兩種方式檢索。"
JAPANESE = "このサーバーはフォルダ内のファイルを段落に分割し、キーワードと意味の両方で検索します。"
KOREAN = "이 서버는 폴더의 파일을 단락으로 나누고 키워드와 의미로 검색합니다."
RUSSIAN = "Этот сервер делит файлы в папке на абзацы и ищет по ключевым словам и по смыслу."
FRENCH = "Café déjà vu, naïve façade : où êtes-vous ?"
GERMAN = "Größe und Übermaß für die Straße, schöne Grüße"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", CHINESE),
        ("utf-8-sig", CHINESE),
        ("utf-16", CHINESE),
        ("utf-32", CHINESE),
        ("utf-16-le", f"# 标题\n\n{CHINESE}\n"),
        ("utf-16-be", f"# 标题\n\n{CHINESE}\n"),
        ("utf-16-le", "# Title\n\nplain English\n"),
        ("utf-16-be", "# Title\n\nplain English\n"),
        ("utf-16-le", CHINESE * 9),
        ("utf-32-le", CHINESE),
        ("utf-32-be", f"# Title\n\n{CHINESE}"),
        ("gb18030", CHINESE),
        ("gb18030", "𠀀中文生僻字㐀"),
        ("gbk", "你好,世界"),
        ("gbk", "name,城市\nBob,北京\nAl,上海\n"),
        ("gbk", "plain English at first\n" * 5000 + CHINESE),
        ("gbk", f"{CHINESE}and English\n" * 5000),
        ("big5", TAIWANESE),
        ("big5", TAIWANESE[:6]),
        ("big5", f"# {TAIWANESE}\n\n" * 500),
        ("shift_jis", JAPANESE),
        ("euc_jp", JAPANESE),
        ("cp949", KOREAN),
        ("cp1251", RUSSIAN),
        ("koi8-r", RUSSIAN),
        ("latin-1", "café"),
        ("latin-1", FRENCH),
        ("cp1252", GERMAN),
        ("cp1252", "price: 5 € – “fair”"),
    ],
)
def test_text_is_read_in_the_encoding_that_it_was_written_in(encoding: str, text: str):
    assert decode(text.encode(encoding)) == text


def test_a_few_broken_bytes_do_not_make_utf8_another_encoding():
    assert decode(CHINESE.encode() + b"\xff\n" + CHINESE.encode()) == f"{CHINESE}\ufffd\n{CHINESE}"


def test_zeros_and_lone_surrogates_do_not_reach_the_text():
    assert decode(b"some text with a zero\0 in it, as extracted from somewhere") == (
        "some text with a zero in it, as extracted from somewhere"
    )
    assert decode(codecs.BOM_UTF16_LE + "a\ud800b".encode("utf-16-le", "surrogatepass")) == "a\ufffdb"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_end_in_a_line_feed_whatever_they_ended_in(ends: str):
    parsed = parse("a.txt", ends.join(["one", "two", "", "four"]).encode())
    assert parsed == Parsed("one\ntwo\n\nfour", "text")


@pytest.mark.parametrize(
    ("name", "kind", "language"),
    [
        ("README.md", "markdown", None),
        ("a/b.MARKDOWN", "markdown", None),
        ("m.py", "code", "python"),
        ("M.TSX", "code", "typescript"),
        ("notes.txt", "text", None),
        ("table.csv", "text", None),
        ("Makefile", "text", None),
        ("odd.suffix", "text", None),
    ],
)
def test_the_suffix_says_how_to_split(name: str, kind: str, language: str | None):
    assert parse(name, b"words") == Parsed("words", kind, language)  # pyright: ignore[reportArgumentType]


NOISE = random.Random(7).randbytes(5000)  # noqa: S311


@pytest.mark.parametrize(
    "data", [PNG, NOISE, bytes(5000), b"%PDF-1.7\n% all ASCII from here"], ids=["png", "noise", "zeros", "pdf"]
)
def test_what_is_no_text_is_passed_over_unless_its_name_promises_text(data: bytes):
    assert parse("picture", data) is None
    assert parse("film.ts", data) is None
    with pytest.raises(Unreadable, match="not text"):
        parse("notes.md", data)


def test_an_empty_file_is_an_empty_text():
    assert parse("a.md", b"") == Parsed("", "markdown")
    assert parse("nameless", b"") == Parsed("", "text")


def test_some_suffixes_need_no_look():
    assert is_never_text("img/a.PNG")
    assert not is_never_text("a.md")
    assert not is_never_text("png")


def test_a_file_beyond_the_limit_is_refused_with_both_numbers(tmp_path: Path):
    (tmp_path / "big.csv").write_bytes(b"1,2\n" * 1000)
    with pytest.raises(Unreadable, match=r"4,000 bytes.*1,000"):
        read(str(tmp_path / "big.csv"), "big.csv", most=1000)


def test_a_large_binary_file_is_no_problem_but_no_text(tmp_path: Path):
    (tmp_path / "blob").write_bytes(bytes(100_000))
    assert read(str(tmp_path / "blob"), "blob", most=1000) is None


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(Unreadable, match="regular"):
        read(str(tmp_path / "pipe.md"), "pipe.md", most=1000)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path):
    (tmp_path / "x.md").mkdir()
    with pytest.raises(Unreadable):
        read(str(tmp_path / "x.md"), "x.md", most=1000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path):
    (tmp_path / "x.md").write_text("x")
    (tmp_path / "x.md").chmod(0)
    with pytest.raises(Unreadable, match="denied"):
        read(str(tmp_path / "x.md"), "x.md", most=1000)


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused_and_never_anything_else(data: bytes):
    try:
        text = decode(data)
    except Unreadable:
        return
    text.encode()
    assert "\0" not in text


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=300))
def test_utf8_is_read_as_it_is(text: str):
    if not text.startswith("\ufeff") and "\ufffd" not in text:
        try:
            assert decode(text.encode()) == text
        except Unreadable as error:
            assert "is not text but" in str(error)  # it began like an image, by chance  # noqa: PT017


@pytest.mark.parametrize("name", ["x", "x.md"])
@pytest.mark.parametrize(
    "data",
    [b"%PDF-\0\1\1\1\1\1\1\1\1\1", b"PK\x03\x04\x14\0\x08\0", b"BZh9\0A\0B\0C\0D\0E\0F\0G"],
    ids=["PDF", "ZIP", "bzip2"],
)
def test_a_short_binary_file_is_not_taken_for_utf16_by_its_zeros(name: str, data: bytes):
    if name == "x":
        assert parse(name, data) is None
    else:
        with pytest.raises(Unreadable, match="is not text but"):
            parse(name, data)
