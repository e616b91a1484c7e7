"""A retrieval collection in the layout of BEIR, and the measures of how well it is searched."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CUT = 10
"""How many documents of an answer count."""


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents, queries by id, and for each query its relevant documents with their grades."""

    name: str
    documents: tuple[Document, ...]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]


def load(folder: Path) -> Collection:
    """Read a folder of `corpus.jsonl` (id, title, text), `queries.jsonl` (id, text) and `qrels.tsv`.

    The last has a header and, separated by tabs, query, document and grade; grades below one are not
    relevant. BEIR's own name for an id, `_id`, is understood. Queries that have no relevant document are left out.
    """
    relevant: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    documents = tuple(
        Document(_id(row), str(row.get("title") or ""), str(row.get("text") or ""))
        for row in _rows(folder / "corpus.jsonl")
    )
    queries = {_id(row): str(row["text"]) for row in _rows(folder / "queries.jsonl")}
    return Collection(folder.name, documents, {key: queries[key] for key in queries if key in relevant}, relevant)


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], cut: int = CUT) -> float:
    """Normalised discounted cumulative gain at `cut`, with the grade as gain and log2(rank + 1) as discount.

    (Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002; as trec_eval has it.)
    """
    return _gain([grades.get(key, 0) for key in ranked[:cut]]) / _gain(sorted(grades.values(), reverse=True)[:cut])


def recall(ranked: Sequence[str], grades: Mapping[str, int], cut: int = CUT) -> float:
    """The share of the relevant documents that are among the first `cut`."""
    return sum(key in grades for key in ranked[:cut]) / len(grades)


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _id(row: Mapping[str, Any]) -> str:
    return str(row["id"] if "id" in row else row["_id"])
