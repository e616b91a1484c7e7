import asyncio

import pytest

from kura.access.credentials import Gate, choose_gate, key_gate
from kura.access.keys import hash_key
from kura.errors import ConfigurationError, CredentialError
from kura.types import READING, Principal

PRINCIPAL = Principal("acme", "ann")
KEY = "kura-key-1234"


def admitted(gate: Gate, authorization: str | None) -> Principal:
    async def ask() -> Principal:
        return await gate(authorization)

    return asyncio.run(ask())


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_the_right_key_is_let_in(scheme: str):
    assert admitted(key_gate(hash_key(KEY), PRINCIPAL), f"{scheme} {KEY}") == PRINCIPAL


def test_a_key_beyond_ascii_is_compared_by_its_bytes():
    sent = "schlüssel".encode().decode("latin-1")
    assert admitted(key_gate(hash_key("schlüssel"), PRINCIPAL), f"Bearer {sent}") == PRINCIPAL


@pytest.mark.parametrize(
    "sent",
    [None, "", "Bearer", "Bearer ", KEY, f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Bearer\t{KEY}",
     f"Bearer {KEY.upper()}", "Bearer \ud800", "Bearer " + "x" * 100_000, f"Bearer {hash_key(KEY)}"],
    ids=str,
)  # fmt: skip
def test_any_other_credential_is_refused_without_repeating_it(sent: str | None):
    with pytest.raises(CredentialError) as refused:
        admitted(key_gate(hash_key(KEY), PRINCIPAL), sent)
    assert KEY not in str(refused.value)
    assert hash_key(KEY) not in str(refused.value)


def test_a_configured_key_is_required_on_loopback_and_on_a_public_server_too():
    for public in (True, False):
        gate = choose_gate(key_hash=hash_key(KEY), public=public, loopback=True, tenant="acme", user=None)
        with pytest.raises(CredentialError):
            admitted(gate, None)
        assert admitted(gate, f"Bearer {KEY}") == Principal("acme")


def test_on_loopback_the_person_at_the_machine_is_let_in():
    gate = choose_gate(key_hash=None, public=False, loopback=True, tenant="acme", user="ann")
    assert admitted(gate, None) == PRINCIPAL


def test_nobody_is_let_in_from_elsewhere_unless_that_was_said():
    with pytest.raises(ConfigurationError, match=r"KURA_KEY_HASH.*KURA_PUBLIC=true"):
        choose_gate(key_hash=None, public=False, loopback=False, tenant=None, user=None)
    assert admitted(choose_gate(key_hash=None, public=True, loopback=False, tenant=None, user=None), None) == Principal(
        scopes=READING
    )


def test_a_public_server_acts_for_no_tenant():
    with pytest.raises(ConfigurationError, match="public"):
        choose_gate(key_hash=None, public=True, loopback=False, tenant="acme", user=None)


@pytest.mark.parametrize("sent", [None, "", "Bearer ", "Bearer", "Basic x"])
def test_the_hash_of_nothing_lets_nobody_in(sent: str | None):
    with pytest.raises(CredentialError):
        admitted(choose_gate(key_hash=hash_key(""), public=False, loopback=False, tenant="acme", user=None), sent)
