"""A relay on the way to a server: it counts what comes back, keeps it, and breaks off where a test says so."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from urllib.parse import urlsplit


class Relay:
    """Passes bytes on in both directions, for any number of connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.received = bytearray()
        self.cut_after: int | None = None
        """Bytes from the server after which every connection is cut; None cuts none."""
        self.on_cut: Callable[[], object] = lambda: None
        """Called at the first of these cuts."""
        self.flowing = threading.Event()
        """Cleared, nothing comes back until it is set again."""
        self.flowing.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def statuses(self) -> set[int]:
        """The HTTP statuses that the server has answered with."""
        return {int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", bytes(self.received))}

    def close(self) -> None:
        self.flowing.set()
        self._listening.close()
        with self._lock:
            for each in self._open:
                each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._to) as server:
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=self._back, args=(server, client), daemon=True)
            back.start()
            while data := client.recv(65_536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            back.join()

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                self.flowing.wait()
                with self._lock:
                    left = None if self.cut_after is None else max(0, self.cut_after - len(self.received))
                    self.received += data
                client.sendall(data if left is None else data[:left])
                if left is not None and left < len(data):
                    on_cut, self.on_cut = self.on_cut, lambda: None
                    on_cut()
                    break
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(url: str) -> Generator[Relay]:
    """A relay to that server for the time of the block."""
    relay = Relay(url)
    try:
        yield relay
    finally:
        relay.close()
