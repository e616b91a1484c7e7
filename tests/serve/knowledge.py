"""A small library to serve in tests: one database of nobody, one of each of two tenants."""

from pathlib import Path

from kura.embed.hashing import HashingEmbedder
from kura.library.library import Library
from kura.store.catalog import Catalog
from kura.store.sources import add_root, replace_source, set_embedder, text_hash
from kura.store.sqlite import open_for_writing
from kura.text.passage import passage
from kura.types import Chunk

NOTES = {
    "guide/rag.md": [
        Chunk(1, "Retrieval finds passages before the model answers.", ("RAG",), 1, 4),
        Chunk(2, "A passage names the file and the lines that it comes from.", ("RAG", "Sources"), 5, 9),
    ],
    "指南/檢索.md": [Chunk(1, "檢索會先找到段落，模型再根據段落回答。", (), 1, 2)],
}


def fill(data_dir: Path) -> None:
    """Create the databases below `data_dir`."""
    catalog = Catalog(data_dir)
    _add(catalog, "notes", None, NOTES)
    for tenant in ("acme", "globex"):
        _add(catalog, f"{tenant}-plans", tenant, {"plan.md": [Chunk(1, f"The plan of {tenant} is secret.")]})


def open_library(data_dir: Path) -> Library:
    return Library(Catalog(data_dir), HashingEmbedder, refresh_seconds=0.0)


def _add(catalog: Catalog, name: str, tenant: str | None, files: dict[str, list[Chunk]]) -> None:
    embedder = HashingEmbedder()
    connection = open_for_writing(catalog.path(catalog.add(name, tenant)))
    set_embedder(connection, embedder.name, embedder.dimension)
    root = add_root(connection, f"/somewhere/{name}", name)
    for path, chunks in files.items():
        texts = [passage(chunk.heading, chunk.content) for chunk in chunks]
        vectors = embedder.embed(texts, "passage")
        replace_source(
            connection,
            root.id,
            path,
            content_hash=text_hash("".join(texts)),
            size=1,
            mtime_ns=1,
            chunks=chunks,
            vectors={text_hash(text): vector for text, vector in zip(texts, vectors, strict=True)},
        )
    connection.close()
