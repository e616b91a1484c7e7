"""Policies travel with every push and pull, and before the tables that they are on."""

from pathlib import Path

import pytest

from kura.store.catalog import Catalog, Entry
from kura.store.engine import Connection
from kura.store.policies import add_policy, policies, remove_policy
from kura.store.publish.published import remove
from kura.store.publish.pull import pull
from kura.store.publish.push import rollback
from kura.types import Policy
from tests.store.publish.publishing import planned, publish
from tests.store.writing import put, writing

OWN = Policy("own", "users", "all", "tenant = current_setting('app.tenant_id')", None)
MINE = Policy("mine", "users", "delete", "name = current_user", None)


@pytest.fixture
def entry(catalog: Catalog) -> Entry:
    entry = catalog.add("notes")
    with writing(catalog, entry) as connection:
        put(connection, "a.md", "the tide")
        connection.run("create table users (id integer primary key, tenant text, name text)")
        add_policy(connection, OWN)
    return entry


def test_a_push_carries_all_policies_also_one_of_nothing_else(catalog: Catalog, entry: Entry, remote: Connection):
    publish(catalog, entry, remote)
    assert policies(remote) == [OWN]
    assert planned(catalog, entry, remote).how == "nothing"
    with writing(catalog, entry) as connection:
        add_policy(connection, MINE)
    assert planned(catalog, entry, remote).how == "rows"
    publish(catalog, entry, remote)
    assert policies(remote) == [MINE, OWN]
    with writing(catalog, entry) as connection:
        remove_policy(connection, "USERS", "own")
        put(connection, "b.md", *(f"text {n}" for n in range(3000)))
    assert planned(catalog, entry, remote).how == "tables"
    publish(catalog, entry, remote)
    assert policies(remote) == [MINE]


def test_a_return_to_the_push_before_brings_back_no_older_policy(catalog: Catalog, entry: Entry, remote: Connection):
    with writing(catalog, entry) as connection:
        remove_policy(connection, "users", "own")
    publish(catalog, entry, remote)
    with writing(catalog, entry) as connection:
        add_policy(connection, OWN)
        put(connection, "a.md", "another tide")
    publish(catalog, entry, remote)
    rollback(remote)
    assert policies(remote) == [OWN]


def test_a_pull_brings_them(catalog: Catalog, entry: Entry, remote: Connection, tmp_path: Path):
    publish(catalog, entry, remote)
    other = Catalog(tmp_path / "other")
    with writing(other, other.add("notes")) as local:
        add_policy(local, MINE)
        pull(remote, local, "http://somewhere", lambda _done, _total: None)
        assert policies(local) == [OWN]


def test_they_stay_when_the_knowledge_goes_as_long_as_there_are_any(catalog: Catalog, entry: Entry, remote: Connection):
    publish(catalog, entry, remote)
    remove(remote)
    assert policies(remote) == [OWN]
    publish(catalog, entry, remote, force=True)
    assert policies(remote) == [OWN]
    with writing(catalog, entry) as connection:
        remove_policy(connection, "users", "own")
    publish(catalog, entry, remote)
    remove(remote)
    assert remote.rows("select 1 from sqlite_schema where name = 'policies'") == []
