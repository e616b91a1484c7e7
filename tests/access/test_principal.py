import pytest

from kura.access.principal import may_see, open_session
from kura.errors import Forbidden
from kura.types import Principal, Session


def test_a_call_that_gives_nothing_acts_as_its_principal():
    principal = Principal("acme", "ann", frozenset({"notes"}))
    assert open_session(principal, None, None) == Session("acme", "ann", frozenset({"notes"}))


def test_a_call_may_repeat_what_its_principal_says():
    assert open_session(Principal("acme", "ann"), "acme", "ann") == Session("acme", "ann")


@pytest.mark.parametrize("believed", [True, False])
@pytest.mark.parametrize("tenant", ["globex", "ACME", "acme ", "ａｃｍｅ", "acme\x00", ""])
def test_a_call_may_not_change_what_its_principal_says(tenant: str, believed: bool):
    with pytest.raises(Forbidden, match="tenant_id"):
        open_session(Principal("acme", believed=believed), tenant, None)


def test_a_call_may_not_change_its_user_either():
    with pytest.raises(Forbidden, match="user_id"):
        open_session(Principal("acme", "ann"), "acme", "bob")


def test_what_a_believed_principal_leaves_open_is_taken_from_the_call():
    assert open_session(Principal(believed=True), "acme", "ann") == Session("acme", "ann")
    assert open_session(Principal(tenant="acme", believed=True), None, "ann") == Session("acme", "ann")


def test_what_another_principal_leaves_open_stays_open():
    with pytest.raises(Forbidden):
        open_session(Principal(), "acme", None)


def test_a_refusal_reads_alike_whether_there_is_another_value_or_none():
    texts: set[str] = set()
    for principal in (Principal(), Principal(tenant="acme")):
        with pytest.raises(Forbidden) as refused:
            open_session(principal, "globex-secret", None)
        texts.add(str(refused.value))
    assert len(texts) == 1
    assert "globex" not in texts.pop()


@pytest.mark.parametrize(
    ("session", "tenant", "seen"),
    [
        (Session(), None, True),
        (Session(), "acme", False),
        (Session("acme"), None, True),
        (Session("acme"), "acme", True),
        (Session("acme"), "globex", False),
        (Session("acme", databases=frozenset({"plans"})), "acme", True),
        (Session("acme", databases=frozenset({"other"})), "acme", False),
        (Session(databases=frozenset()), None, False),
    ],
)
def test_a_session_sees_what_belongs_to_nobody_or_to_its_tenant(session: Session, tenant: str | None, seen: bool):
    assert may_see(session, "plans", tenant) is seen
