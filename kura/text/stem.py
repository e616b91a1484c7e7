"""The Porter2 (Snowball) stemmer for English."""

import functools
import importlib
import importlib.util
import sys
from typing import Protocol


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  (snowballstemmer's own name)


class _Language(Protocol):
    def __call__(self) -> _Stemmer: ...


def _english() -> _Language:
    # Importing the package loads its 35 languages: 170 ms and 14 MB at every cold start. Its English module alone is
    # 10 ms, so it is imported below a package whose __init__ has not run.
    package = "snowballstemmer"
    if package in sys.modules:
        return importlib.import_module(f"{package}.english_stemmer").EnglishStemmer
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{package}.english_stemmer").EnglishStemmer
    finally:
        del sys.modules[package]


_EnglishStemmer = _english()
_REMEMBERED = 32_768  # words, each about 45 µs to stem


@functools.lru_cache(maxsize=_REMEMBERED)
def stem(word: str) -> str:
    """Return what the inflected forms of an English word, in lower case, have in common."""
    return _EnglishStemmer().stemWord(word)  # one stemmer a call: it keeps the word it works on in itself
