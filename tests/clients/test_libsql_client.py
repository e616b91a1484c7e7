"""Somebody else's client of libSQL servers reads what was published."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

from kura.store.catalog import Catalog
from kura.store.remote import open_remote
from kura.store.sqlite import open_for_reading
from local.sqld import Key, libsql_server
from tests.node import toolchain
from tests.serve.knowledge import fill
from tests.store.publish.publishing import publish

SAME = (
    "select id, root_id, path, content_hash from sources order by id",
    "select id, source_id, ordinal, heading, first_line, last_line, content, vector_id from chunks order by id",
    "select rowid, round(bm25(chunks_fts), 12) from chunks_fts where chunks_fts match '\"passag\"' order by rowid",
    "select rowid, round(bm25(chunks_fts), 12) from chunks_fts where chunks_fts match '\"段落\"' order by rowid",
    "select id, hex(embedding) from chunk_vectors order by id",
    "select embedder, dimension, tokenizer, tenant from state",
    "select version, name from kura_migrations order by version",
)


def test_an_independent_client_reads_what_was_published(tmp_path: Path):
    toolchain.require()
    key = Key()
    fill(tmp_path / "data")
    catalog = Catalog(tmp_path / "data")
    entry = catalog.find("notes")
    with libsql_server(tmp_path / "server", jwt_key=key.public) as server:
        with closing(open_remote(server.url, key.token)) as remote:
            publish(catalog, entry, remote)
        asked = {
            "url": server.url,
            "token": key.token(read_only=True),
            "statements": [*SAME, "select token <> '', parent, undo, all_vectors from publication"],
        }
        command = [toolchain.node(), toolchain.FOLDER / "libsql.mjs", json.dumps(asked)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    *got, publication = json.loads(output)
    with closing(open_for_reading(catalog.path(entry))) as local:
        wanted = [[list(row) for row in local.rows(sql)] for sql in SAME]
    assert got == wanted
    assert all(wanted)
    assert publication == [[1, None, None, 0]]
