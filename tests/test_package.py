"""What is installed when Kura is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import kura

PROJECT = Path(__file__).resolve().parent.parent


def test_the_wheel_holds_kura_and_nothing_else(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        check=True,
        cwd=PROJECT,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("kura_rag-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"kura", f"kura_rag-{kura.__version__}.dist-info"}
    assert "kura/py.typed" in names


def test_the_version_is_the_same_everywhere():
    assert f'version = "{kura.__version__}"' in (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
