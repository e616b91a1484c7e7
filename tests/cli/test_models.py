"""`kura model`: what it writes and shows, and that a deployment can live on what it wrote."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kura.embed.prepared import open_prepared
from kura.embed.weights import prepared_file

Kura = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def model(kura: Kura, cache_dir: Path, tmp_path: Path) -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return kura("model", *arguments, KURA_CACHE_DIR=str(cache_dir))

    yield run
    assert not list(tmp_path.rglob("*.tmp"))


def fails(done: "subprocess.CompletedProcess[str]") -> str:
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    assert done.stderr.startswith("kura: ")
    return done.stderr


@pytest.mark.slow
def test_a_database_of_the_full_model_is_searched_with_the_small_one_and_nothing_else(
    kura: Kura, model: Kura, docs: Path, tmp_path: Path, cache_dir: Path
):
    built = model("build", "--out", "deploy/model.bin", "--languages", "zh,en")
    file = tmp_path / "deploy" / "model.bin"
    assert (built.returncode, built.stderr) == (0, "")
    assert f"KURA_MODEL_FILE={file}" in built.stdout
    assert "languages       en, zh" in built.stdout
    assert f"{file.stat().st_size / 1e6:.1f} MB" in built.stdout

    assert kura("add", "notes").returncode == 0
    indexed = kura("index", "notes", str(docs), KURA_EMBEDDER="e5", KURA_CACHE_DIR=str(cache_dir))
    assert indexed.returncode == 0, indexed
    small = {"KURA_EMBEDDER": "e5", "KURA_MODEL_FILE": str(file)}
    for question, source in (("when does the sea rise", "tides.md"), ("泡茶的水温", "茶.txt")):
        found = kura("search", "notes", question, "--mode", "semantic", "--json", **small)
        assert (found.returncode, found.stderr) == (0, "")
        assert json.loads(found.stdout)["semantic"][0]["source"] == source
    (docs / "moon.txt").write_text("The moon pulls the water.", encoding="utf-8")
    assert kura("index", "notes", **small).returncode == 0
    status = json.loads(kura("status", "--json", **small).stdout)
    assert status["embedder"] == "multilingual-e5-small-q4 (384 dimensions; for en, zh)"
    assert status["databases"][0]["pending"] == 0
    assert not (tmp_path / "cache").exists()


def test_show_describes_a_file_or_the_one_in_use(kura: Kura, model: Kura, cache_dir: Path, small_file: Path):
    full = json.loads(model("show", "--json").stdout)
    opened = open_prepared(prepared_file(cache_dir))
    assert full == {
        "file": str(prepared_file(cache_dir)),
        "name": "multilingual-e5-small-q4",
        "dimensions": 384,
        "languages": None,
        "pieces": opened.pieces,
        "bytes": opened.size,
    }
    assert "languages       en, zh\n" in model("show", str(small_file)).stdout
    in_use = json.loads(kura("model", "show", "--json", KURA_MODEL_FILE=str(small_file)).stdout)
    assert (in_use["languages"], in_use["pieces"] < opened.pieces) == (["en", "zh"], True)
    assert "no model file is there yet" in fails(kura("model", "show"))
    assert 'cannot read the model file "absent.bin"' in fails(kura("model", "show", "absent.bin"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "model.bin", "--languages", "en,klingon"), 'unknown language "klingon"; known: af, am, '),
        (("--out", "model.bin", "--languages", ""), "no language is named; known: "),
        (("--out", "docs", "--languages", "en"), "is a folder; name the file that is to be written"),
        (("--out", "docs/tides.md"), 'tides.md" is there and is not a model file; remove it, or name another'),
        (("--out", "docs/tides.md/model.bin"), 'cannot write the model file "model.bin": '),
    ],
    ids=["unknown language", "no language", "folder", "other file", "below a file"],
)
@pytest.mark.usefixtures("docs")
def test_what_cannot_be_built_is_one_line_and_leaves_everything_as_it_was(
    model: Kura, tmp_path: Path, arguments: tuple[str, ...], says: str
):
    before = sorted(tmp_path.rglob("*"))
    assert says in fails(model("build", *arguments))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_to_write_has_to_be_named(model: Kura):
    assert model("build").returncode == 2
