"""From settings to what they choose: the embedder, the servers, who may come in; the same way for every entry point."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kura.access.keys import KeyRing, read_keys
from kura.access.trust import Trust
from kura.embed.choose import Identity, identify_embedder, load_embedder
from kura.embed.endpoint import Endpoint
from kura.errors import ConfigurationError
from kura.settings import Settings
from kura.store.address import Patience
from kura.store.catalog import Catalog
from kura.store.elsewhere import Elsewhere, named
from kura.store.keys import Key
from kura.store.looked import Reread
from kura.store.tokens import Tokens

if TYPE_CHECKING:  # as in kura.embed: numpy is not needed to choose
    from kura.embed import Embedder


def identify_chosen(settings: Settings) -> Identity | None:
    """Say what `load_chosen` would return, without loading it or asking anyone; see `identify_embedder`.

    Raises:
        ConfigurationError: if something is missing or contradicts itself; the message names the variable.
        EmbedderError: if the model file is not usable.
    """
    return identify_embedder(
        settings.embedder,
        cache_dir=settings.cache_dir,
        model_file=settings.model_file,
        endpoint=_endpoint(settings),
    )


def load_chosen(settings: Settings) -> "Embedder | None":
    """Load the embedder that the settings choose; see `load_embedder`.

    Raises:
        ConfigurationError: if something is missing or contradicts itself; the message names the variable.
        EmbedderError: if the model file is damaged and cannot be mended.
    """
    return load_embedder(
        settings.embedder,
        cache_dir=settings.cache_dir,
        model_file=settings.model_file,
        endpoint=_endpoint(settings),
    )


def _endpoint(settings: Settings) -> Endpoint | None:
    """The endpoint of the settings; None where they choose another embedder, whatever else they say."""
    if settings.embedder != "openai":
        return None
    if settings.embedding_url is None:
        raise ConfigurationError(
            "KURA_EMBEDDER=openai needs KURA_EMBEDDING_URL, the base URL of the endpoint, such as"
            " http://127.0.0.1:8000/v1"
        )
    if settings.embedding_model is None:
        raise ConfigurationError("KURA_EMBEDDER=openai needs KURA_EMBEDDING_MODEL, the name of the model to ask for")
    if settings.embedding_key is not None and "@" in urlsplit(settings.embedding_url.get_secret_value()).netloc:
        raise ConfigurationError(
            "KURA_EMBEDDING_KEY and a user in KURA_EMBEDDING_URL exclude each other: one of the two can be sent"
        )
    return Endpoint(
        url=settings.embedding_url.get_secret_value(),
        model=settings.embedding_model,
        key=settings.embedding_key.get_secret_value() if settings.embedding_key else None,
        dimensions=settings.embedding_dimensions,
        query_model=settings.embedding_query_model,
        query_prefix=settings.embedding_query_prefix or "",
        passage_prefix=settings.embedding_passage_prefix or "",
    )


def tokens_of(settings: Settings) -> Tokens:
    """The tokens for databases on servers.

    Raises:
        ConfigurationError: if they are not given in the form that they should be.
    """
    text = settings.database_tokens
    return Tokens(text.get_secret_value() if text is not None else None, settings.database_tokens_file)


def elsewhere_of(settings: Settings) -> Elsewhere | None:
    """The databases on servers, or None where the settings name none; nothing is asked for yet.

    Raises:
        ConfigurationError: if one of them is not given in the form that it should be.
    """
    if not settings.databases and settings.catalog is None:
        return None
    return Elsewhere(
        named(settings.databases),
        tokens_of(settings),
        catalog=settings.catalog,
        refresh_seconds=settings.refresh_seconds,
        patience=_SERVING,
    )


def ring_of(settings: Settings, catalog: Catalog, elsewhere: Elsewhere | None) -> KeyRing:
    """The API keys that callers may send: those of the settings, of this machine's catalog, and of the one on a server.

    Raises:
        ConfigurationError: if those of the settings are not in the form that they should be.
    """
    given: list[Callable[[], Sequence[Key]]] = []
    if settings.keys is not None:
        keys = read_keys(settings.keys.get_secret_value(), "KURA_KEYS")
        given.append(lambda: keys)
    if settings.keys_file is not None:
        name = "KURA_KEYS_FILE"
        given.append(Reread(settings.keys_file, lambda text: read_keys(text, name), name).get)
    catalogs: list[Callable[[], Sequence[Key]]] = [catalog.keys]
    if elsewhere is not None and settings.catalog is not None:
        catalogs.append(elsewhere.keys)
    return KeyRing(given, catalogs)


def trust_of(settings: Settings) -> Trust | None:
    """Which access tokens callers may send; None where the settings name nobody who issues any."""
    if not settings.oauth_issuers or settings.oauth_resource is None:
        return None
    return Trust(
        resource=settings.oauth_resource,
        issuers=settings.oauth_issuers,
        audiences=settings.oauth_audiences or (settings.oauth_resource,),
        algorithms=settings.oauth_algorithms,
        leeway=settings.oauth_leeway,
        tenant_claim=settings.oauth_tenant_claim,
        user_claim=settings.oauth_user_claim,
        databases_claim=settings.oauth_databases_claim,
        scope_prefix=settings.oauth_scope_prefix,
    )


_SERVING = Patience(connect=3.0, total=12.0, attempts=2)
"""Callers wait, and gateways give up after 29 seconds."""
