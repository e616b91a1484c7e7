"""The workflow that people copy into their repositories, run as a runner would."""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from local.sqld import Key, Server, libsql_server

WORKFLOW = (Path(__file__).parents[2] / "examples" / "publish.yml").read_text(encoding="utf-8")
KEY = Key()


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    with libsql_server(tmp_path / "server", jwt_key=KEY.public) as server:
        yield server


def runs() -> list[str]:
    return re.findall(r"^\s+run: (.+)$", WORKFLOW, re.MULTILINE)


def environment_of(server: Server) -> dict[str, str]:
    """What the workflow sets, with the repository's variable and secret put in."""
    block = WORKFLOW[WORKFLOW.index("env:") : WORKFLOW.index("steps:")]
    given = dict(re.findall(r"^\s+([A-Z_]+): (.+)$", block, re.MULTILINE))
    values = {"vars.KURA_DATABASE_URL": server.url, "secrets.KURA_DATABASE_TOKEN": KEY.token()}
    for name, value in values.items():
        given = {key: text.replace("${{ " + name + " }}", value) for key, text in given.items()}
    assert "${{" not in str(given)
    return given


def run(folder: Path, environment: Mapping[str, str]) -> str:
    """All steps but the installation, in one checkout on a fresh machine; returns what they print."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = "\n".join(["set -e", *runs()[1:]])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_step_installs_kura_with_its_embedder():
    assert runs()[0] == "pip install 'kura-rag[e5]'"


def test_every_commit_publishes_what_it_changed(tmp_path: Path, environment: dict[str, str], server: Server):
    checkout = tmp_path / "checkout"
    (checkout / "docs").mkdir(parents=True)
    for name in ("tide", "moon", "bread"):
        (checkout / "docs" / f"{name}.md").write_text(f"# {name}\n\nAll about the {name}.\n", encoding="utf-8")
    there = environment_of(server)
    first = run(checkout, environment | there | {"KURA_DATA_DIR": str(tmp_path / "first")})
    assert "nothing is published yet" in first
    assert "3 added" in first
    assert "sources: 3 to send" in first
    (checkout / "docs" / "tide.md").write_text("# tide\n\nThe tide follows the moon.\n", encoding="utf-8")
    second = run(checkout, environment | there | {"KURA_DATA_DIR": str(tmp_path / "second")})
    assert "0 added, 1 updated, 0 removed, 2 unchanged; 1 passage written, 1 embedded" in second
    assert "sources: 1 to send, 0 to remove; passages: 1 to send, 1 to remove" in second
    third = run(checkout, environment | there | {"KURA_DATA_DIR": str(tmp_path / "third")})
    assert "nothing to send" in third
    search = [sys.executable, "-m", "kura", "search", "docs", "what does the tide follow", "--mode", "keyword"]
    found = subprocess.run(
        search,
        env=environment | there | {"KURA_DATA_DIR": str(tmp_path / "reader")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "The tide follows the moon." in found.stdout
