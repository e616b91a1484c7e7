"""A smaller model file for a deployment: the full one without the pieces that its languages have no use for.

Only the vocabulary shrinks, with its scores and its word table; the network stays as it is. What is promised, for a
text whose characters lie in the alphabet of the languages (see `kura.embed.languages`), single letters of other scripts
among them: it is cut into the same pieces, whatever it says, and so has the same vector. Where other letters stand side
by side, that is, words of a language that was not named, they turn into single letters or into unknowns, and the vector
moves a little: a Chinese article that quotes a name in Hindi, or Thai, keeps a cosine of .998.

Hence the name of the model stays, too: a database that was embedded with the full model is searched with the small one.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kura.embed import trie
from kura.embed.languages import is_needed, scripts
from kura.embed.prepared import Model, Prepared, is_prepared, open_prepared, write_prepared
from kura.embed.trie import DoubleArray
from kura.errors import ConfigurationError, EmbedderError


def build(source: Path, target: Path, languages: Sequence[str] = ()) -> Prepared:
    """Write the model file that these languages need (all, where none is named); equal input gives equal bytes.

    Args:
        source: The full prepared model file; it is verified in full.
        target: Written in one step. A file that is there already is replaced only if it is a model file.
        languages: Known codes, as `parse_languages` returns them.

    Returns:
        The new file, opened.

    Raises:
        ConfigurationError: if the target is something that must not be replaced.
        EmbedderError: if the source is damaged or not the full model, or the target cannot be written.
    """
    _require_replaceable(target, source)
    full = open_prepared(source)
    full.verify()
    if full.model.languages:
        raise EmbedderError(
            f'the model file "{source.name}" holds {", ".join(full.model.languages)} only; start from the full one'
        )
    model, tensors = prune(full, languages) if languages else (full.model, full.tensors())
    write_prepared(target, model, tensors)
    return open_prepared(target)


def prune(full: Prepared, languages: Sequence[str]) -> tuple[Model, dict[str, NDArray[Any]]]:
    """The model and the tensors of a full model file, without what these languages do not need.

    Pieces keep their order and get new ids.
    """
    kept_scripts = scripts(languages)
    model, tensors = full.model, full.tensors()
    pieces = trie.strings(DoubleArray.of(full))
    # The least score of all is what unknown characters are weighed by, so its piece stays.
    always = {model.begin, model.end, model.unknown, int(tensors["scores"].argmin())}
    kept = [id_ for id_, piece in enumerate(pieces) if id_ in always or is_needed(piece, kept_scripts)]
    index = trie.build([pieces[id_] for id_ in kept])
    tensors |= index.tensors()
    for name in ("scores", "words.codes", "words.scales"):
        tensors[name] = tensors[name][kept]
    smaller = replace(
        model,
        begin=kept.index(model.begin),
        end=kept.index(model.end),
        unknown=kept.index(model.unknown),
        longest=max(len(pieces[id_]) for id_ in kept),
        languages=tuple(languages),
    )
    return smaller, tensors


def _require_replaceable(target: Path, source: Path) -> None:
    try:
        if target.is_dir():
            raise ConfigurationError(f'"{target}" is a folder; name the file that is to be written')
        if not target.exists():
            return
        if target.samefile(source):
            raise ConfigurationError(f'"{target}" is the full model itself, which would be lost; name another file')
        if not (target.is_file() and is_prepared(target)):
            raise ConfigurationError(f'"{target}" is there and is not a model file; remove it, or name another')
    except OSError as error:
        raise EmbedderError(f'cannot write the model file "{target.name}": {error.strerror}') from error
