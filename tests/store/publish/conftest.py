"""A libSQL server for each test, and a way into it."""

from tests.store.publish.publishing import remote, server

__all__ = ["remote", "server"]
