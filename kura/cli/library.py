"""From settings to the library that the commands search in."""

from functools import partial

from kura.chosen import load_chosen
from kura.search.library import Library
from kura.settings import Settings
from kura.store.catalog import Catalog


def open_library(settings: Settings, *, patience: float = 2.0) -> Library:
    """The library over the data directory, with the embedder that the settings choose; nothing is loaded yet."""
    load = partial(load_chosen, settings)
    return Library(Catalog(settings.data_dir), load, refresh_seconds=settings.refresh_seconds, patience=patience)
