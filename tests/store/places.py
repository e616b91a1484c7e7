"""Where tests keep a database: in a file, or on a libSQL server."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import pytest

from kura.store.engine import Connection, Reader


@dataclass(frozen=True, slots=True)
class Place:
    """One database, to be opened as often as a test wants."""

    write: Callable[[], Connection]
    read: Callable[[], Connection]
    reader: Callable[[Executor], Reader]


in_a_file = pytest.mark.parametrize("empty", ["file"], indirect=True)
on_a_server = pytest.mark.parametrize("empty", ["sqld"], indirect=True)
