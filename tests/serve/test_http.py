import http.client
import json
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from kura.errors import ConfigurationError
from kura.search.library import Library
from kura.serve.http import serve_http
from tests.serve.running import process


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
