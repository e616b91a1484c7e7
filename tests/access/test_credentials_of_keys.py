"""What a gate makes of named keys: who comes in, as whom, and when a key is asked for at all."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from kura.access.credentials import CredentialGate, Gate, choose_gate
from kura.access.keys import KeyRing, hash_key, make_key
from kura.errors import ConfigurationError, CredentialError, KeysUnreachable, Unreachable
from kura.store.keys import Key
from kura.types import READING, SCOPES, Principal

Where = Literal["public", "loopback", "elsewhere"]
OWNER = Principal("owner", "ann")
EVERYONE = Principal(scopes=READING)
ONE_KEY = "the one key of a setting"
PAST = "2001-01-01T00:00:00Z"


def made(**given: Any) -> tuple[str, Key]:
    opens: dict[str, Any] = {"tenant": None, "user": None, "databases": None, "scopes": READING, "expires_at": None}
    return make_key("ci", **opens | given)


def ring(*keys: Key) -> KeyRing:
    return KeyRing((), [lambda: keys])


def away() -> Sequence[Key]:
    raise Unreachable("the catalog gives no answer")


def admitted(gate: Gate, authorization: str | None) -> Principal:
    async def ask() -> Principal:
        return await gate(authorization)

    return asyncio.run(ask())


def refused(gate: Gate, authorization: str | None) -> CredentialError:
    with pytest.raises(CredentialError) as error:
        admitted(gate, authorization)
    return error.value


def chosen(where: Where = "elsewhere", ring: KeyRing | None = None, key_hash: str | None = None) -> Gate:
    return choose_gate(
        key_hash=key_hash, public=where == "public", loopback=where == "loopback", tenant=None, user=None, ring=ring
    )


def test_a_key_says_who_sends_it_and_what_that_opens():
    text, key = made(tenant="acme", user="ann", databases=frozenset({"notes"}), scopes=frozenset({"sql"}))
    principal = admitted(CredentialGate(ring=ring(key)), f"Bearer {text}")
    assert principal == Principal("acme", "ann", frozenset({"notes"}), frozenset({"sql"}), f"key:{key.id}")
    assert not principal.believed


def test_a_key_without_limits_opens_what_belongs_to_nobody():
    text, key = made(scopes=SCOPES)
    assert admitted(CredentialGate(ring=ring(key)), f"Bearer {text}") == Principal(name=f"key:{key.id}")


def test_each_key_is_somebody_else():
    keys = [made(tenant=tenant) for tenant in ("acme", "globex", None)]
    gate = CredentialGate(ring=ring(*(key for _, key in keys)))
    principals = [admitted(gate, f"Bearer {text}") for text, _ in keys]
    assert [principal.tenant for principal in principals] == ["acme", "globex", None]
    assert len({principal.name for principal in principals}) == 3


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_is_compared_without_case(scheme: str):
    text, key = made()
    assert admitted(CredentialGate(ring=ring(key)), f"{scheme} {text} ").name == f"key:{key.id}"


@pytest.mark.parametrize(
    "form", ["{}", "Basic {}", "Token {}", "Bearer\t{}", "Bearer{}", "Bearer {},", "Bearer Bearer {}"]
)
def test_a_key_that_is_sent_in_another_way_is_refused(form: str):
    text, key = made()
    gate = CredentialGate(key_hash=hash_key(ONE_KEY), ring=ring(key))
    assert refused(gate, form.format(text)).sent
    assert refused(gate, form.format(ONE_KEY)).sent


@pytest.mark.parametrize(
    "sent",
    ["", " ", "é", "schlüssel", "\xff\xfe", "\ud800", "知识库", "kura_abcd1234_" + "é" * 43,
     "kura_abcd1234_" + "ａ" * 43, "\x00", "x" * 100_000],
    ids=ascii,
)  # fmt: skip
def test_text_beyond_ascii_is_refused_as_any_other_is(sent: str):
    gate = CredentialGate(key_hash=hash_key(ONE_KEY), ring=ring(made()[1]))
    for authorization in (f"Bearer {sent}", f"{sent} {sent}", sent):
        assert str(refused(gate, authorization)) == "the credential is not valid"


def test_the_one_key_of_a_setting_may_be_beyond_ascii_beside_named_keys():
    text, key = made(tenant="acme")
    gate = CredentialGate(key_hash=hash_key("schlüssel"), owner=OWNER, ring=ring(key))
    assert admitted(gate, "Bearer " + "schlüssel".encode().decode("latin-1")) == OWNER
    assert admitted(gate, f"Bearer {text}").tenant == "acme"


def test_the_one_key_of_a_setting_and_named_keys_are_taken_side_by_side():
    text, key = made(tenant="acme")
    gate = CredentialGate(key_hash=hash_key(ONE_KEY), owner=OWNER, ring=ring(key))
    assert admitted(gate, f"Bearer {ONE_KEY}") == OWNER
    assert admitted(gate, f"Bearer {text}") == Principal("acme", None, None, READING, f"key:{key.id}")
    for sent in (text + ONE_KEY, key.id, key.hash, hash_key(ONE_KEY), made()[0]):
        refused(gate, f"Bearer {sent}")


def test_the_one_key_of_a_setting_opens_while_named_keys_cannot_be_read():
    gate = CredentialGate(key_hash=hash_key(ONE_KEY), owner=OWNER, ring=KeyRing((), [away]))
    assert admitted(gate, f"Bearer {ONE_KEY}") == OWNER
    for authorization in (None, "Bearer x", f"Bearer {made()[0]}"):
        with pytest.raises(KeysUnreachable, match="who may call") as error:
            admitted(gate, authorization)
        assert "no answer" not in str(error.value)


@pytest.mark.parametrize("end", [{"revoked_at": PAST}, {"expires_at": PAST}, {"hash": "0" * 64}], ids=str)
def test_whatever_is_wrong_with_a_key_is_refused_in_the_same_words(end: dict[str, str]):
    text, key = made()
    for sent in (text, text[:-1], key.id, made()[0]):
        error = refused(CredentialGate(ring=ring(replace(key, **end))), f"Bearer {sent}")
        assert (str(error), error.sent) == ("the credential is not valid", True)


def test_who_sends_nothing_is_told_what_to_send():
    error = refused(CredentialGate(ring=ring(made()[1])), None)
    assert not error.sent
    assert "Authorization: Bearer KEY" in str(error)


def test_the_hash_that_stands_for_no_key_opens_nothing():
    text, key = made()
    for kept in (replace(key, hash="0" * 64), replace(key, hash="")):
        for sent in (text, "", "0" * 64):
            refused(CredentialGate(ring=ring(kept)), f"Bearer {sent}")
    assert refused(CredentialGate(), "Bearer " + "0" * 64).sent


ENDS: list[dict[str, str]] = [{}, {"revoked_at": PAST}, {"expires_at": PAST}]


@pytest.mark.parametrize("end", ENDS, ids=["valid", "revoked", "expired"])
def test_a_public_server_lets_everyone_in_to_read_and_keys_open_more(end: dict[str, str]):
    text, key = made(tenant="acme", scopes=SCOPES)
    gate = chosen("public", ring(replace(key, **end)))
    for authorization in (None, "", "Bearer x", "Basic x", f"Basic {text}"):
        assert admitted(gate, authorization) == EVERYONE
    if end:
        refused(gate, f"Bearer {text}")
    else:
        assert admitted(gate, f"Bearer {text}") == Principal("acme", name=f"key:{key.id}")
    refused(gate, f"Bearer {made()[0]}")


def test_a_public_server_needs_no_keys():
    for none in (None, KeyRing(), ring()):
        assert admitted(chosen("public", none), None) == EVERYONE


def test_a_public_server_stays_so_while_its_keys_cannot_be_read():
    gate = chosen("public", KeyRing((), [away]))
    for authorization in (None, "Bearer x"):
        assert admitted(gate, authorization) == EVERYONE
    with pytest.raises(KeysUnreachable):
        admitted(gate, f"Bearer {made()[0]}")


def test_without_any_key_the_person_at_the_machine_is_let_in():
    for none in (None, KeyRing(), ring()):
        for authorization in (None, "Bearer x", f"Bearer {made()[0]}"):
            assert admitted(chosen("loopback", none), authorization) == Principal()


@pytest.mark.parametrize("where", ["loopback", "elsewhere"])
@pytest.mark.parametrize("end", ENDS, ids=["valid", "revoked", "expired"])
def test_where_there_is_any_key_one_is_asked_for(where: Where, end: dict[str, str]):
    text, key = made(tenant="acme")
    gate = chosen(where, ring(replace(key, **end)))
    assert not refused(gate, None).sent
    refused(gate, "Bearer x")
    if end:
        refused(gate, f"Bearer {text}")
    else:
        assert admitted(gate, f"Bearer {text}").tenant == "acme"


def test_where_keys_are_set_one_is_asked_for_though_there_is_none_yet():
    keys: list[Key] = []
    gate = chosen("loopback", KeyRing([lambda: keys]))
    refused(gate, None)
    text, key = made()
    keys.append(key)
    assert admitted(gate, f"Bearer {text}").name == f"key:{key.id}"


def test_the_first_key_closes_a_server_that_was_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kura.access.keys.LOOK_AGAIN_SECONDS", 0.0)
    keys: list[Key] = []
    gate = chosen("loopback", KeyRing((), [lambda: keys]))
    assert admitted(gate, None) == Principal()
    text, key = made()
    keys.append(key)
    refused(gate, None)
    assert admitted(gate, f"Bearer {text}").name == f"key:{key.id}"
    keys[0] = replace(key, revoked_at=PAST)
    refused(gate, None)
    refused(gate, f"Bearer {text}")


def test_while_nobody_knows_whether_there_are_keys_nobody_comes_in():
    gate = chosen("loopback", KeyRing((), [away]))
    for authorization in (None, f"Bearer {made()[0]}"):
        with pytest.raises(KeysUnreachable):
            admitted(gate, authorization)


def test_a_server_that_others_reach_needs_a_key_before_it_starts():
    for none in (None, KeyRing(), ring()):
        with pytest.raises(ConfigurationError, match=r"KURA_KEY_HASH.*kura keys create.*KURA_PUBLIC=true"):
            chosen("elsewhere", none)


def test_a_server_that_others_reach_starts_while_its_keys_cannot_be_read(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        gate = chosen("elsewhere", KeyRing((), [away]))
    assert "cannot be read yet: the catalog gives no answer" in caplog.text
    with pytest.raises(KeysUnreachable):
        admitted(gate, None)


@pytest.mark.parametrize("where", ["public", "loopback", "elsewhere"])
def test_the_one_key_of_a_setting_is_asked_for_wherever_it_is_set(where: Where):
    gate = chosen(where, ring(), hash_key(ONE_KEY))
    refused(gate, None)
    refused(gate, f"Bearer {made()[0]}")
    assert admitted(gate, f"Bearer {ONE_KEY}") == Principal()
