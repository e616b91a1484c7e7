"""CPU time of this process and of children; several contenders in turns, so that all meet the same machine."""

import resource
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

PATIENCE = 120.0
"""Seconds after which a child that does not answer is ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds of several runs, the least and the median; `wall` is the median by the clock on the wall."""

    least: float
    median: float
    wall: float


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took, in seconds."""

    cpu: float
    wall: float


Contender = Callable[[], Run]
Talk = Callable[[IO[str], IO[str]], None]
"""Writes to a child's standard input and reads from its standard output, until it has what is waited for."""


def interleaved(contenders: Mapping[str, Contender], rounds: int) -> dict[str, Timing]:
    """Let all run in turns, A B A B; of several rounds the first does not count."""
    taken: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            run = contender()
            if number or rounds == 1:
                taken[name].append(run)
    return {name: _timing(runs) for name, runs in taken.items()}


def here(work: Callable[[], object], *, warm: bool = True) -> Contender:
    """`work` in this process, all threads counted; `warm` runs it once before each run that counts.

    The caches of the processor are then what `work` itself leaves behind, not what the contender before it left.
    """

    def run() -> Run:
        if warm:
            work()
        began, cpu = time.perf_counter(), time.process_time()
        work()
        return Run(time.process_time() - cpu, time.perf_counter() - began)

    return run


def child(command: Sequence[str], environ: Mapping[str, str], talk: Talk | None = None) -> Contender:
    """A process of its own, from its start until it ends, or until `talk` is through: then it is killed.

    Raises:
        RuntimeError: when it is run, if the process fails before.
    """

    def run() -> Run:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
            before, began = _children(), time.perf_counter()
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                encoding="utf-8",
                env=environ,
            ) as process:
                watchdog = threading.Timer(PATIENCE, process.kill)
                watchdog.start()
                try:
                    assert process.stdin is not None
                    assert process.stdout is not None
                    (talk or _to_the_end)(process.stdin, process.stdout)
                    wall = time.perf_counter() - began
                    if talk is not None:
                        process.kill()
                    code = process.wait()
                except (EOFError, OSError, ValueError) as error:
                    process.kill()
                    process.wait()
                    complaints.seek(0)
                    raise RuntimeError(f"{command} did not answer: {complaints.read()[-2000:]}") from error
                finally:
                    watchdog.cancel()
            if talk is None and code:
                complaints.seek(0)
                raise RuntimeError(f"{command} ended with {code}: {complaints.read()[-2000:]}")
        return Run(_children() - before, wall)

    return run


def _to_the_end(_: IO[str], stdout: IO[str]) -> None:
    while stdout.read(1 << 16):
        pass


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _timing(runs: Sequence[Run]) -> Timing:
    cpu = [run.cpu for run in runs]
    return Timing(min(cpu), statistics.median(cpu), statistics.median(run.wall for run in runs))
