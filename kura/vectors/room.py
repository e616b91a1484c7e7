"""Where the rows of a matrix are: in memory, or in a file that the system maps into it and can take out again."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Allocate = Callable[[int, int], NDArray[np.float32]]
"""Gives room for so many rows of so many dimensions, whose content is not defined."""


def in_memory(count: int, dimension: int) -> NDArray[np.float32]:
    """Room in memory."""
    return np.empty((count, dimension), np.float32)


def in_files(directory: Path) -> Allocate:
    """Room in files below `directory`, which have no name and are gone with the process, however it ends.

    Allocating raises `OSError` if there is no space, or the directory cannot be made.
    """

    def allocate(count: int, dimension: int) -> NDArray[np.float32]:
        if not count * dimension:
            return in_memory(count, dimension)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            if hasattr(os, "posix_fallocate"):
                # Taken at once: a disk that is full later would end the process where it writes.
                os.posix_fallocate(file.fileno(), 0, 4 * count * dimension)
            return np.asarray(np.memmap(file, np.float32, "r+", shape=(count, dimension)))

    return allocate
