"""Settings: built once by an entry point, passed down as plain values, never read elsewhere."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from kura.access.trust import ALGORITHMS, require_identifier
from kura.embed.choose import Choice
from kura.errors import ConfigurationError
from kura.types import Rules

_SHA256 = re.compile(r"[0-9a-f]{64}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")

Names = Annotated[tuple[str, ...], NoDecode]
Addresses = Annotated[dict[str, str], NoDecode]


class Settings(BaseSettings):
    """All that can be set, each by the environment variable `KURA_` + its name in capitals. Frozen.

    Lists are comma-separated. An empty value counts as not set.
    """

    model_config = SettingsConfigDict(env_prefix="KURA_", frozen=True, extra="ignore", env_ignore_empty=True)

    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("kura", appauthor=False),
        description="where the catalog, the databases and the inbox folders live",
    )
    cache_dir: Path = Field(
        default_factory=lambda: platformdirs.user_cache_path("kura", appauthor=False),
        description="where the prepared model file is kept; it can be deleted at any time",
    )
    embedder: Choice = Field(
        default="auto",
        description="what turns text into vectors: `auto` takes e5 where it is installed and otherwise none",
    )
    model_file: Path | None = Field(
        default=None, description="a prepared model file to use instead of the one in the cache directory"
    )
    embedding_url: SecretStr | None = Field(
        default=None,
        description="base URL of an OpenAI-compatible embeddings endpoint, such as http://127.0.0.1:8000/v1",
    )
    embedding_model: str | None = Field(
        default=None, max_length=200, description="the model that the endpoint is asked for"
    )
    embedding_key: SecretStr | None = Field(default=None, description="the bearer key that the endpoint wants")
    embedding_dimensions: int | None = Field(
        default=None, ge=1, le=32_768, description="length of the vectors to ask for; left out, the model's own"
    )
    embedding_query_model: str | None = Field(
        default=None,
        max_length=200,
        description="the model's name for queries, where the endpoint has another for them",
    )
    embedding_query_prefix: str | None = Field(
        default=None, max_length=1000, description="put before each query that is embedded"
    )
    embedding_passage_prefix: str | None = Field(
        default=None, max_length=1000, description="put before each passage that is embedded"
    )
    databases: Addresses = Field(
        default_factory=dict[str, str],
        description="databases on servers, such as `notes=libsql://notes-me.turso.io`; comma-separated;"
        " `notes@company-a=…` belongs to that tenant",
    )
    catalog: str | None = Field(
        default=None, description="URL of a database on a server whose table `databases` names others"
    )
    database_tokens: SecretStr | None = Field(
        default=None, description="their tokens, `notes=eyJ…`, comma-separated; one alone is for all of them"
    )
    database_tokens_file: Path | None = Field(
        default=None, description="a file of such tokens, one a line; it is read again when it changes"
    )
    tenant: str | None = Field(
        default=None, max_length=200, description="the tenant that a local or key session is fixed to"
    )
    user: str | None = Field(
        default=None, max_length=200, description="the user that a local or key session is fixed to"
    )
    key_hash: str | None = Field(
        default=None,
        description="SHA-256, in lower-case hex, of the bearer key that HTTP callers must send",
    )
    keys: SecretStr | None = Field(
        default=None, description="API keys, of each its hash and what it opens, as `kura keys export` prints them"
    )
    keys_file: Path | None = Field(default=None, description="a file of such keys; it is read again when it changes")
    oauth_issuers: Names = Field(
        default=(),
        description="authorization servers whose access tokens are taken, as they name themselves: https URLs",
    )
    oauth_resource: str | None = Field(
        default=None,
        max_length=2000,
        description="the URL of this server's endpoint as clients know it, such as https://kura.example/mcp",
    )
    oauth_audiences: Names = Field(
        default=(), description="what a token must be for, one of them; left out, KURA_OAUTH_RESOURCE"
    )
    oauth_algorithms: Names = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"), description="how tokens may be signed"
    )
    oauth_leeway: float = Field(default=30.0, ge=0, le=300, description="seconds by which clocks may differ")
    oauth_tenant_claim: str | None = Field(
        default=None, max_length=200, description="the claim of a token that names its tenant; dots lead into objects"
    )
    oauth_user_claim: str = Field(default="sub", max_length=200, description="the claim that names the user")
    oauth_databases_claim: str | None = Field(
        default=None, max_length=200, description="the claim that lists the databases; without it there is no limit"
    )
    oauth_scope_prefix: str = Field(
        default="", max_length=200, description="put before `search`, `sql`, `sql:write` in the scopes of tokens"
    )
    public: bool = Field(default=False, description="serve to anyone without a credential, read-only; said explicitly")
    allowed_hosts: Names = Field(
        default=(), description="host names, besides loopback, that HTTP requests may be addressed to"
    )
    allowed_origins: Names = Field(default=(), description="browser origins that may call, such as https://app.example")
    request_seconds: float = Field(
        default=25.0, gt=0, le=900, description="an HTTP request is ended with status 504 after so many seconds"
    )
    rate_limit: int | None = Field(
        default=None, ge=1, le=1_000_000, description="HTTP requests a minute from each caller, counted by each process"
    )
    refresh_seconds: float = Field(
        default=1.0, ge=0, le=3600, description="a running process looks for newly indexed content at most this often"
    )
    vector_memory: int = Field(
        default=1_000_000_000,
        ge=0,
        description="bytes of memory for the vectors of one database; beyond, they are mapped from a file, or compared"
        " by their server",
    )
    vector_copies: Path | None = Field(
        default=None, description="a folder in which vectors from servers are kept for the next start"
    )
    allow_writes: Names = Field(
        default=(),
        description="databases in which agents may insert, update and delete rows of tables; comma-separated",
    )
    sql_rows: int = Field(default=1000, ge=1, le=100_000, description="an answer of `query` has at most so many rows")
    sql_bytes: int = Field(
        default=1_000_000, ge=1000, le=4_000_000, description="an answer of `query` has at most about so many bytes"
    )
    sql_seconds: float = Field(
        default=5.0, gt=0, le=300, description="a statement of `query` is ended after so many seconds"
    )
    max_file_bytes: int = Field(
        default=20_000_000, ge=1, description="a larger file is named and left out when indexing"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="diagnostics below this level are not written to stderr"
    )

    log_queries: bool = Field(default=False, description="write the words of queries to the log; said explicitly")
    traces_to: SecretStr | None = Field(
        default=None, description="where OpenTelemetry traces are sent (OTLP over HTTP), such as http://127.0.0.1:4318"
    )

    @property
    def rules(self) -> Rules:
        """What agents may do with SQL."""
        return Rules(self.sql_rows, self.sql_bytes, self.sql_seconds, frozenset(self.allow_writes))

    @model_validator(mode="after")
    def _public_reads(self) -> "Settings":
        if self.public and self.allow_writes:
            raise ValueError("KURA_ALLOW_WRITES cannot be set together with KURA_PUBLIC, which is for reading alone")
        return self

    @model_validator(mode="after")
    def _whole_trust(self) -> "Settings":
        if self.oauth_issuers and self.oauth_resource is None:
            raise ValueError(
                "KURA_OAUTH_ISSUERS needs KURA_OAUTH_RESOURCE, the URL of this server's endpoint as clients know it,"
                " such as https://kura.example/mcp: tokens for anything else must be refused"
            )
        return self

    @field_validator(
        "allowed_hosts", "allowed_origins", "allow_writes", "oauth_issuers", "oauth_audiences", "oauth_algorithms",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(v.strip() for v in value.split(",") if v.strip()) if isinstance(value, str) else value

    @field_validator("databases", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
        if not all(name.strip() and url.strip() for name, _, url in pairs):
            raise ValueError("it must be name=URL, separated by commas")
        if len({name.strip() for name, _, _ in pairs}) < len(pairs):
            raise ValueError("a name stands there twice")
        return {name.strip(): url.strip() for name, _, url in pairs}

    @field_validator("data_dir", "cache_dir", "model_file", "database_tokens_file", "keys_file", "vector_copies")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        try:
            return value.expanduser().absolute() if value is not None else None
        except RuntimeError:
            raise ValueError("the path names the home of a user that there is none of") from None

    @field_validator("oauth_issuers", "oauth_resource")
    @classmethod
    def _identifiers(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        for url in (value,) if isinstance(value, str) else value or ():
            require_identifier(url)
        return value

    @field_validator("oauth_algorithms")
    @classmethod
    def _asymmetric(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not set(value) <= set(ALGORITHMS):
            raise ValueError(f"it must be some of {', '.join(ALGORITHMS)}")
        return value

    @field_validator("embedding_url", "traces_to")
    @classmethod
    def _http(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value.get_secret_value())
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
            usable = usable and bool(_VISIBLE.fullmatch(parts.netloc))
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("it must be a URL that begins with http:// or https:// and names a host")
        return value

    @field_validator("embedding_key")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _VISIBLE.fullmatch(value.get_secret_value()):
            raise ValueError("it must be visible ASCII characters, without blanks: it is sent in a header")
        return value

    @field_validator("key_hash")
    @classmethod
    def _digest(cls, value: str | None) -> str | None:
        if value is not None and not _SHA256.fullmatch(value):
            raise ValueError("it must be 64 lower-case hex digits: the SHA-256 of the key, not the key itself")
        return value


def read_settings(**given: object) -> Settings:
    """Settings from the environment, with what an entry point was `given` explicitly above it; None is not given.

    Raises:
        ConfigurationError: if a value is not allowed; the message names the variable and the rule, never the value.
    """
    try:
        return Settings(**cast(dict[str, Any], {name: value for name, value in given.items() if value is not None}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # two settings that do not go together
            raise ConfigurationError(reason) from None
        name = str(first["loc"][0])
        field = Settings.model_fields.get(name)
        meaning = f" ({field.description})" if field is not None else ""
        raise ConfigurationError(f"KURA_{name.upper()}{meaning}: {reason}") from None
