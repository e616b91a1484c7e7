"""Policies as either engine keeps them."""

import pytest

from kura.errors import ArgumentError
from kura.store.engine import Connection
from kura.store.policies import add_policy, policies, remove_policy, tables
from kura.types import Policy

OWN = Policy("own", "users", "all", "tenant = current_setting('app.tenant_id')", None)


def test_names_are_those_of_sqlite(connection: Connection):
    connection.run("create table users (id integer primary key)")
    connection.run("create view seen as select * from users")
    assert tables(connection) == ["users"]
    add_policy(connection, OWN)
    with pytest.raises(ArgumentError, match="has a policy"):
        add_policy(connection, OWN)
    remove_policy(connection, "USERS", "Own")
    with pytest.raises(ArgumentError, match="policies on it: none"):
        remove_policy(connection, "users", "own")
    connection.run("drop table policies")
    assert policies(connection) == []
