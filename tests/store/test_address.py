import pytest

from kura.errors import ConfigurationError
from kura.store.address import address


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("libsql://notes-someone.turso.io", "https://notes-someone.turso.io"),
        ("libsql://notes.example:8443/", "https://notes.example:8443"),
        ("libsql://127.0.0.1:8080?tls=0", "http://127.0.0.1:8080"),
        ("libsql://notes.example?tls=1", "https://notes.example"),
        ("https://notes.example", "https://notes.example"),
        ("https://notes.example/?tls=1", "https://notes.example"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080?tls=0", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://some_host/behind/a/proxy/", "http://some_host/behind/a/proxy"),
        ("https://wissen.müller.example", "https://wissen.müller.example"),
        ("  LIBSQL://notes.example \n", "https://notes.example"),
    ],
)
def test_a_url_gives_the_base_that_requests_go_to(url: str, base: str):
    assert address(url) == base


@pytest.mark.parametrize(
    "url",
    [
        "",
        "notes",
        "notes.example:8080",
        "file:notes.db",
        "ws://notes.example",
        "wss://notes.example",
        "http://",
        "http:///path",
        "http://:8080",
        "libsql:notes.example",
        "http://[::1",
        "http://notes.example:0",
        "http://notes.example:99999",
        "http://notes.example:port",
        "http://two words.example",
        "http://per%20cent.example",
        "http://back\\slash.example",
        "http://dots..example",
        f"http://{'a' * 64}.example",
        "http://half\udc80.example",
        "http://notes.example#part",
        "libsql://notes.example?tls=2",
        "libsql://notes.example?tls=",
        "libsql://notes.example?tls=0&tls=1",
        "http://notes.example?tls=1",
        "https://notes.example?tls=0",
        "libsql://notes.example?x=1",
        "libsql://notes.example?x",
    ],
)
def test_what_is_no_url_of_a_database_is_refused_with_what_would_be_one(url: str):
    with pytest.raises(ConfigurationError, match="must begin with libsql://, https:// or http:// and name a host"):
        address(url)


@pytest.mark.parametrize(
    "url",
    [
        "libsql://c2VjcmV0@notes.example",
        "libsql://:c2VjcmV0@notes.example",
        "libsql://user:c2VjcmV0@notes.example",
        "libsql://@notes.example",
        "libsql://notes.example?authToken=c2VjcmV0",
        "libsql://notes.example?authtoken=c2VjcmV0",
        "libsql://notes.example?tls=1&authToken=",
    ],
)
def test_a_token_in_a_url_is_refused_with_where_it_belongs_and_not_shown(url: str):
    with pytest.raises(ConfigurationError, match="KURA_DATABASE_TOKENS") as caught:
        address(url)
    assert "c2VjcmV0" not in repr(caught.value)


@pytest.mark.parametrize("url", ["libsql://notes.example?c2VjcmV0", "c2VjcmV0", "c2VjcmV0://notes.example"])
def test_an_error_shows_nothing_of_what_it_refuses(url: str):
    with pytest.raises(ConfigurationError) as caught:
        address(url)
    assert "c2VjcmV0" not in repr(caught.value)
    assert caught.value.__cause__ is None
