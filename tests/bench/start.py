"""Row `start`: from the start of a process to its first answer."""

import json
import os
from collections.abc import Callable, Iterator

from kura.embed.choose import Choice, Identity, identify_embedder, load_embedder
from kura.errors import ConfigurationError
from kura.settings import Settings
from tests.bench.children import Json, asking, environment, one_line, python, question, search_call
from tests.bench.corpus import Bench
from tests.bench.line import Finding, Line, Skipped, at_most
from tests.bench.measure import Contender, child, interleaved
from tests.serve.running import JSON, event

GOAL = 1.5
BARE = "import mcp.server.mcpserver"

_ASKED = (60, 400)
# Both sides wait to be ended, so that neither counts what a process does when it ends by itself.
_BARE = f"{BARE}; print('{{}}', flush=True); input()"
_INVOKE = """
import sys
from handler.app import handler
import json
print(handler(json.loads(sys.argv[1]), None)["body"], flush=True)
input()
"""


def start(bench: Bench) -> Iterator[Finding]:
    """`kura mcp` and the Lambda handler, with either embedder, beside a process that only imports the SDK's server."""
    answers: dict[str, Json] = {}
    contenders: dict[str, Contender] = {}
    for choice in bench.scale.embedders:
        try:
            embedder = _ready(choice)
        except ConfigurationError as error:
            yield Skipped(f"start to first answer, {choice}", str(error))
            continue
        contenders |= _contenders(environment(bench.served(embedder), choice), choice, answers)
    yield from _beside_the_import(bench, contenders, answers)


def first_answers(bench: Bench, environ: dict[str, str], kind: str) -> Iterator[Finding]:
    """Both ways to start, with this environment, beside the same import."""
    answers: dict[str, Json] = {}
    yield from _beside_the_import(bench, _contenders(environ, kind, answers), answers)


def bare_import() -> Contender:
    """A process that only imports the SDK's server."""
    return child(python("-c", _BARE), os.environ, one_line(lambda _: None))


def _beside_the_import(bench: Bench, contenders: dict[str, Contender], answers: dict[str, Json]) -> Iterator[Finding]:
    contenders = {BARE: bare_import(), **contenders}
    timings = interleaved(contenders, bench.scale.rounds_of(0.2))
    bare = timings.pop(BARE)
    for name, ours in timings.items():
        wall = f"wall {ours.wall:.2f} s beside {bare.wall:.2f} s"
        note = f"{bench.scale.chunks:,} chunks; {wall}; {_said(answers[name])}"
        yield Line(f"first answer, {name}", ours, BARE, bare, at_most(GOAL, ours, bare), note)


def _ready(choice: Choice) -> Identity:
    """The embedder's identity, once the model's file is prepared: that happens once per machine, not per process."""
    settings = Settings(embedder=choice)
    load_embedder(choice, cache_dir=settings.cache_dir, model_file=settings.model_file)
    identity = identify_embedder(choice, cache_dir=settings.cache_dir, model_file=settings.model_file)
    assert identity is not None
    return identity


def _contenders(environ: dict[str, str], kind: str, answers: dict[str, Json]) -> dict[str, Contender]:
    """Both ways to start, by name; what they answer goes into `answers`."""
    q = question(*_ASKED)
    body = json.dumps(search_call(q)).encode()
    invocation = json.dumps(event("function_url", "POST", "/mcp", headers=JSON, body=body))
    stdio, hosted = f"kura mcp, {kind}", f"Lambda handler, {kind}"

    def keep(name: str) -> Callable[[Json], None]:
        return lambda answer: answers.update({name: answer})

    return {
        stdio: child(python("-m", "kura", "mcp"), environ, asking(q, keep(stdio))),
        hosted: child(python("-c", _INVOKE, invocation), environ, one_line(keep(hosted))),
    }


def _said(answer: Json) -> str:
    result = answer["result"]
    if result.get("isError"):
        raise RuntimeError(f"the search failed: {result['content']}")
    found: Json = result["structuredContent"]
    notices = found.get("notices", [])
    return "; ".join(
        [f"answered by {' and '.join(mode for mode in ('keyword', 'semantic') if mode in found)}", *notices]
    )
