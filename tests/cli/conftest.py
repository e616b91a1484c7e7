"""Run `kura` as a person does: as a process of its own, with a data directory of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Kura = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kura(environment: dict[str, str], tmp_path: Path) -> Kura:
    def run(*arguments: str, stdin: str = "", **extra: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "kura", *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            input=stdin,
            env=environment | extra,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "tides.md").write_text("# Tides\n\nHigh water comes fifty minutes later each day.\n", encoding="utf-8")
    (folder / "茶.txt").write_text("绿茶用八十度左右的水，水太烫茶汤会发苦。\n", encoding="utf-8")
    return folder
