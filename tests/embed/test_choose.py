import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kura.embed import weights
from kura.embed.choose import Choice, Identity, identify_embedder, load_embedder
from kura.embed.endpoint import Endpoint
from kura.errors import ConfigurationError, EmbedderError

E5 = Identity("multilingual-e5-small-q4", 384)


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_source", lambda: None)


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("choice", ["auto", "e5"])
def test_e5_is_taken_where_its_file_is_in_the_cache(choice: Choice, cache_dir: Path) -> None:
    assert identify_embedder(choice, cache_dir=cache_dir) == E5
    embedder = load_embedder(choice, cache_dir=cache_dir)
    assert embedder is not None
    assert (embedder.name, embedder.dimension, embedder.floor) == (E5.name, E5.dimension, 0.73)


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("choice", ["auto", "e5"])
def test_a_model_file_needs_nothing_else(choice: Choice, model_file: Path, tmp_path: Path) -> None:
    assert identify_embedder(choice, cache_dir=tmp_path, model_file=model_file) == E5
    assert load_embedder(choice, cache_dir=tmp_path, model_file=model_file) is not None
    assert list(tmp_path.iterdir()) == []


def test_e5_is_there_before_its_file_is_prepared(tmp_path: Path) -> None:
    assert identify_embedder("auto", cache_dir=tmp_path) == E5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("not_installed")
def test_auto_is_none_where_nothing_is_installed(tmp_path: Path) -> None:
    assert identify_embedder("auto", cache_dir=tmp_path) is None
    assert load_embedder("auto", cache_dir=tmp_path) is None


@pytest.mark.usefixtures("not_installed")
def test_e5_that_is_not_installed_says_what_to_install(tmp_path: Path) -> None:
    for function in (identify_embedder, load_embedder):
        with pytest.raises(ConfigurationError, match=r'pip install "kura-rag\[e5\]"'):
            function("e5", cache_dir=tmp_path)


def test_hashing_and_none_are_what_they_say(tmp_path: Path) -> None:
    assert identify_embedder("hashing", cache_dir=tmp_path) == Identity("hashing-64", 64)
    hashing = load_embedder("hashing", cache_dir=tmp_path)
    assert hashing is not None
    assert hashing.name == "hashing-64"
    assert identify_embedder("none", cache_dir=tmp_path) is None
    assert load_embedder("none", cache_dir=tmp_path) is None


@pytest.mark.parametrize("choice", ["auto", "e5"])
def test_a_model_file_that_is_missing_or_no_model_is_never_passed_over(choice: Choice, tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("not a model")
    for function in (identify_embedder, load_embedder):
        with pytest.raises(ConfigurationError, match=r'no model file "absent\.bin".*KURA_MODEL_FILE'):
            function(choice, cache_dir=tmp_path, model_file=tmp_path / "absent.bin")
        with pytest.raises(EmbedderError, match=r'"text\.bin" cannot be used: it is not a prepared model file'):
            function(choice, cache_dir=tmp_path, model_file=tmp_path / "text.bin")


def test_an_endpoint_is_known_by_name_without_being_asked_and_never_picked_by_auto(tmp_path: Path) -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "model")
    assert identify_embedder("openai", cache_dir=tmp_path, endpoint=endpoint) == Identity("openai:model", None)
    of_256 = replace(endpoint, dimensions=256)
    assert identify_embedder("openai", cache_dir=tmp_path, endpoint=of_256) == Identity("openai:model", 256)
    loaded = load_embedder("openai", cache_dir=tmp_path, endpoint=of_256)
    assert loaded is not None
    assert (loaded.name, loaded.dimension) == ("openai:model", 256)
    assert identify_embedder("auto", cache_dir=tmp_path, endpoint=endpoint) == E5
    for function in (identify_embedder, load_embedder):
        with pytest.raises(ConfigurationError, match="needs an endpoint"):
            function("openai", cache_dir=tmp_path)


def test_importing_the_room_and_the_choice_brings_neither_numpy_nor_httpx() -> None:
    program = (
        "import sys, kura.embed, kura.embed.choose, kura.chosen; sys.exit(bool({'numpy', 'httpx'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
