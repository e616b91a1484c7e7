"""The same server as in the tests of publishing."""

from tests.store.publish.publishing import remote, server

__all__ = ["remote", "server"]
