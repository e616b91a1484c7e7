"""What a policy may say."""

import pytest

from kura.errors import ArgumentError
from kura.sql.policies import checked
from kura.types import Policy

COLUMNS = ("id", "tenant", "name", "Preis in €")


@pytest.mark.parametrize(
    "expression",
    [
        "tenant = current_setting('app.tenant_id')",
        "name = current_user or tenant is null",
        "name = current_setting('app.user_id') and not id in (1, 2, 3)",
        "TENANT collate nocase = current_setting('app.tenant_id')",
        "\"Preis in €\" between 1 and 2 or lower(name) like 'a%' escape '\\'",
        "case when tenant is null then 1 else id > 0 end",
        "coalesce(tenant, 'nobody') glob 'n*'",
        "(id, tenant) = (1, current_setting('app.tenant_id'))",
        "name >= date('now') -- until today",
        "1",
    ],
)
def test_expressions_over_the_columns_and_the_session_are_taken(expression: str):
    checked(Policy("p", "users", using=expression, check=expression), COLUMNS)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy("p", "users"), "needs an expression"),
        (Policy("", "users", using="1"), "needs a name"),
        (Policy("p", "users", command="insert", using="1"), "has no `using`"),
        (Policy("p", "users", command="select", check="1"), "has no `check`"),
        (Policy("p", "users", using="owner = 1"), 'names "owner"; the table\'s columns are "id", "tenant", "name"'),
        (Policy("p", "users", using="abs(id) = 1"), "calls abs"),
        (Policy("p", "users", using="id in (select 1)"), "subquery"),
        (Policy("p", "users", using="id = (select 1)"), "SUBQUERY"),
        (Policy("p", "users", using="name like tenant"), "not a constant"),
        (Policy("p", "users", using="1) or (1"), "must be one expression"),
        (Policy("p", "users", using="1 = 1; drop table users"), "not an expression"),
        (Policy("p", "users", using="id = ?"), "QUESTION"),
        (Policy("p", "users", using="current_setting('app.role') = 'x'"), "current_setting takes one of"),
        (Policy("p", "users", using="tenant = json_extract(name, '$')"), "calls json_extract"),
        (Policy("p", "users", using="name || tenant = 'x'"), "holds DPIPE"),
        (Policy("p", "users", using="id = 1\0"), "NUL"),
        (Policy("p", "users", using="id = 1 or " * 1000 + "1"), "2000 characters"),
        (Policy("p", "users", using="(" * 400 + "1" + ")" * 400), "not an expression"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_be_right(policy: Policy, said: str):
    with pytest.raises(ArgumentError) as refused:
        checked(policy, COLUMNS)
    assert said in str(refused.value)
