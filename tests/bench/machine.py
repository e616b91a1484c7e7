"""What the figures were measured on."""

import os
import platform
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np


@dataclass(frozen=True, slots=True)
class Machine:
    """The state of the machine; `cores` is how many this process may use."""

    processor: str
    cores: int
    system: str
    python: str
    numpy: str
    blas: str
    sqlite: str

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.processor}, {self.cores} cores, {self.system}; Python {self.python}, numpy {self.numpy},"
            f" {self.blas}, SQLite {self.sqlite}"
        )

    def values(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def machine() -> Machine:
    """This one."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=_blas(),
        sqlite=sqlite3.sqlite_version,
    )


def load() -> str:
    """How busy the machine has been during the last minute, five and fifteen."""
    return ", ".join(f"{one:.1f}" for one in os.getloadavg())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _blas() -> str:
    configuration = cast(dict[str, Any], np.show_config(mode="dicts"))
    blas = configuration["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']} in {os.environ.get('OPENBLAS_NUM_THREADS', 'several')} thread"
