"""An authorization server that publishes its keys and signs whatever it is asked to."""

import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "https://kura.example/mcp"


class Issuer:
    """One issuer with one key.

    Attributes:
        url: Its identifier.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def published(self) -> dict[str, Any]:
        key: dict[str, Any] = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {"keys": [key | {"kid": "one", "alg": "RS256", "use": "sig"}]}

    def public_text(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """What a valid token of tenant acme claims; a value of None leaves a claim out."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ann", "client_id": "agent", "iat": now, "exp": now + 600,
            "scope": "search sql", "tenant": "acme",
        }  # fmt: skip
        return {name: value for name, value in (claims | changed).items() if value is not None}

    def token(self, headers: Mapping[str, Any] | None = None, **changed: Any) -> str:
        """A token that this issuer signed."""
        named = {"kid": "one", "typ": "at+jwt", **(headers or {})}
        # As bytes: whatever a claim holds is signed.
        return jwt.PyJWS().encode(json.dumps(self.claims(**changed)).encode(), self.private, "RS256", named)


@contextmanager
def issuing() -> Generator[Issuer]:
    """An issuer on this machine."""
    known: dict[str, Any] = {}

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = known.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of the base class
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        issuer = Issuer(url)
        known["/.well-known/oauth-authorization-server"] = {"issuer": url, "jwks_uri": f"{url}/keys"}
        known["/keys"] = issuer.published()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
