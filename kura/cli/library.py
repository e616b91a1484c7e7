"""From settings to the library that the commands search in."""

from functools import partial

from kura.chosen import elsewhere_of, load_chosen
from kura.library.library import Library
from kura.settings import Settings
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere


def open_library(settings: Settings, *, elsewhere: Elsewhere | None = None, patience: float = 2.0) -> Library:
    """The library over the data directory and servers, with the embedder that is chosen; nothing is loaded yet.

    Args:
        settings: What was set.
        elsewhere: The databases on servers, where somebody has made that already.
        patience: How many seconds to wait for what is still loading.
    """
    return Library(
        Catalog(settings.data_dir),
        partial(load_chosen, settings),
        elsewhere=elsewhere if elsewhere is not None else elsewhere_of(settings),
        vector_memory=settings.vector_memory,
        spill=settings.cache_dir,
        copies=settings.vector_copies,
        refresh_seconds=settings.refresh_seconds,
        rules=settings.rules,
        patience=patience,
    )
