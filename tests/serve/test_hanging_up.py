"""Clients that leave without a word: the server goes on, and nothing of them stays behind."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx2
import pytest

from tests.serve.running import JSON, call, command, environment, initialize, message, process, talking

Server = tuple[str, "subprocess.Popen[str]"]

linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what a process holds in /proc")


def sockets(server: "subprocess.Popen[str]") -> int:
    """Sockets that a process holds."""
    count = 0
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def files_and_threads(server: "subprocess.Popen[str]") -> tuple[int, int]:
    own = Path(f"/proc/{server.pid}")
    return len(list((own / "fd").iterdir())), len(list((own / "task").iterdir()))


def until(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true within some seconds."""
    give_up = time.monotonic() + 20
    while not (reached := condition()) and time.monotonic() < give_up:
        os.sched_yield()
    return reached


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Generator[Server]:
    """A server that has warmed up; at the end it must have had nothing to say."""
    with process(data_dir) as (url, started):
        for _ in range(5):
            answered(url)
        yield url, started
        started.send_signal(signal.SIGTERM)
        assert started.wait(timeout=20) == 0
        assert started.stderr is not None
        assert started.stderr.read() == ""


def answered(url: str) -> None:
    sent = call("search_rag", db="notes", q="passage")
    # Without certificates to check: loading them takes longer than the answer.
    response = httpx2.post(f"{url}/mcp", json=sent, headers=JSON, timeout=20, verify=False)
    assert response.json()["result"]["structuredContent"]["keyword"]


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def request(url: str, announced: int | None = None) -> bytes:
    body = json.dumps(call("search_rag", db="notes", q="passage")).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {announced or len(body)}\r\n\r\n".encode() + body


def in_the_middle_of_the_head(url: str) -> socket.socket:
    client = connected(url)
    client.sendall(request(url)[:40])
    return client


def in_the_middle_of_the_body(url: str) -> socket.socket:
    client = connected(url)
    client.sendall(request(url, announced=5000))
    return client


def in_the_middle_of_a_chunk(url: str) -> socket.socket:
    client = connected(url)
    head = request(url).partition(b"Content-Length")[0]
    client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{")
    return client


def before_the_answer(url: str) -> socket.socket:
    client = connected(url)
    client.sendall(request(url))
    return client


def before_several_answers(url: str) -> socket.socket:
    client = connected(url)
    client.sendall(request(url) * 5)
    return client


def without_a_byte(url: str) -> socket.socket:
    return connected(url)


def half_closed(url: str) -> socket.socket:
    client = in_the_middle_of_the_body(url)
    client.shutdown(socket.SHUT_WR)
    return client


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


MOMENTS = (
    in_the_middle_of_the_head,
    in_the_middle_of_the_body,
    in_the_middle_of_a_chunk,
    before_the_answer,
    before_several_answers,
    without_a_byte,
    half_closed,
)


@linux
@pytest.mark.parametrize("end", [socket.socket.close, reset], ids=["closed", "reset"])
@pytest.mark.parametrize("leave", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_client_that_hangs_up_leaves_nothing_behind(
    server: Server, leave: Callable[[str], socket.socket], end: Callable[[socket.socket], None]
):
    url, started = server
    before, held = sockets(started), files_and_threads(started)
    clients = [leave(url) for _ in range(12)]
    answered(url)
    for client in clients:
        end(client)
    answered(url)
    assert until(lambda: sockets(started) <= before)
    # What is kept for the next rush: eight worker threads, and for two databases four connections of three files each.
    now = files_and_threads(started)
    assert (now[0] - held[0] <= 24, now[1] - held[1] <= 8) == (True, True)


def until_closed(client: socket.socket) -> bytes:
    """All that comes. What the server has not read by then, it answers with a reset."""
    got = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65_536):
            got += data
    return bytes(got)


def test_a_signal_ends_the_server_while_requests_are_under_way_and_others_never_arrive(data_dir: Path):
    with process(data_dir) as (url, started), contextlib.ExitStack() as kept:
        answered(url)
        waiting = [kept.enter_context(before_several_answers(url)) for _ in range(20)]
        for leave in MOMENTS:
            kept.enter_context(leave(url))
        started.send_signal(signal.SIGTERM)
        for client in waiting:
            got = until_closed(client)
            # Each found by both modes, and each answer comes twice.
            assert got.count(b"HTTP/1.1 200 OK") * 4 == got.count(b"Retrieval finds passages")
        # What is under way is finished, but nobody is waited for who has sent half a request.
        finished = time.monotonic()
        assert started.wait(timeout=20) == 0
        assert time.monotonic() - finished < 8
        assert started.stderr is not None
        assert started.stderr.read() == ""


def test_over_stdio_a_client_whose_socket_is_torn_down_ends_the_process(data_dir: Path):
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        command("stdio", data_dir),
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        stderr=subprocess.PIPE,
        env=environment(),
    ) as started:
        theirs.close()
        try:
            pings = b"".join(json.dumps(message("ping", id=number)).encode() + b"\n" for number in range(20))
            ours.sendall(json.dumps(initialize()).encode() + b"\n" + pings + b'{"jsonrpc":"2.0"')
            assert ours.recv(10)
            # The rest of the answers is not read: closing now tells the other side that its connection was reset.
            ours.close()
            assert started.wait(timeout=20) == 0
            assert started.stderr is not None
            assert b"Traceback" not in started.stderr.read()
        finally:
            started.kill()


def test_over_stdio_a_client_that_only_stops_reading_ends_the_process(data_dir: Path):
    with talking(data_dir) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdin.write(json.dumps(initialize()).encode() + b"\n")
        started.stdin.flush()
        assert json.loads(started.stdout.readline())["id"] == 1
        started.stdout.close()
        started.stdin.write(json.dumps(message("ping", id=2)).encode() + b'\n{"jsonrpc":"2.0"')
        started.stdin.flush()
        assert started.wait(timeout=20) == 0
        assert b"Traceback" not in started.stderr.read()
