import json
import re
from typing import Any, cast

from tests.node.toolchain import FOLDER


def test_the_lock_file_names_contents_and_no_addresses():
    text = (FOLDER / "package-lock.json").read_text(encoding="utf-8")
    packages = cast(dict[str, dict[str, Any]], json.loads(text)["packages"])
    installed = {path: package for path, package in packages.items() if path}
    assert installed
    assert all("integrity" in package and "resolved" not in package for package in installed.values())
    assert "registry" not in text


def test_what_is_asked_for_is_pinned():
    asked = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    for version in (asked["dependencies"] | asked["optionalDependencies"]).values():
        assert re.fullmatch(r"\d+\.\d+\.\d+(-alpha\.\d+)?", version)
