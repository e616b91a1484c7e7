import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
import uvicorn

from kura.errors import ConfigurationError
from kura.library.library import Library
from kura.serve.http import serve_http
from tests.serve.running import process, sends_at_once


@pytest.fixture
def own_dir(data_dir: Path, tmp_path: Path) -> Path:
    """A data directory of its own, for the endpoint file, with the shared databases in it."""
    for path in data_dir.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_the_endpoint_file_holds_the_url_while_the_server_runs(own_dir: Path):
    endpoint = own_dir / "endpoint"
    endpoint.write_text("http://127.0.0.1:1\n")  # left behind by a process that was killed
    with process(own_dir) as (url, server):
        assert url.startswith("http://127.0.0.1:")
        assert endpoint.read_text() == f"{url}\n"
        assert httpx2.get(f"{url}/api/health").json()["status"] == "ok"
        assert ended(server, signal.SIGTERM) == ""
        assert not endpoint.exists()
        assert not list(own_dir.glob(".endpoint-*"))


def test_a_server_leaves_the_endpoint_of_another_one_alone(own_dir: Path):
    with process(own_dir) as (_, server):
        (own_dir / "endpoint").write_text("http://127.0.0.1:1\n")
        assert ended(server, signal.SIGINT) == ""
        assert (own_dir / "endpoint").read_text() == "http://127.0.0.1:1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["ready", "get_loop_factory", "load", "startup", "capture_signals"])
def test_a_signal_that_comes_before_the_server_runs_ends_it_in_good_order(
    library: Library, own_dir: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
):
    before = signal.getsignal(number)
    told: list[str] = []

    def ready(url: str) -> None:
        told.append(url)
        if moment == "ready":
            signal.raise_signal(number)

    for owner in (uvicorn.Config, uvicorn.Server):
        if original := getattr(owner, moment, None):

            def interrupted(*arguments: object, original: Callable[..., object] = original, **named: object) -> object:
                signal.raise_signal(number)
                return original(*arguments, **named)

            monkeypatch.setattr(owner, moment, interrupted)
    serve_http(library, data_dir=own_dir, version="0", port=0, ready=ready)
    assert len(told) == 1
    assert not (own_dir / "endpoint").exists()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_answer_is_sent_at_once(library: Library, own_dir: Path, monkeypatch: pytest.MonkeyPatch, host: str):
    def serving() -> None:
        serve_http(library, data_dir=own_dir, version="0", host=host, port=0, ready=lambda _url: None)

    assert sends_at_once(serving, monkeypatch)


def served_once(library: Library, data_dir: Path) -> None:
    """Serve, find out that it really does, and end."""
    answers: list[int] = []

    def ask(url: str) -> None:
        answers.append(httpx2.get(f"{url}/api/health", timeout=20).status_code)
        signal.raise_signal(signal.SIGTERM)

    asking: list[threading.Thread] = []

    def ready(url: str) -> None:
        asking.append(threading.Thread(target=ask, args=(url,)))
        asking[0].start()

    serve_http(library, data_dir=data_dir, version="0", port=0, ready=ready)
    asking[0].join()
    assert answers == [200]


def is_a_file(path: Path) -> Path:
    path.write_text("")
    return path


def is_in_a_file(path: Path) -> Path:
    return is_a_file(path) / "data"


def has_a_folder_in_the_way(path: Path) -> Path:
    (path / "endpoint" / "x").mkdir(parents=True)
    return path


def may_not_be_written(path: Path) -> Path:
    path.mkdir(mode=0o500)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write anywhere")
    return path


@pytest.mark.parametrize("place", [is_a_file, is_in_a_file, has_a_folder_in_the_way, may_not_be_written])
def test_a_data_directory_that_takes_no_endpoint_file_is_served(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture, place: Callable[[Path], Path]
):
    served_once(library, place(tmp_path / "data"))
    assert_warned(caplog, tmp_path)
    assert not list(tmp_path.rglob(".endpoint-*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_data_directory_is_served(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def full(**_place: object) -> tuple[int, str]:
        begun = tmp_path / ".endpoint-x"
        begun.touch()
        return os.open("/dev/full", os.O_WRONLY), str(begun)

    monkeypatch.setattr("kura.serve.http.tempfile.mkstemp", full)
    served_once(library, tmp_path)
    assert_warned(caplog, tmp_path)
    assert list(tmp_path.iterdir()) == []


def assert_warned(caplog: pytest.LogCaptureFixture, data_dir: Path) -> None:
    [record] = [record for record in caplog.records if record.name == "kura.serve.http"]
    assert record.levelname == "WARNING"
    assert "serving without it" in record.getMessage()
    assert record.exc_info is None
    assert str(data_dir) not in record.getMessage()


def test_an_endpoint_file_that_others_spoiled_is_left_alone(own_dir: Path):
    with process(own_dir) as (_, server):
        (own_dir / "endpoint").write_bytes(b"\xff\xfe")
        assert ended(server, signal.SIGTERM) == ""
        assert (own_dir / "endpoint").exists()


def test_the_longest_query_fits_into_a_url(url: str):
    # By hand: client libraries have smaller limits of their own.
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    with closing(connection):
        connection.request("GET", f"/api/search?db=notes&mode=keyword&q={quote('🚲' * 10_000)}")
        response = connection.getresponse()
        assert (response.status, json.load(response)) == (200, {"keyword": []})


def ended(server: subprocess.Popen[str], number: signal.Signals) -> str:
    """What the process says when this signal ends it, in good order."""
    server.send_signal(number)
    assert server.wait(timeout=20) == 0
    assert server.stderr is not None
    return server.stderr.read()


def test_a_port_in_use_is_named_with_what_to_do(library: Library, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port} is in use.*--port"):
            serve_http(library, data_dir=tmp_path, version="0", port=port)
    assert not (tmp_path / "endpoint").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - that is what must be refused
def test_an_address_that_others_reach_needs_a_key_or_a_word(library: Library, tmp_path: Path, host: str):
    with pytest.raises(ConfigurationError, match=r"KURA_KEY_HASH.*KURA_PUBLIC"):
        serve_http(library, data_dir=tmp_path, version="0", port=0, host=host)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1", "x" * 300, ""])
def test_an_address_that_is_not_here_is_refused(library: Library, tmp_path: Path, host: str):
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        serve_http(library, data_dir=tmp_path, version="0", port=0, host=host, public=True)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_does_not_exist_is_refused(library: Library, tmp_path: Path, port: int):
    with pytest.raises(ConfigurationError, match="does not exist"):
        serve_http(library, data_dir=tmp_path, version="0", port=port)
