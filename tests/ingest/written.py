"""Files to index, and what the index says of them."""

import os
from pathlib import Path

from kura.store.sources import roots, sources
from kura.store.sqlite import Connection

LONG_AGO = 1_600_000_000


def write(path: Path, text: str, *, when: int | None = LONG_AGO) -> None:
    """Write a file, some time ago: what was written just now is looked at again by the next run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if when is not None:
        os.utime(path, (when, when))


def contents(connection: Connection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for root in roots(connection):
        for source in sources(connection, root.id).values():
            rows = connection.rows("select content from chunks where source_id = ? order by ordinal", (source.id,))
            found[f"{root.label}/{source.path}"] = [row[0] for row in rows]
    return found
