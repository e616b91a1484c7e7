"""The socket that a server listens on, and in words why there is none."""

import errno
import os
import socket

from kura.errors import ConfigurationError


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The family and address to listen on for a host's name or address.

    Raises:
        ConfigurationError: if there is no such port, or the host is none of this machine.
    """
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"port {port} does not exist: choose one from 1 to 65535, or 0 for any free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigurationError(f'cannot listen on "{host}": it is no name or address of this machine') from None
    # IPv4 first: it is what clients try when they are told "localhost".
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), int(address[1]))


def listen(family: socket.AddressFamily, address: tuple[str, int], host: str) -> socket.socket:
    """Listen on an address, which errors call `host`.

    Raises:
        ConfigurationError: if that is not possible; the text says why, and what would be.
    """
    # The protocol is said because asyncio sends small pieces at once (TCP_NODELAY) only where it is known to be TCP: an
    # answer whose body follows its header would otherwise wait 40 ms for the client to confirm the header.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # A port that was in use a moment ago can be taken again; elsewhere the option would share a port in use.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why(error, address[1], host)) from error
    return listener


def _why(error: OSError, port: int, host: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use: another server, perhaps a `kura serve`, listens there; "
            "stop it, or choose another port with --port (0 takes any free one)"
        )
    if error.errno == errno.EACCES:
        return f"this user may not listen on port {port}: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f'cannot listen on "{host}": it is no address of this machine'
    return f'cannot listen on "{host}", port {port}: {os.strerror(error.errno or 0)}'
