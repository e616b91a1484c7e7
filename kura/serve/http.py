"""The HTTP application as a process of its own, under uvicorn."""

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from kura.access.credentials import choose_gate
from kura.access.keys import KeyRing
from kura.access.trust import Trust
from kura.library.library import Library
from kura.serve.app import SECONDS, build_app
from kura.serve.listener import listen, resolve

logger = logging.getLogger(__name__)

ENDPOINT = "endpoint"
"""Name of the file in the data directory that holds a running server's URL."""


def serve_http(
    library: Library,
    *,
    data_dir: Path,
    version: str,
    host: str = "127.0.0.1",
    port: int = 8080,
    key_hash: str | None = None,
    public: bool = False,
    tenant: str | None = None,
    user: str | None = None,
    ring: KeyRing | None = None,
    trust: Trust | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    seconds: float = SECONDS,
    requests_a_minute: int | None = None,
    log_queries: bool = False,
    traced: bool = False,
    ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve MCP and REST until the process is told to end, then finish what is under way.

    Args:
        library: The knowledge bases to serve.
        data_dir: Where the `endpoint` file is kept while the server runs.
        version: Kura's version, which callers are told.
        host: Name or address to listen on.
        port: Port to listen on; 0 takes a free one.
        key_hash: SHA-256 of the bearer key that callers must send.
        public: Whether anyone may read without a credential.
        tenant: Tenant that callers are fixed to.
        user: User that callers are fixed to.
        ring: Keys that callers may send, each with what it opens.
        trust: Which access tokens they may send.
        allowed_hosts: Host names, besides loopback and `host`, that requests may be addressed to.
        allowed_origins: Web origins whose pages may call.
        seconds: A request that takes longer is ended.
        requests_a_minute: At most so many from each caller; None is no limit.
        log_queries: Whether the words of queries may be logged.
        traced: Whether traces are sent somewhere.
        ready: Called with the server's URL once it can be reached.

    Raises:
        ConfigurationError: if it cannot listen there, or nothing says who may come in.
    """
    family, address = resolve(host, port)
    where = ipaddress.ip_address(address[0].partition("%")[0])
    gate = choose_gate(
        key_hash=key_hash,
        public=public,
        loopback=where.is_loopback,
        tenant=tenant,
        user=user,
        ring=ring,
        trust=trust,
    )
    names = (host, _in_url(str(where)))
    app = build_app(
        library,
        gate,
        version=version,
        allowed_hosts=allowed_hosts if where.is_unspecified else (*allowed_hosts, *names),
        allowed_origins=allowed_origins,
        trust=trust,
        seconds=seconds,
        requests_a_minute=requests_a_minute,
        max_answer_bytes=None,  # no gateway of ours is in the way
        log_queries=log_queries,
        traced=traced,
    )
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        # The longest query that may be asked by REST, percent-encoded, is 120,000 bytes.
        h11_max_incomplete_event_size=160 * 1024,
    )
    server = _Server(config)
    with contextlib.closing(listen(family, address, host)) as listener, _ends_quietly(server):
        reachable = "127.0.0.1" if where.is_unspecified and where.version == 4 else str(where)
        reachable = "::1" if where.is_unspecified and where.version == 6 else reachable
        url = f"http://{_in_url(reachable)}:{listener.getsockname()[1]}"
        with _endpoint(data_dir, url):
            ready(url)
            server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends without waiting for requests that are still on their way to us: there is nothing under way to be finished.

    Otherwise a client that stopped in the middle of one would hold up the end for as long as there is patience, and be
    cut off with a trace in the log.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Hang up on those, and go on as usual."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and cycle.more_body and not cycle.response_complete:
                connection.transport.close()
        await super().shutdown(sockets)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@contextlib.contextmanager
def _endpoint(data_dir: Path, url: str) -> Generator[None]:
    """Keep the server's URL in the `endpoint` file, where the data directory takes one; serving needs none."""
    path = data_dir / ENDPOINT
    try:
        _write(path, url)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        logger.warning(
            'the file "%s" cannot be written to the data directory, serving without it: %s', ENDPOINT, reason
        )
    try:
        yield
    finally:
        # Another server may have started meanwhile and put its own URL there, or somebody anything at all.
        with contextlib.suppress(OSError, UnicodeError):
            if path.read_text(encoding="utf-8").strip() == url:
                path.unlink()


def _write(path: Path, url: str) -> None:
    """Replace the file in one step, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".endpoint-", dir=path.parent, text=True)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(url + "\n")
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _ends_quietly(server: uvicorn.Server) -> Generator[None]:
    """Let SIGTERM and Ctrl-C end the server in good order, at whatever moment they come.

    Uvicorn handles both itself while it runs, finishes what is under way, and then raises them again for whoever
    handled them before. That is us, and so it is before it runs, when it must not be torn apart by an exception while
    it is being set up: all that a signal does is to be remembered.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
