"""Rows `load`, `hosted` and `push`: vectors from a file and from a libSQL server, and the way there."""

import binascii
import itertools
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from pydantic_core import from_json

from kura.embed.choose import Identity
from kura.embed.hashing import HashingEmbedder
from kura.store.catalog import Catalog
from kura.store.engine import Connection
from kura.store.publish.descent import intend, owner
from kura.store.publish.plan import plan
from kura.store.publish.published import publication, remove
from kura.store.publish.push import push
from kura.store.remote import RemoteConnection, open_remote
from kura.store.segments import centre, load, seal
from kura.store.sources import replace_source, roots, state, text_hash
from kura.store.sqlite import copy_to, open_for_reading, open_for_writing
from kura.types import Chunk
from kura.vectors.codec import Floats, unpack
from local.sqld import libsql_server
from tests.bench.children import environment, python
from tests.bench.corpus import NAME, Bench, unit_vectors
from tests.bench.line import Finding, Line, within
from tests.bench.measure import Contender, child, here, interleaved
from tests.bench.start import BARE, bare_import, first_answers

DIMENSION = 384
FROM_FILE, FROM_SERVER = 0.2, 1.0
"""CPU seconds that we want 100,000 vectors to take."""

_GOAL_AT = 100_000
_PAGE = 2_000  # float32 rows of one answer: four megabytes of base64


@dataclass(frozen=True, slots=True)
class _Published:
    """A database on this machine and on a server."""

    file: Path
    url: str


@contextmanager
def _published(bench: Bench, data_dir: Path, *, all_vectors: bool = False) -> Generator[_Published]:
    catalog = Catalog(data_dir)
    file = catalog.path(catalog.find(NAME))
    with libsql_server(bench.folder / f"server-{secrets.token_hex(4)}") as server:
        with closing(open_remote(server.url)) as remote, closing(open_for_writing(file)) as writer:
            _push(file, writer, remote, all_vectors=all_vectors)
        yield _Published(file, server.url)


def _push(file: Path, writer: Connection, remote: RemoteConnection, *, all_vectors: bool = False) -> int:
    """Publish what there is; returns about how many bytes went."""
    with closing(open_for_reading(file)) as local, local.transaction(write=False):
        planned = plan(local, remote, all_vectors=all_vectors)
        token = secrets.token_hex(8)
        intend(writer, token, "", local)
        push(local, remote, planned, token, owner(writer), lambda _done, _all: None)
        return planned.size


def loading(bench: Bench) -> Iterator[Finding]:
    """All vectors into one float32 matrix, from a file and over the network."""
    for count in bench.scale.vectors:
        with (
            _published(bench, bench.vectors(count, DIMENSION), all_vectors=True) as at,
            closing(open_for_reading(at.file)) as file,
            closing(open_remote(at.url)) as server,
            httpx.Client(base_url=at.url, headers={"Accept-Encoding": "identity"}, timeout=60) as client,
        ):
            array = bench.folder / f"{count}.npy"
            np.save(array, unit_vectors(count, DIMENSION, lean=2.0))
            contenders: dict[str, Callable[[], object]] = {
                "file": lambda file=file: load(file),
                "server": lambda server=server: load(server),
                "float32 rows from the file": lambda file=file, count=count: _rows(file, count),
                "float32 rows from the server": lambda server=server, count=count: _rows(server, count),
                "the same over bare httpx": lambda file=file, client=client: _bare(file, client),
                "an .npy file, mapped and read": lambda array=array: _mapped(array),
            }
            share = 0.2 if count < _GOAL_AT else 0.1
            timings = interleaved({name: here(work) for name, work in contenders.items()}, bench.scale.rounds_of(share))
        for ours, wanted, peers in (
            ("file", FROM_FILE, ("float32 rows from the file", "an .npy file, mapped and read")),
            (
                "server",
                FROM_SERVER,
                ("float32 rows from the server", "the same over bare httpx", "an .npy file, mapped and read"),
            ),
        ):
            for peer in peers:
                goal = within(wanted, timings[ours]) if count == _GOAL_AT else None
                wall = f"wall {timings[ours].wall * 1e3:.0f} ms beside {timings[peer].wall * 1e3:.0f} ms"
                what = f"load {count:,} × {DIMENSION}, {ours}"
                yield Line(what, timings[ours], peer, timings[peer], goal, wall)


def _rows(connection: Connection, count: int) -> Floats:
    """One float32 row a chunk, as they are stored."""
    matrix, filled, last = np.empty((count, DIMENSION), np.float32), 0, -1
    while page := connection.rows(
        "select id, embedding from chunk_vectors where id > ? order by id limit ?", (last, _PAGE)
    ):
        matrix[filled : filled + len(page)] = np.frombuffer(b"".join(row[1] for row in page), "<f4").reshape(
            len(page), DIMENSION
        )
        filled, last = filled + len(page), page[-1][0]
    return matrix


def _mapped(array: Path) -> object:
    return np.load(array, mmap_mode="r") @ np.ones(DIMENSION, np.float32)


def _bare(file: Connection, client: httpx.Client) -> Floats:
    """The same segments over the same protocol, as a person would write it who needs nothing else."""
    current, axis = state(file), centre(file, DIMENSION)
    rows = np.empty((file.one("select count(*) from chunk_vectors")[0], DIMENSION), np.float32)
    filled, last = 0, -1
    assert current.dimension == DIMENSION
    while True:
        sql = "select last_id, count, scales, along, codes from segments where last_id > ? order by last_id limit 14"
        statement = {"sql": sql, "args": [{"type": "integer", "value": str(last)}]}
        body = {"requests": [{"type": "execute", "stmt": statement}, {"type": "close"}]}
        answer = from_json(client.post("/v3/pipeline", json=body).content)
        page = answer["results"][0]["response"]["result"]["rows"]
        if not page:
            return rows
        for last_id, count, scales, along, codes in page:
            last, size = int(last_id["value"]), int(count["value"])
            unpack(
                np.frombuffer(_decoded(scales), "<f4"),
                np.frombuffer(_decoded(along), "<f4"),
                np.frombuffer(_decoded(codes), np.int8).reshape(size, DIMENSION),
                axis,
                rows[filled : filled + size],
            )
            filled += size


def hosted(bench: Bench) -> Iterator[Finding]:
    """From the start of a process to its first answer out of a database on a server."""
    hashing = HashingEmbedder()
    with _published(bench, bench.served(Identity(hashing.name, hashing.dimension))) as at:
        environ = environment(bench.folder / "nothing", "hashing") | {"KURA_DATABASES": f"{NAME}={at.url}"}
        yield from first_answers(bench, environ, "server, hashing")
    imports = {name: child(python("-c", f"import {name}"), os.environ) for name in ("libsql_client", "httpx")}
    timings = interleaved(imports | {BARE: bare_import()}, bench.scale.rounds_of(0.2))
    for name in imports:
        yield Line(f"import {name}", timings[name], BARE, timings[BARE])


def pushing(bench: Bench) -> Iterator[Finding]:
    """A push into an empty database, and one of a single source."""
    hashing = HashingEmbedder()
    with _published(bench, bench.served(Identity(hashing.name, hashing.dimension))) as at:
        sizes: dict[str, int] = {}
        with closing(open_remote(at.url)) as remote, closing(open_for_writing(at.file)) as writer:
            numbers = itertools.count()

            def whole() -> None:
                if publication(remote) is not None:
                    remove(remote)
                sizes["whole"] = _push(at.file, writer, remote)

            def delta() -> None:
                _edit(writer, next(numbers))
                sizes["delta"] = _push(at.file, writer, remote)

            def copied() -> None:
                target = bench.folder / f"copy-{next(numbers)}.db"
                copy_to(at.file, target)
                target.unlink()

            contenders: dict[str, Contender] = {
                "whole": here(whole, warm=False),
                "copied": here(copied, warm=False),
                "delta": here(delta, warm=False),
            }
            timings = interleaved(contenders, bench.scale.rounds_of(0.2))
    whole_note = f"wall {timings['whole'].wall:.2f} s, {sizes['whole'] / 1e6:.1f} MB"
    delta_note = f"wall {timings['delta'].wall * 1e3:.0f} ms, {sizes['delta'] / 1e6:.2f} MB; indexing it is counted"
    what = f"push {bench.scale.chunks:,} chunks"
    yield Line(what, timings["whole"], "a copy of the file", timings["copied"], note=whole_note)
    yield Line("push one source of 50", timings["delta"], what, timings["whole"], note=delta_note)


def _edit(writer: Connection, number: int) -> None:
    """Index one source anew, with other texts."""
    root = roots(writer)[0]
    texts = [f"edition {number} passage {n} " + "of many words that say little " * 10 for n in range(50)]
    vectors = unit_vectors(len(texts), state(writer).dimension or 1, seed=number, lean=2.0)
    replace_source(
        writer,
        root.id,
        "pages/0.md",
        content_hash=str(number),
        size=1,
        mtime_ns=number,
        chunks=[Chunk(n, text) for n, text in enumerate(texts, 1)],
        vectors={text_hash(text): vector for text, vector in zip(texts, vectors, strict=True)},
    )
    seal(writer)


def _decoded(value: dict[str, str]) -> bytes:
    data = value["base64"]
    return binascii.a2b_base64(data + "=" * (-len(data) % 4))
