"""Which embedder a process has, by its settings and by what is installed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kura.errors import ConfigurationError

if TYPE_CHECKING:
    from kura.embed import Embedder
    from kura.embed.endpoint import Endpoint

Choice = Literal["auto", "e5", "openai", "hashing", "none"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a database remembers of the embedder that its vectors come from, and what a person may want to know.

    `dimension` is None where only the embedder's first answer tells it. `languages` are those that a model file is cut
    down to; none for one that has all, and for what is no model file.
    """

    name: str
    dimension: int | None
    languages: tuple[str, ...] = ()


def identify_embedder(
    choice: Choice, *, cache_dir: Path, model_file: Path | None = None, endpoint: "Endpoint | None" = None
) -> Identity | None:
    """Say what `load_embedder` would return, without loading it or asking anyone; takes about a millisecond.

    Raises:
        ConfigurationError: if the embedder was asked for by name and is not there, or `model_file` is not a file.
        EmbedderError: if `model_file` is not a usable model file.
    """
    # The embedders import numpy, which this module's callers may not need.
    if choice == "hashing":
        from kura.embed.hashing import HashingEmbedder  # noqa: PLC0415

        hashing = HashingEmbedder()
        return Identity(hashing.name, hashing.dimension)
    if choice == "openai":
        known = _needed(endpoint)
        return Identity(known.name, known.dimensions)
    if choice == "none":
        return None
    from kura.embed import prepared, weights  # noqa: PLC0415

    if model_file is not None:
        model = prepared.read_model(_existing(model_file))
        return Identity(model.name, model.dimension, model.languages)
    if weights.find_prepared(cache_dir) or weights.find_source():
        return Identity(weights.NAME, weights.DIMENSION)
    if choice == "e5":
        raise weights.not_installed()
    return None


def load_embedder(
    choice: Choice, *, cache_dir: Path, model_file: Path | None = None, endpoint: "Endpoint | None" = None
) -> "Embedder | None":
    """Load the embedder that the settings ask for.

    Args:
        choice: `auto` takes e5 where it is installed, and otherwise none; never an endpoint, which someone may have to
            pay for and which sees the texts.
        cache_dir: Where the prepared model file is kept. Preparing it, the first time, takes about five seconds.
        model_file: A prepared model file to use instead; then nothing else needs to be installed.
        endpoint: What `openai` stands for. It is not asked anything before there is something to embed.

    Returns:
        The embedder; None for `none`, and for `auto` where nothing is installed.

    Raises:
        ConfigurationError: if the embedder was asked for by name and is not there, or `model_file` is not a file.
        EmbedderError: if the model file is damaged and cannot be mended.
    """
    if choice == "hashing":
        from kura.embed.hashing import HashingEmbedder  # noqa: PLC0415

        return HashingEmbedder()
    if choice == "openai":
        from kura.embed.openai import OpenAIEmbedder  # noqa: PLC0415

        return OpenAIEmbedder(_needed(endpoint))
    if identify_embedder(choice, cache_dir=cache_dir, model_file=model_file) is None:
        return None
    from kura.embed import weights  # noqa: PLC0415
    from kura.embed.e5 import E5  # noqa: PLC0415

    return E5.load(weights.prepared_file(cache_dir) if model_file is None else model_file)


def _needed(endpoint: "Endpoint | None") -> "Endpoint":
    if endpoint is None:
        raise ConfigurationError('the embedder "openai" needs an endpoint')
    return endpoint


def _existing(model_file: Path) -> Path:
    if not model_file.is_file():
        raise ConfigurationError(
            f'there is no model file "{model_file.name}" where the setting model_file (KURA_MODEL_FILE) points'
        )
    return model_file
