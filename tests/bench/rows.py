"""What can be measured, by name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.corpus import Bench
from tests.bench.embedding import embedding
from tests.bench.keyword import keyword
from tests.bench.line import Finding
from tests.bench.nearest import nearest
from tests.bench.reindex import reindex
from tests.bench.serving import warm
from tests.bench.start import start


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, and what a reader of its figures has to know."""

    run: Callable[[Bench], Iterator[Finding]]
    about: str


ROWS: dict[str, Row] = {
    "nearest": Row(
        nearest,
        "The exact ten nearest rows of a float32 matrix (`kura.vectors.matrix.Matrix`), random vectors of unit length."
        " The limit is the fastest of several passes that read every row once: the largest number, all bits or-ed"
        " together, the sum of squares, or the matrix product without any choice of the best. Peers: numpy (product,"
        " `argpartition`, sort), faiss, usearch and sqlite-vec (in memory, over apsw), each exact and in one thread;"
        " the note says how many of their ids are ours.",
    ),
    "start": Row(
        start,
        "From the start of a process to the first answer of `search_rag`, by keyword and by meaning, over 10,000"
        " chunks: `kura mcp` greeted and asked as a client does, and the Lambda handler imported and given one event."
        " The peer is a Python that imports the MCP SDK's server and says so. Both are killed when they have answered."
        " Vectors in the databases are random; the embedder that reads the question is the real one.",
    ),
    "warm": Row(
        warm,
        "`search_rag` through the Lambda handler with a Function URL event, after it has answered before, over 10,000"
        " chunks. The peer is a server of the MCP SDK with one tool that gives back its argument, behind Mangum with"
        " one session manager per request. The embedder is `hashing`, so that serving and searching are measured and"
        " not the model.",
    ),
    "keyword": Row(
        keyword,
        "`kura.search.search` in mode keyword over 100,000 chunks of 60 to 120 words, whose frequencies are those of"
        " real text (Zipf and Mandelbrot). The peer is the bare statement over the same tables: ten row"
        " numbers by bm25, then their ten contents; it gets its FTS5 expression ready-made.",
    ),
    "embedding": Row(
        embedding,
        "multilingual-e5-small by numpy beside the C engine that its weights are published with, in one thread, and"
        " beside the network's matrix products alone.",
    ),
    "reindex": Row(
        reindex,
        "10,000 files in 100 folders, none changed, indexed again in this process, and by the command. The peers list"
        " the same files with size and time: `find` as a process, and `os.scandir` with `stat` in Python.",
    ),
}
