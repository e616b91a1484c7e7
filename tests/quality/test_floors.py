import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

from kura.types import Mode
from tests.quality.collection import load
from tests.quality.pipeline import embedder, measure

FLOORS: list[tuple[str, Mode, float]] = [
    ("cranfield", "keyword", 0.36),
    ("cmrc2018", "keyword", 0.975),
    ("cranfield", "semantic", 0.365),
]


@pytest.mark.quality
@pytest.mark.parametrize(("collection", "mode", "floor"), FLOORS, ids=[f"{name}-{mode}" for name, mode, _ in FLOORS])
def test_public_collections_are_searched_well_enough(collection: str, mode: Mode, floor: float):
    root = os.environ.get("KURA_QUALITY_DATA")
    folder = Path(root or "") / collection
    if not root or not folder.is_dir():
        reason = (
            f"KURA_QUALITY_DATA is {f'{root}, without {collection}' if root else 'not set'}: quality is not measured"
        )
        if os.environ.get("KURA_QUALITY_REQUIRED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    assert _ndcg(folder, mode) >= floor


@cache
def _ndcg(folder: Path, mode: Mode) -> float:
    embeds = embedder() if mode == "semantic" else None
    assert embeds is not None or mode == "keyword", "the embedder is not installed"
    with tempfile.TemporaryDirectory(prefix="kura-quality-") as scratch:
        return measure(load(folder), [mode], Path(scratch), embeds)[0].ndcg
