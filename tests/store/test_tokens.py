from pathlib import Path

import pytest

from kura.errors import ConfigurationError
from kura.store.tokens import Tokens

SECRET = "c2VjcmV0.c2VjcmV0.c2VjcmV0"


def put(file: Path, text: str) -> None:
    """As those who replace a secret do it: no reader sees half of it."""
    part = file.with_name("part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def test_without_any_there_is_no_token():
    assert Tokens().of("notes")() is None
    assert Tokens("").of("notes")() is None
    assert Tokens(" \n, ,\n").of("notes")() is None


@pytest.mark.parametrize(
    "text",
    [
        "notes=a,other=b",
        " notes = a , other = b ",
        "notes=a\nother=b\n",
        "notes=a\r\nother=b\r\n",
        "notes=a,\n\n,other=b,",
    ],
    ids=["commas", "blanks", "lines", "windows", "empty-ones"],
)
def test_each_database_has_its_own(text: str):
    tokens = Tokens(text)
    assert (tokens.of("notes")(), tokens.of("other")(), tokens.of("third")()) == ("a", "b", None)


def test_a_token_alone_is_for_every_database_that_has_none_of_its_own():
    tokens = Tokens("notes=a,anyone")
    assert (tokens.of("notes")(), tokens.of("other")()) == ("a", "anyone")


@pytest.mark.parametrize("token", ["YWJj", "YWI=", "YQ==", "a.b-c_d~e/f+g"])
def test_a_token_alone_may_end_in_what_fills_it_up(token: str):
    assert Tokens(token).of("notes")() == token
    assert Tokens(f"notes={token}").of("notes")() == token
    assert Tokens(f"notes={token}").of("other")() is None


def test_lines_that_are_comments_say_nothing(tmp_path: Path):
    (tmp_path / "tokens").write_text("# of ours\nnotes=a\n  # other=b\n")
    tokens = Tokens(file=tmp_path / "tokens")
    assert (tokens.of("notes")(), tokens.of("other")()) == ("a", None)


def test_what_a_file_says_comes_before_what_the_setting_says(tmp_path: Path):
    file = tmp_path / "tokens"
    put(file, "notes=from-the-file")
    tokens = Tokens("notes=given,other=given", file)
    assert (tokens.of("notes")(), tokens.of("other")()) == ("from-the-file", "given")


def test_a_token_for_all_in_the_file_comes_before_one_for_a_database_in_the_setting(tmp_path: Path):
    file = tmp_path / "tokens"
    put(file, "for-all")
    assert Tokens("notes=given,given-for-all", file).of("notes")() == "for-all"


def test_a_file_that_is_replaced_or_edited_is_read_again(tmp_path: Path):
    file = tmp_path / "tokens"
    put(file, "notes=first")
    token = Tokens(file=file).of("notes")
    assert token() == "first"
    put(file, "notes=other")
    assert token() == "other"
    file.write_text("notes=a-longer-one")
    assert token() == "a-longer-one"
    put(file, "")
    assert token() is None


def test_a_file_behind_a_link_is_read_again_when_the_link_is_turned(tmp_path: Path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens").write_text(f"notes={name}")
    link = tmp_path / "current"
    link.symlink_to("first")
    token = Tokens(file=link / "tokens").of("notes")
    assert token() == "first"
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").replace(link)
    assert token() == "second"


def test_a_file_that_vanishes_or_cannot_be_read_leaves_what_it_said_last(tmp_path: Path):
    file = tmp_path / "tokens"
    put(file, "notes=first")
    token = Tokens("notes=given", file).of("notes")
    file.unlink()
    assert token() == "first"
    file.mkdir()
    assert token() == "first"
    file.rmdir()
    file.write_bytes(b"\xff\xfe")
    assert token() == "first"
    put(file, "notes=second")
    assert token() == "second"


def test_a_file_that_turns_wrong_leaves_what_it_said_last(tmp_path: Path):
    file = tmp_path / "tokens"
    put(file, "notes=first")
    token = Tokens(file=file).of("notes")
    put(file, "notes=two words")
    assert token() == "first"
    put(file, "notes=second")
    assert token() == "second"


@pytest.mark.parametrize("there", ["nothing", "folder", "no-text"])
def test_a_file_that_cannot_be_read_from_the_start_is_refused(tmp_path: Path, there: str):
    if there == "folder":
        (tmp_path / "tokens").mkdir()
    elif there == "no-text":
        (tmp_path / "tokens").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="KURA_DATABASE_TOKENS_FILE does not name a file that can be read"):
        Tokens(file=tmp_path / "tokens")


@pytest.mark.parametrize(
    "bad",
    [
        f"notes={SECRET} {SECRET}",
        f"{SECRET} {SECRET}",
        f"notes={SECRET}\x00",
        f"notes={SECRET}é",
        f"Bearer {SECRET}",
        f"notes={SECRET}\u200b",
        f"notes:{SECRET} x",
    ],
)
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, bad: str):
    with pytest.raises(ConfigurationError, match="KURA_DATABASE_TOKENS must hold name=token") as caught:
        Tokens(bad)
    assert SECRET not in repr(caught.value)
    put(tmp_path / "tokens", bad)
    with pytest.raises(ConfigurationError, match="KURA_DATABASE_TOKENS_FILE must hold name=token") as caught:
        Tokens(file=tmp_path / "tokens")
    assert SECRET not in repr(caught.value)


def test_no_token_is_ever_shown(tmp_path: Path):
    put(tmp_path / "tokens", f"{SECRET},other={SECRET}")
    tokens = Tokens(f"notes={SECRET},{SECRET}", tmp_path / "tokens")
    token = tokens.of("notes")
    assert token() == SECRET
    for shown in (repr(tokens), str(tokens), repr(token), f"{tokens!r:>40}", repr([tokens])):
        assert SECRET not in shown
        assert "c2Vj" not in shown
