"""What can be measured, by name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.corpus import Bench
from tests.bench.embedding import embedding
from tests.bench.keyword import keyword
from tests.bench.line import Finding
from tests.bench.nearest import nearest
from tests.bench.published import hosted, loading, pushing
from tests.bench.refusing import refusing
from tests.bench.reindex import reindex
from tests.bench.serving import warm
from tests.bench.start import start
from tests.bench.tables import asked, materialized, metrics, visible


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, and what a reader of its figures has to know.

    Attributes:
        run: What measures it.
        about: What is measured, and beside what.
        missed: Where the time goes, for a row whose goals are not all reached.
    """

    run: Callable[[Bench], Iterator[Finding]]
    about: str
    missed: str = ""


ROWS: dict[str, Row] = {
    "nearest": Row(
        nearest,
        "The exact ten nearest rows of a float32 matrix (`kura.vectors.matrix.Matrix`), random vectors of unit length."
        " The limit is the fastest of several passes that read every row once: the largest number, all bits or-ed"
        " together, the sum of squares, or the matrix product without any choice of the best. Peers: numpy (product,"
        " `argpartition`, sort), faiss, usearch and sqlite-vec (in memory, over apsw), each exact and in one thread;"
        " the note says how many of their ids are ours.",
        "The products read the matrix at about the limit. Of ten thousand rows that takes a quarter of a millisecond,"
        " beside which choosing ten of all scores counts. What reads less than the matrix (eight-bit codes first,"
        " then the best"
        " few exactly) would need another library: numpy multiplies small integers ten times more slowly than float32.",
    ),
    "start": Row(
        start,
        "From the start of a process to the first answer of `search_rag`, by keyword and by meaning, over 10,000"
        " chunks: `kura mcp` greeted and asked as a client does, and the Lambda handler imported and given one event."
        " The peer is a Python that imports the MCP SDK's server and says so. Both are killed when they have answered."
        " Vectors in the databases are random; the embedder that reads the question is the real one.",
        "Two thirds of it are the import that is the peer. The rest is starlette, numpy, the schemas of the tools, the"
        " database and one question; the lines lie from a tenth below the goal to a sixth above it, and change"
        " places from run to run.",
    ),
    "warm": Row(
        warm,
        "`search_rag` through the Lambda handler with a Function URL event, after it has answered before, over 10,000"
        " chunks. The peer is a server of the MCP SDK with one tool that gives back its argument, behind Mangum with"
        " one session manager per request. The embedder is `hashing`, so that serving and searching are measured and"
        " not the model.",
        "With both modes it lies at the goal and changes sides from run to run. The answer is 170 times as long as the"
        " echo's, comes twice, and is checked against its schema; two searches run in two threads.",
    ),
    "refusing": Row(
        refusing,
        "Whether the time of a refusal tells an attacker which keys there are: a wrong secret behind the name of one of"
        " fifty keys in the catalog, beside one behind a name that nobody has. It has no goal in time; the note says"
        " how often one can be told from the other by the clock, measured in this process, closer than any network.",
    ),
    "keyword": Row(
        keyword,
        "`kura.search.search` in mode keyword over 100,000 chunks of 60 to 120 words, whose frequencies are those of"
        " real text (Zipf and Mandelbrot). The peer is the bare statement over the same tables: ten row"
        " numbers by bm25, then their ten contents; it gets its FTS5 expression ready-made.",
        "A question costs 0.6 to 0.9 ms whatever is found: the catalog is read for every one, so that a database that"
        " was taken away is gone at once; two changes of thread keep slow disks off the event loop; thirty passages"
        " with headings and line ranges are fetched, so that one source does not fill the page. Beside a statement of"
        " 0.3 ms (a rare term) this is much, beside one of 10 ms little; the geometric mean weighs both alike.",
    ),
    "embedding": Row(
        embedding,
        "multilingual-e5-small by numpy beside the C engine that its weights are published with, in one thread, and"
        " beside the network's matrix products alone.",
        "The network's matrix products alone take so long on this processor that nine chunks a second are about all it"
        " could do. The rest are softmax, GELU and the norms, which numpy does one after another, each through memory.",
    ),
    "reindex": Row(
        reindex,
        "10,000 files in 100 folders, none changed, indexed again in this process, and by the command. The peers list"
        " the same files with size and time: `find` as a process, and `os.scandir` with `stat` in Python.",
        "Nearly half is the listing itself, in Python. The rest compares each file with what the index says of it,"
        " looks for ignore files and markers in each folder, and sorts.",
    ),
    "load": Row(
        loading,
        "All vectors of a database into one float32 matrix: from its file, and from a libSQL server (sqld on the"
        " loopback address; its own CPU time is not counted). The peers read a float32 row for each chunk, fetch the"
        " same segments over bare httpx instead of libsql-client, and map a .npy file of the same matrix and read it.",
    ),
    "hosted": Row(
        hosted,
        "Row `start` with the database on a server, and what importing the driver costs by itself, and httpx.",
        "Beside what row `start` tells, the driver's import is what is added: libsql-client brings aiohttp, a third of"
        " the peer by itself. Loading ten thousand vectors takes a seventh of that.",
    ),
    "metrics": Row(
        metrics,
        "The exact ten nearest of the largest matrix by each metric of `vector_search` (`kura.vectors.metrics`), beside"
        " the limit of row `nearest`, and beside faiss, flat and in one thread, by inner product, squared distance or"
        " absolute differences.",
    ),
    "query": Row(
        asked,
        "`kura.sql.query.query` on a table of 100,000 rows with a policy, of which a hundredth are the session's,"
        " beside the bare statement on an open connection, which sees all rows; and of that time, what reading,"
        " checking"
        " and rewriting the statement take. What a quick one costs beyond its guard is a connection of its own, and"
        " reading tables and policies anew, so that none is ever out of date.",
    ),
    "materialized": Row(
        materialized,
        "A statement whose rows are put aside before anything else is evaluated, beside the same with SQLite left to"
        " merge the policy into it, which would tell of other rows; and one in which nothing can fail, so that it is"
        " merged.",
    ),
    "visible": Row(
        visible,
        "`vector_search` by cosine in a table with policies, after it has answered before, by how many of the rows the"
        " session sees; beside the matrix alone, whose rows are all compared.",
    ),
    "push": Row(
        pushing,
        "A push into an empty database on a server, beside a copy of the same file by `vacuum into`; and a push after"
        " one source of fifty chunks was indexed again, beside the whole. The server's own CPU time is not counted.",
    ),
}
