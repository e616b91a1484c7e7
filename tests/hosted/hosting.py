"""What tests of the hosted path do again and again: publish, and serve with nothing but a URL and a token."""

from contextlib import closing
from pathlib import Path
from typing import Any

from kura.settings import Settings, read_settings
from kura.store.catalog import Catalog
from kura.store.remote import open_remote
from local.sqld import Key
from tests.clients.servers import environment
from tests.store.publish.publishing import publish


def published(data_dir: Path, name: str, url: str, key: Key, *, force: bool = False) -> None:
    """Publish a database of a data directory, as `kura push` does."""
    catalog = Catalog(data_dir)
    with closing(open_remote(url, key.token)) as remote:
        publish(catalog, catalog.find(name), remote, force=force)


def reading_from(data_dir: Path, databases: str, key: Key, **more: str) -> dict[str, str]:
    """The environment of a process that has an empty data directory, and databases on servers."""
    return environment(data_dir) | {
        "KURA_DATABASES": databases,
        "KURA_DATABASE_TOKENS": key.token(read_only=True),
        "KURA_REFRESH_SECONDS": "0",
        **more,
    }


def settings(data_dir: Path, databases: dict[str, str], token: str, **more: Any) -> Settings:
    """The same as settings, for what runs in this process."""
    given: dict[str, Any] = {"embedder": "hashing", "public": True, "refresh_seconds": 0.0, "cache_dir": data_dir}
    return read_settings(data_dir=data_dir, databases=databases, database_tokens=token, **{**given, **more})
