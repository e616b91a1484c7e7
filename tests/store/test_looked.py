"""Values that are read elsewhere and looked at again: when that happens, and what is said while it does not work."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kura.errors import ConfigurationError, KuraError, StoreError, Unreachable
from kura.store import looked
from kura.store.looked import Looked, Reread


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


class Far:
    """A number that goes up with every time that it is read, unless there is a fault."""

    def __init__(self) -> None:
        self.read = 0
        self.fault: KuraError | None = None

    def __call__(self) -> int:
        self.read += 1
        if self.fault is not None:
            raise self.fault
        return self.read


class Slow:
    """A number that is read only when a test lets go of it; the first one comes at once."""

    def __init__(self) -> None:
        self.read = 0
        self.asked, self.free = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.read += 1
        if self.read > 1:
            self.asked.set()
            assert self.free.wait(10)
        return self.read


def test_nothing_is_read_before_somebody_asks(clock: Clock):
    far = Far()
    value = Looked(far, every=1.0)
    clock.now += 100
    assert far.read == 0
    assert value.get() == 1


def test_a_value_is_read_again_after_its_time_and_not_before(clock: Clock):
    value = Looked(Far(), every=10.0)
    assert [value.get(), value.get(again=True)] == [1, 1]
    clock.now += 9.9
    assert value.get() == 1
    clock.now += 0.1
    assert [value.get(), value.get()] == [2, 2]


def test_who_asks_again_gets_a_newer_value_unless_one_was_had_a_moment_ago(clock: Clock):
    value = Looked(Far(), every=10.0, soonest=1.0)
    assert [value.get(), value.get(again=True)] == [1, 1]
    clock.now += 0.9
    assert value.get(again=True) == 1
    clock.now += 0.1
    assert [value.get(), value.get(again=True), value.get(again=True), value.get()] == [1, 2, 2, 2]


def test_with_no_time_at_all_every_caller_reads(clock: Clock):
    value = Looked(Far(), every=0.0)
    assert [value.get(), value.get(), value.get(again=True)] == [1, 2, 3]
    assert clock.now == 1000.0


def test_while_it_cannot_be_read_the_last_value_is_good_and_the_fault_is_known(clock: Clock):
    far = Far()
    value = Looked(far, every=10.0, soonest=1.0, keep=60.0)
    assert value.get() == 1
    assert value.fault is None
    far.fault = StoreError("no")
    clock.now += 10
    assert value.get() == 1
    assert value.fault is far.fault
    clock.now += 50
    assert value.get() == 1
    clock.now += 0.1
    with pytest.raises(StoreError, match="no"):
        value.get()
    far.fault = None
    clock.now += 1
    assert value.get() == far.read
    assert value.fault is None


def test_without_a_limit_the_last_value_is_good_for_ever(clock: Clock):
    far = Far()
    value = Looked(far, every=1.0)
    assert value.get() == 1
    far.fault = StoreError("no")
    clock.now += 1e9
    assert value.get() == 1


def test_after_a_fault_it_is_read_again_as_soon_as_it_may(clock: Clock):
    far = Far()
    far.fault = Unreachable("no")
    value = Looked(far, every=10.0, soonest=1.0)
    for _ in range(3):
        with pytest.raises(Unreachable):
            value.get()
    assert far.read == 1
    far.fault = None
    clock.now += 1.0
    assert value.get() == far.read == 2


def test_a_value_that_was_never_read_is_the_last_fault(clock: Clock):
    far = Far()
    value = Looked(far, every=1.0)
    for fault in (StoreError("first"), Unreachable("second")):
        far.fault = fault
        with pytest.raises(type(fault), match=str(fault)):
            value.get()
        clock.now += 1.0


def at_once(ask: Callable[[], int], threads: int = 16) -> list[int]:
    with ThreadPoolExecutor(threads) as pool:
        start = threading.Barrier(threads)

        def one(_number: int) -> int:
            start.wait(10)
            return ask()

        return list(pool.map(one, range(threads)))


def test_many_threads_read_once(clock: Clock):
    far = Far()
    value = Looked(far, every=10.0, soonest=1.0)
    assert at_once(value.get) == [1] * 16
    clock.now += 1
    assert at_once(lambda: value.get(again=True)) == [2] * 16
    clock.now += 10
    assert at_once(value.get) == [3] * 16
    assert far.read == 3


def test_who_comes_first_waits_for_the_value_however_long_it_takes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(looked, "LOOK_SECONDS", 0.001)
    slow = Slow()
    slow.read = 1
    value = Looked(slow, every=1000.0)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(value.get) for _ in range(3)]
        assert slow.asked.wait(10)
        assert not any(each.done() for each in waiting)
        slow.free.set()
        assert [each.result(10) for each in waiting] == [2, 2, 2]


def test_who_says_how_long_waits_no_longer_for_the_first_value():
    slow = Slow()
    slow.read = 1
    value = Looked(slow, every=1000.0)
    with pytest.raises(KuraError, match="could not be read"):
        value.get(within=0.001)
    slow.free.set()
    assert value.get() == 2


def test_a_slow_look_holds_nobody_up_who_has_a_value(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(looked, "LOOK_SECONDS", 0.001)
    slow = Slow()
    value = Looked(slow, every=1.0)
    assert value.get() == 1
    clock.now += 1.0
    assert [value.get(), value.get(), value.get()] == [1, 1, 1]
    assert slow.asked.wait(10)
    assert slow.read == 2
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(value.get, again=True)  # who needs a newer one waits for it
        slow.free.set()
        assert asking.result(10) == 2


def numbers(text: str) -> list[int]:
    try:
        return [int(line) for line in text.split()]
    except ValueError:
        raise ConfigurationError("NUMBERS must be numbers") from None


def replaced(file: Path, text: str) -> None:
    """As editors and deployments do it: a new file, put in the old one's place."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "numbers"
    file.write_text("1 2", encoding="utf-8")
    return file


def test_a_file_is_read_again_when_it_was_replaced_or_written(file: Path):
    value = Reread(file, numbers, "NUMBERS")
    assert value.get() == [1, 2]
    replaced(file, "3 4")
    assert value.get() == [3, 4]
    file.write_text("3 4 5", encoding="utf-8")
    assert value.get() == [3, 4, 5]
    os.utime(file, ns=(0, 0))
    assert value.get() == [3, 4, 5]


def test_a_file_that_has_not_changed_is_not_read_again(file: Path):
    read: list[str] = []
    value = Reread(file, read.append, "NUMBERS")
    for _ in range(5):
        value.get()
    assert read == ["1 2"]


@pytest.mark.parametrize("damage", [b"1 two", b"\xff\xfe", None, "a folder"], ids=str)
def test_a_file_that_is_damaged_or_gone_leaves_its_last_value_until_it_is_mended(
    file: Path, damage: bytes | str | None
):
    value = Reread(file, numbers, "NUMBERS")
    file.unlink()
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    elif damage:
        file.mkdir()
    assert [value.get(), value.get()] == [[1, 2], [1, 2]]
    if file.is_dir():
        file.rmdir()
    replaced(file, "5 6 7")
    assert value.get() == [5, 6, 7]


def test_a_damaged_file_is_parsed_once(file: Path):
    parsed: list[str] = []

    def parse(text: str) -> int:
        parsed.append(text)
        return len(numbers(text))

    value = Reread(file, parse, "NUMBERS")
    replaced(file, "one")
    assert [value.get(), value.get()] == [2, 2]
    assert parsed == ["1 2", "one"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", "a folder"], ids=str)
def test_a_file_that_cannot_be_read_at_the_start_is_an_error_that_names_the_setting(
    tmp_path: Path, content: bytes | str | None
):
    file = tmp_path / "numbers"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        file.mkdir()
    with pytest.raises(ConfigurationError, match="NUMBERS does not name a file that can be read") as refused:
        Reread(file, numbers, "NUMBERS")
    assert str(tmp_path) not in str(refused.value)


def test_a_file_that_is_not_as_it_should_be_at_the_start_is_an_error(file: Path):
    file.write_text("one", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="NUMBERS must be numbers"):
        Reread(file, numbers, "NUMBERS")


def test_many_threads_parse_a_new_file_once(file: Path):
    parsed: list[str] = []

    def parse(text: str) -> int:
        parsed.append(text)
        return len(text)

    value = Reread(file, parse, "NUMBERS")
    replaced(file, "12345")
    assert at_once(value.get) == [5] * 16
    assert parsed == ["1 2", "12345"]
