"""An authorization server as companies run them, made of authlib: it registers clients and issues real tokens.

Metadata (RFC 8414), registration of clients (RFC 7591), authorization codes with PKCE (RFC 7636), the issuer in what
comes back (RFC 9207), audiences by `resource` (RFC 8707), access tokens that are JSON Web Tokens (RFC 9068). The one
user is logged in already and consents to everything that the test says.
"""

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from authlib.oauth2.rfc9207 import IssuerParameter
from flask import Flask, Response, request
from joserfc.jwk import ECKey, KeySet, RSAKey
from jwt.algorithms import get_default_algorithms
from werkzeug.serving import WSGIRequestHandler, make_server

CLAIM = "tenant"
SCOPES = ("search", "sql", "sql:write")


def new_key(name: str | None = None) -> RSAKey:
    """A key to sign with, and its public half to publish."""
    return RSAKey.generate_key(2048, {"kid": name or uuid4().hex, "use": "sig", "alg": "RS256"}, auto_kid=False)


def new_elliptic_key(name: str) -> ECKey:
    """One for ES256."""
    return ECKey.generate_key("P-256", {"kid": name, "use": "sig", "alg": "ES256"}, auto_kid=False)


def signed(claims: Mapping[str, Any] | bytes, header: Mapping[str, Any], key: object) -> str:
    """A token put together piece by piece, so that it can be wrong in any way.

    Args:
        claims: What it says, or the bytes in its place.
        header: Its header as it is, `alg` among it.
        key: What that algorithm signs with: a private key, the bytes of a secret, nothing.
    """
    said = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    message = f"{encoded(json.dumps(header).encode())}.{encoded(said)}"
    return f"{message}.{encoded(get_default_algorithms()[header['alg']].sign(message.encode(), key))}"


def encoded(piece: bytes) -> str:
    """A piece of a token: base64url without padding."""
    return base64.urlsafe_b64encode(piece).decode().rstrip("=")


@dataclass(frozen=True)
class User:
    """Who is logged in."""

    name: str
    tenant: str

    def get_user_id(self) -> str:
        return self.name


class Authority:
    """The server's state, which tests look at and change while it runs.

    Attributes:
        issuer: What it calls itself.
        keys: What it signs with; the first signs, all are published.
        user: Who is logged in.
        consents: The scopes that the user agrees to; others are left out of tokens.
        down: Whether it answers everything with 503.
        moved: Whether its metadata are said to be elsewhere.
        published: What it publishes in place of its keys; None is these.
        metadata: What it publishes of itself.
        asked: How often each of its paths was asked for.
        resources: The `resource` of each token request.
    """

    def __init__(self, origin: str, path: str = "") -> None:
        self.issuer = origin + path
        self.keys: list[RSAKey | ECKey] = [new_key()]
        self.user = User("ann", "acme")
        self.consents: Sequence[str] = SCOPES
        self.down = self.moved = False
        self.published: bytes | None = None
        self.asked: Counter[str] = Counter()
        self.resources: list[str] = []
        self.clients: dict[str, Client] = {}
        self.codes: dict[str, Code] = {}
        self.metadata: dict[str, Any] = {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def rotate(self, *, keep: bool = True) -> RSAKey | ECKey:
        """Sign with a new key from now on; those before it are still published, or not. Returns the one before."""
        before = self.keys[0]
        self.keys = [new_key(), *(self.keys if keep else ())]
        return before

    def claims(self, audience: str, **others: Any) -> dict[str, Any]:
        """Those of an access token that is good for a resource; of the others, None leaves one out."""
        now = int(time.time())
        good: dict[str, Any] = {
            "iss": self.issuer,
            "sub": self.user.name,
            "aud": audience,
            "client_id": "a client",
            "iat": now,
            "exp": now + 600,
            "jti": uuid4().hex,
            "scope": " ".join(self.consents),
            CLAIM: self.user.tenant,
        }
        return {name: claim for name, claim in (good | others).items() if claim is not None}

    def sign(
        self, claims: Mapping[str, Any] | bytes, headers: Mapping[str, Any] | None = None, *, key: object = None
    ) -> str:
        """A token with any claims.

        Args:
            claims: All of them.
            headers: What its header has else or otherwise; None leaves one out.
            key: What signs it instead of the key in use.
        """
        header = {"alg": "RS256", "typ": "at+jwt", "kid": self.keys[0].kid} | dict(headers or {})
        header = {name: value for name, value in header.items() if value is not None}
        return signed(claims, header, self.keys[0].private_key if key is None else key)

    def jwks(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.keys]}


@contextmanager
def authority(path: str = "", well_known: str | None = None) -> Generator[Authority]:
    """A server on a free port of loopback, for as long as the context lasts.

    Args:
        path: What follows the host in its issuer identifier.
        well_known: Where its metadata are; left out, where RFC 8414 has them.
    """
    app = Flask(__name__)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    opened = Authority(f"http://127.0.0.1:{server.server_port}", path)
    _route(app, opened, well_known or f"/.well-known/oauth-authorization-server{path}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield opened
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...


def _route(app: Flask, of: Authority, well_known: str) -> None:
    server: Any = AuthorizationServer(app, of.clients.get, _save_nothing)  # Any: authlib tells no types
    server.register_grant(_grant(of), [_S256()])
    server.register_endpoint(_registration(of))
    server.register_token_generator("default", _generator(of))
    server.register_extension(_issuer(of))
    path = urlsplit(of.issuer).path

    def count() -> Response | None:
        of.asked[request.path] += 1
        return Response("it is being mended", 503) if of.down else None

    def metadata() -> dict[str, Any] | Response:
        return Response("", 307, {"Location": "/elsewhere"}) if of.moved else of.metadata

    def jwks() -> dict[str, Any] | bytes:
        return of.jwks() if of.published is None else of.published

    def authorize() -> Response:
        try:
            grant = server.get_consent_grant(end_user=of.user)
        except OAuth2Error as error:
            return server.handle_error_response(None, error)
        return server.create_authorization_response(grant_user=of.user, grant=grant)

    def token() -> Response:
        of.resources += request.form.getlist("resource")
        return server.create_token_response()

    def register() -> Response:
        return server.create_endpoint_response("client_registration")

    app.before_request(count)
    app.add_url_rule(well_known, view_func=metadata)
    app.add_url_rule("/elsewhere", "elsewhere", lambda: of.metadata)
    app.add_url_rule(f"{path}/jwks", view_func=jwks)
    app.add_url_rule(f"{path}/authorize", view_func=authorize)
    app.add_url_rule(f"{path}/token", view_func=token, methods=["POST"])
    app.add_url_rule(f"{path}/register", view_func=register, methods=["POST"])


def _save_nothing(_token: object, _request: object) -> None: ...  # tokens are good by their signatures


class Client(ClientMixin):
    """A client as it registered."""

    def __init__(self, of: Authority, id: str, secret: str, said: Mapping[str, Any]) -> None:  # noqa: A002
        self.id, self.secret, self.said, self._of = id, secret, said, of

    def get_client_id(self) -> str:
        return self.id

    def get_default_redirect_uri(self) -> str:
        return self.said["redirect_uris"][0]

    def get_allowed_scope(self, scope: Any) -> str:
        return " ".join(word for word in (scope or "").split() if word in self._of.consents)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.said["redirect_uris"]

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return endpoint == "token" and method == self.said["token_endpoint_auth_method"]

    def check_response_type(self, response_type: str) -> bool:
        return response_type in self.said.get("response_types", ["code"])

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.said.get("grant_types", ["authorization_code"])


@dataclass(frozen=True)
class Code(AuthorizationCodeMixin):
    """An authorization code, and what it was given for."""

    code: str
    client_id: str
    redirect_uri: str
    scope: str
    resource: str | None
    user: User
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


class _S256(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ["S256"]  # noqa: RUF012 - authlib's own

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        if "code_challenge" not in request.args:
            raise InvalidRequestError("OAuth 2.1 wants a code challenge of everybody")
        super().validate_code_challenge(grant, redirect_uri)  # pyright: ignore[reportUnknownMemberType]


def _grant(of: Authority) -> type[AuthorizationCodeGrant]:
    class Grant(AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = of.metadata["token_endpoint_auth_methods_supported"]

        def save_authorization_code(self, code: str, request: Any) -> None:
            sent = request.payload.data
            of.codes[code] = Code(
                code,
                request.client.id,
                request.payload.redirect_uri,
                request.scope,
                sent.get("resource"),
                request.user,
                sent["code_challenge"],
                sent["code_challenge_method"],
            )

        def query_authorization_code(self, code: str, client: Any) -> Code | None:
            found = of.codes.get(code)
            if found is None or found.client_id != client.id or found.resource != request.form.get("resource"):
                return None
            return found

        def delete_authorization_code(self, authorization_code: Code) -> None:
            del of.codes[authorization_code.code]

        def authenticate_user(self, authorization_code: Code) -> User:
            return authorization_code.user

    return Grant


def _registration(of: Authority) -> type[ClientRegistrationEndpoint]:
    class Registration(ClientRegistrationEndpoint):
        def authenticate_token(self, request: Any) -> str:  # noqa: ARG002 - anyone may
            return "anyone"

        def get_server_metadata(self) -> dict[str, Any]:
            return of.metadata

        def save_client(self, client_info: dict[str, Any], client_metadata: dict[str, Any], request: Any) -> Client:  # noqa: ARG002
            name = client_info["client_id"]
            of.clients[name] = Client(of, name, client_info["client_secret"], client_metadata)
            return of.clients[name]

    return Registration


def _generator(of: Authority) -> JWTBearerTokenGenerator:
    class Generator(JWTBearerTokenGenerator):
        def get_jwks(self) -> KeySet:
            return KeySet([of.keys[0]])

        def get_audiences(self, client: Any, user: Any, scope: str) -> str:  # noqa: ARG002
            return request.form.get("resource", of.issuer)

        def get_extra_claims(self, client: Any, grant_type: str, user: User, scope: str) -> dict[str, str]:  # noqa: ARG002
            return {CLAIM: user.tenant}

    return Generator(of.issuer, expires_generator=600)


def _issuer(of: Authority) -> IssuerParameter:
    class Issuer(IssuerParameter):
        def get_issuer(self) -> str:
            return of.issuer

    return Issuer()
