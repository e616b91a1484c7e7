"""API keys: how they are made, written, read, and which of them a process takes."""

import asyncio
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kura.access.keys import (
    KEEP_SECONDS,
    LOOK_AGAIN_SECONDS,
    SOONEST_SECONDS,
    KeyRing,
    expiry,
    hash_key,
    id_of,
    is_valid,
    make_key,
    overlap,
    read_keys,
    successor,
    write_keys,
)
from kura.errors import ArgumentError, ConfigurationError, KeysUnreachable, KuraError, Unreachable
from kura.store import looked
from kura.store.keys import Key
from kura.types import READING, SCOPES
from tests.anything import CANARY, dumped, values

PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-12-31T00:00:00Z"
HASH = hash_key("a key")


def made(**given: Any) -> tuple[str, Key]:
    opens: dict[str, Any] = {"tenant": None, "user": None, "databases": None, "scopes": READING, "expires_at": None}
    return make_key("ci", **opens | given)


def moment(text: str | None) -> datetime:
    return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def nearly(text: str | None, expected: datetime) -> bool:
    """Whether a time that was written is the expected one, as far as a test's own duration goes."""
    return abs(moment(text) - expected) < timedelta(seconds=5)


def test_a_key_is_its_name_and_256_random_bits():
    keys = [made()[0] for _ in range(200)]
    found = [re.fullmatch(r"kura_([a-z0-9]{8})_([A-Za-z0-9]{43})", key) for key in keys]
    assert all(found)
    names, secrets = zip(*(each.groups() for each in found if each), strict=True)
    assert len(set(names)) == len(set(secrets)) == 200
    assert len(set("".join(secrets))) == 62
    assert math.log2(62) * 43 > 256


def test_of_a_new_key_only_the_hash_is_kept():
    text, key = made(tenant="acme", expires_at=FUTURE)
    assert key.hash == sha256(text.encode()).hexdigest() == hash_key(text)
    assert key.id == id_of(text)
    assert text.rpartition("_")[2] not in repr(key) + write_keys([key])
    assert (key.label, key.tenant, key.expires_at, key.revoked_at) == ("ci", "acme", FUTURE, None)
    assert nearly(key.created_at, datetime.now(UTC))


def test_what_does_not_look_like_a_key_has_no_id():
    key, _ = made()
    capitals = key[:5] + "ABCDEFGH" + key[13:]
    for sent in (key[:-1], key + "A", key + "\n", " " + key, "K" + key[1:], key[5:], capitals, key[:-1] + "é", ""):
        assert id_of(sent) is None


def test_a_key_ends_after_days_or_hours():
    spans = {"90d": timedelta(days=90), "12h": timedelta(hours=12), "99999d": timedelta(days=99_999)}
    assert all(nearly(expiry(text), datetime.now(UTC) + span) for text, span in spans.items())


def test_a_key_ends_with_a_date_or_never():
    assert expiry("never") is None
    assert expiry("2998-12-31") == "2999-01-01T00:00:00Z"
    assert expiry("2996-02-29") == "2996-03-01T00:00:00Z"
    assert moment(expiry(f"{(today := datetime.now(UTC)):%Y-%m-%d}")) > today


@pytest.mark.parametrize(
    "text",
    ["", " ", "0d", "00h", "90", "d", "90 d", "-1d", "+1d", "1.5d", "1w", "90D", "100000d", "1d12h", "٩d", "9٠d",
     "tomorrow", "Never", "2030-02-30", "2030-13-01", "2030-12-31T00:00:00Z", "31.12.2030", "9999-12-31", "90d\n",
     CANARY],
)  # fmt: skip
def test_what_is_no_end_is_refused_with_what_would_be_one(text: str):
    with pytest.raises(ArgumentError, match=r"90d or 12h.*2030-12-31.*never") as refused:
        expiry(text)
    assert CANARY not in str(refused.value)


def test_a_key_cannot_end_in_the_past():
    for text in (f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}", "2001-01-01", "0001-01-01"):
        with pytest.raises(ArgumentError, match=f"{text} is past"):
            expiry(text)


def test_an_overlap_is_a_time_or_none_at_all():
    assert overlap("0") == timedelta()
    assert overlap("24h") == timedelta(days=1) == overlap("1d")
    assert overlap("7d") == timedelta(days=7)
    for text in ("", "00", "0d", "0h", "-1h", "24", "h", "never", "2030-12-31", " 1h", "1h\n", "100000h"):
        with pytest.raises(ArgumentError, match=r"24h or 7d, or 0 for none"):
            overlap(text)


texts = st.text(st.characters(exclude_categories=()), min_size=1, max_size=200)
times = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)).map(lambda at: f"{at:%Y-%m-%dT%H:%M:%SZ}")  # noqa: DTZ001
keys = st.builds(
    Key,
    id=st.from_regex(r"[a-z0-9]{8}", fullmatch=True),
    hash=st.binary(max_size=4).map(lambda key: sha256(key).hexdigest()),
    label=st.just("") | texts,
    tenant=st.none() | texts,
    user=st.none() | texts,
    databases=st.none() | st.frozensets(st.text(max_size=10), max_size=3),
    scopes=st.frozensets(st.sampled_from(sorted(SCOPES))),
    created_at=st.just("") | times,
    expires_at=st.none() | times,
)


@given(st.lists(keys, max_size=4, unique_by=lambda key: key.id))
def test_keys_that_are_written_are_read_as_they_were(written: list[Key]):
    assert read_keys(write_keys(written), "KURA_KEYS") == written


def test_a_setting_may_be_empty_and_a_key_needs_an_id_a_hash_and_scopes_alone():
    for text in ("", " \n", "[]", write_keys([])):
        assert read_keys(text, "KURA_KEYS") == []
    [key] = read_keys(json.dumps([{"id": "abcd1234", "hash": HASH, "scopes": ["search"]}]), "KURA_KEYS")
    assert key == Key("abcd1234", HASH, scopes=frozenset({"search"}))
    assert is_valid(key)


@pytest.mark.parametrize(
    "text",
    ["{}", "null", f'"{CANARY}"', f"[{CANARY}", CANARY, "[" * 100_000, "[" + "9" * 5000 + "]", f'{{"id": "{CANARY}"}}'],
    ids=lambda text: text[:10],
)
def test_what_is_no_list_is_refused(text: str):
    with pytest.raises(
        ConfigurationError, match=r"KURA_KEYS must be a JSON list of keys, .*kura keys export"
    ) as refused:
        read_keys(text, "KURA_KEYS")
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        *((name, value, f"{name} must be text of 1 to 200 characters")
          for name in ("id", "hash", "label", "tenant", "user", "created", "expires")
          for value in ("", 7, True, [CANARY], {CANARY: 1}, CANARY * 30)),
        *(("id", value, "must have the id of a key") for value in (None, CANARY, "abcd123", "abcd12345", "abcd123\n")),
        *(("hash", value, "the SHA-256 of the whole key")
          for value in (None, CANARY, HASH[:-1], HASH + "0", HASH.upper(), HASH + "\n", f"kura_abcd1234_{CANARY}")),
        *((name, value, f"{name} must be a time such as 2030-12-31T00:00:00Z")
          for name in ("created", "expires")
          for value in (CANARY, "2030-12-31", "never", "90d", "2030-12-31T00:00:00", "2030-02-30T00:00:00Z",
                        "2030-12-31T00:00:00+02:00", "2030-12-31T24:00:00Z", " 2030-12-31T00:00:00Z")),
        *(("databases", value, "databases must be a list of texts")
          for value in (CANARY, 7, False, {CANARY: 1}, [1, CANARY], [None], [[CANARY]])),
        *(("scopes", value, "scopes must be a list of") for value in (CANARY, 7, [1], {"sql": CANARY})),
        *(("scopes", value, "scopes must be a list of search, sql, sql:write")
          for value in (None, [CANARY], ["search", "admin"], ["SQL"], [""])),
        (CANARY, 1, "none of id, hash, label, tenant, user, databases, scopes, created, expires"),
        ("revoked", None, "a field that is none of"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_as_it_should_be_is_named_with_its_rule(field: str, value: object, rule: str):
    good = {"id": "good0001", "hash": HASH, "scopes": ["sql"]}
    bad = {"id": "abcd1234", "hash": HASH, "scopes": ["sql"], "label": CANARY, field: value}
    with pytest.raises(ConfigurationError, match=f"KURA_KEYS: key 2.*{re.escape(rule)}") as refused:
        read_keys(json.dumps([good, bad]), "KURA_KEYS")
    for secret in (CANARY, HASH, "abcd123"):
        assert secret not in str(refused.value)


def test_a_key_that_is_no_object_is_refused():
    for text in ("[null]", f'["{CANARY}"]', "[1]", "[[]]"):
        with pytest.raises(ConfigurationError, match="KURA_KEYS_FILE: key 1 must be an object with id and hash"):
            read_keys(text, "KURA_KEYS_FILE")


def test_two_keys_of_one_id_are_refused():
    with pytest.raises(ConfigurationError, match="KURA_KEYS: two keys have the same id"):
        read_keys(write_keys([Key("abcd1234", HASH), Key("abcd1234", hash_key("another"))]), "KURA_KEYS")


fields = st.fixed_dictionaries(
    {"id": st.just("abcd1234") | values, "hash": st.just(HASH) | values, "scopes": st.just(["sql"]) | values},
    optional={name: st.just(CANARY) | values for name in ("label", "tenant", "databases", "created", "expires", "x")},
)


@given(st.lists(fields | values, max_size=2) | values)
def test_whatever_a_setting_holds_is_keys_or_refused_without_being_repeated(sent: object):
    try:
        read, told = read_keys(dumped(sent).decode("utf-8", "surrogatepass"), "KURA_KEYS"), ""
    except ConfigurationError as error:
        read, told = [], str(error)
    assert all(key.id == "abcd1234" for key in read)
    assert CANARY not in told
    assert HASH not in told


class Clock:
    """Stands for `time` where values are looked at again."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(looked, "time", clock)
    return clock


class Kept:
    """Keys that are kept somewhere, and how often somebody read them."""

    def __init__(self, *kept: Key) -> None:
        self.keys: Sequence[Key] = kept
        self.read = 0
        self.fault: KuraError | None = None

    def __call__(self) -> Sequence[Key]:
        self.read += 1
        if self.fault is not None:
            raise self.fault
        return self.keys


def taken(ring: KeyRing, sent: str | None) -> bool:
    return asyncio.run(ring.find(sent)).key is not None


@pytest.mark.parametrize("where", ["settings", "catalogs"])
def test_a_valid_key_is_found_with_what_it_opens(where: str):
    text, key = made(databases=frozenset({"notes"}), expires_at=FUTURE)
    found = asyncio.run(KeyRing(**{where: [Kept(made()[1], key)]}).find(text))
    assert (found.key, found.any) == (key, True)


@pytest.mark.parametrize("where", ["settings", "catalogs"])
@pytest.mark.parametrize("end", [{"expires_at": PAST}, {"revoked_at": PAST}, {"revoked_at": FUTURE}, {"hash": HASH}])
def test_a_key_that_is_expired_revoked_or_another_is_refused(where: str, end: dict[str, str]):
    text, key = made()
    found = asyncio.run(KeyRing(**{where: [Kept(replace(key, **end))]}).find(text))
    assert (found.key, found.any) == (None, True)


def test_the_right_id_with_another_secret_is_refused():
    text, key = made()
    other = text[:14] + made()[0][14:]
    ring = KeyRing([Kept(key)], [Kept(key)])
    assert id_of(other) == key.id
    assert not taken(ring, other)
    for sent in (None, "", made()[0], text[:-1], text + " ", key.id, key.hash, "é", "x" * 100_000):
        assert not taken(ring, sent)
    assert taken(ring, text)


def test_without_any_keys_that_is_said():
    # Whoever sets keys wants one to be asked for, even while the setting holds none.
    for ring, any_ in ((KeyRing(), False), (KeyRing((), [Kept(), Kept()]), False), (KeyRing([Kept()], [Kept()]), True)):
        for sent in (None, made()[0]):
            found = asyncio.run(ring.find(sent))
            assert (found.key, found.any) == (None, any_)


@pytest.mark.parametrize("end", [{"expires_at": PAST}, {"revoked_at": PAST}], ids=["expired", "revoked"])
@pytest.mark.parametrize("where", range(3))
def test_a_key_that_ended_in_one_place_is_not_taken_from_another(end: dict[str, str], where: int):
    text, key = made()
    kept = [Kept(replace(key, **end) if place == where else key) for place in range(3)]
    assert not taken(KeyRing(kept[:1], kept[1:]), text)


def test_a_key_made_a_moment_ago_is_taken_at_once(clock: Clock):
    catalog = Kept()
    ring = KeyRing((), [catalog])
    assert not taken(ring, None)
    clock.now += SOONEST_SECONDS
    text, key = made()
    catalog.keys = [key]
    assert taken(ring, text)


def test_unknown_keys_make_a_catalog_be_read_once_a_second_at_most(clock: Clock):
    catalog = Kept(made()[1])
    ring = KeyRing((), [catalog])
    for second in range(1, 4):
        for _ in range(5):
            assert not taken(ring, made()[0])
        assert catalog.read == second
        clock.now += SOONEST_SECONDS
    assert not taken(ring, "none of ours")
    assert not taken(ring, None)
    assert catalog.read == 3


def test_a_wrong_secret_makes_a_catalog_be_read_as_an_unknown_key_does(clock: Clock):
    text, key = made()
    catalog = Kept(key)
    ring = KeyRing((), [catalog])
    assert taken(ring, text)
    clock.now += SOONEST_SECONDS
    assert not taken(ring, text[:14] + made()[0][14:])
    assert catalog.read == 2


def test_known_keys_are_looked_at_again_after_a_while_and_a_revoked_one_is_refused_then(clock: Clock):
    text, key = made()
    catalog = Kept(key)
    ring = KeyRing((), [catalog])
    assert taken(ring, text)
    catalog.keys = [replace(key, revoked_at=PAST)]
    clock.now += LOOK_AGAIN_SECONDS - 0.1
    assert taken(ring, text)
    assert catalog.read == 1
    clock.now += 0.1
    assert not taken(ring, text)
    assert catalog.read == 2


def test_while_a_catalog_cannot_be_read_its_keys_are_good_for_a_while(clock: Clock):
    text, key = made()
    catalog = Kept(key)
    ring = KeyRing((), [catalog])
    assert taken(ring, text)
    catalog.fault = Unreachable("it gives no answer")
    for _ in range(int(KEEP_SECONDS / LOOK_AGAIN_SECONDS)):
        clock.now += LOOK_AGAIN_SECONDS
        assert taken(ring, text)
        assert not taken(ring, made()[0])
    clock.now += 0.1
    with pytest.raises(KeysUnreachable, match="who may call"):
        taken(ring, text)


def test_a_catalog_that_could_never_be_read_lets_nobody_in(clock: Clock):
    text, key = made()
    catalog, settings = Kept(key), Kept(key)
    catalog.fault = Unreachable("it gives no answer")
    ring = KeyRing([settings], [catalog])
    for sent in (text, None, "none of ours"):  # it may have been revoked there
        with pytest.raises(KeysUnreachable, match="who may call"):
            taken(ring, sent)
    assert catalog.read == 1
    catalog.fault = None
    clock.now += SOONEST_SECONDS
    assert taken(ring, text)


def test_a_successor_opens_what_the_old_key_did():
    _, old = made(tenant="acme", user="ann", databases=frozenset({"notes"}), scopes=frozenset({"sql"}))
    text, new, ending = successor(old, timedelta(hours=24))
    assert new == replace(old, id=id_of(text) or "", hash=hash_key(text), created_at=new.created_at)
    assert ending == replace(old, expires_at=ending.expires_at)
    assert nearly(ending.expires_at, datetime.now(UTC) + timedelta(hours=24))
    assert taken(KeyRing([Kept(new, ending)]), text)


def test_a_successor_lives_as_long_as_the_old_key_was_meant_to_which_ends_after_the_overlap_at_the_latest():
    at = datetime.now(UTC)
    born, end = (f"{at + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (-80, 10))
    old = replace(made()[1], created_at=born, expires_at=end)
    _, new, ending = successor(old, timedelta(days=1))
    assert nearly(new.expires_at, at + timedelta(days=90))
    assert nearly(ending.expires_at, at + timedelta(days=1))
    assert successor(old, timedelta(days=30))[2].expires_at == end
    assert not is_valid(successor(old, timedelta())[2])


def test_a_key_that_is_not_valid_has_no_successor():
    _, old = made()
    for ended in (replace(old, expires_at=PAST), replace(old, revoked_at=PAST)):
        with pytest.raises(ArgumentError, match=f'"{old.id}" is not valid any more; create a new one'):
            successor(ended, timedelta(days=1))
