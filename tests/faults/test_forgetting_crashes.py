"""An erasure that is cut off between any two of its steps is complete after it is run again; and
two at the same time are both complete, however their steps fall."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.eventsourcing.key_book import Remark, SubjectForgotten
from millstream.eventsourcing.keyring import Keyring
from millstream.eventsourcing.sealing import take_apart
from tests.support import key_thief
from tests.support.memory_keys import MemoryKeyStore, MemoryKeyTopic, MemoryLog, Step, no_step

NOW = Remark(datetime(2026, 11, 18, tzinfo=UTC))
PLACE = bytes(16)
TURN_SECONDS_MAX = 60.0


class Killed(BaseException):
    """Nothing catches it, as nothing catches kill -9."""


class KilledAt:
    """Ends its process at the step of this number."""

    def __init__(self, number: int) -> None:
        self.left, self.at = number, ""

    def __call__(self, name: str) -> None:
        if self.left == 0:
            self.at = name
            raise Killed(name)
        self.left -= 1


class Shop:
    def __init__(self) -> None:
        self.log, self.files = MemoryLog(), dict[str, bytes]()
        before = self.process()
        self.tokens = {name: _sealed(before, name) for name in ("ada", "bob", "cy", "dee")}

    def process(self, step: Step = no_step) -> Keyring:
        """It reads the topic whenever it asks for a key."""
        clock = iter(range(10**9)).__next__
        store = MemoryKeyStore(self.files, step)
        return Keyring(MemoryKeyTopic(self.log, step), store, clock=lambda: clock() * 10.0)

    def stolen(self, name: str) -> bytes | None:
        """By who has all that was ever in the topic, and what is left in the key store."""
        records = [
            (f"{key.removeprefix(b'subject:').decode()}.{value['generation']}", value)
            for key, text in self.log.records
            if key != b"ring" and "key" in (value := msgspec.json.decode(text))
        ]
        wrapped = [(key_id, value["wrapping"], value["key"]) for key_id, value in records]
        files = list(self.files.values())
        return key_thief.opened(self.tokens[name], key_thief.unwrapped(wrapped, files), files)


def _sealed(keyring: Keyring, subject: str) -> str:
    return keyring.key_for(subject).seal(subject.encode(), PLACE)


def _opened(keyring: Keyring, token: str) -> bytes | None:
    found = take_apart(token, place="")
    key = keyring.key_of(found.key_id)
    return None if key is None else key.open(found)


def assert_forgotten(shop: Shop, *names: str) -> None:
    keyring = shop.process()
    assert not keyring.is_unfinished
    for name, token in shop.tokens.items():
        if name in names:
            assert _opened(keyring, token) is None
            assert shop.stolen(name) is None
            with pytest.raises(SubjectForgotten):
                keyring.key_for(name)
        else:
            assert _opened(keyring, token) == name.encode() == shop.stolen(name)


def test_the_thief_opens_what_is_not_forgotten() -> None:
    """The control: else that he fails later would say nothing."""
    shop = Shop()
    assert [shop.stolen(name) for name in ("ada", "bob")] == [b"ada", b"bob"]


def cut_at_every_step(run: Callable[[Keyring], object]) -> list[tuple[str, Shop]]:
    """A shop for each step at which its run was cut off."""
    cut: list[tuple[str, Shop]] = []
    while True:
        shop, kill = Shop(), KilledAt(len(cut))
        try:
            run(shop.process(kill))
        except Killed:
            cut.append((kill.at, shop))
        else:
            return cut


def test_an_erasure_that_was_cut_off_anywhere_is_complete_after_the_next() -> None:
    cut = cut_at_every_step(lambda keyring: keyring.forget(["ada"], NOW))
    names = [name for name, _ in cut]
    assert names == [
        *("open", "commit", "committed"),  # announced
        *("keep", "kept", "commit", "committed"),  # decided
        *("commit", "committed"),  # rewrapped
        *("destroy", "destroyed", "commit", "committed"),  # completed
    ]
    for _, shop in cut:
        shop.process().forget(["ada"], NOW)
        assert_forgotten(shop, "ada")


def test_what_was_cut_off_is_finished_by_who_forgets_somebody_else() -> None:
    for number, (_, shop) in enumerate(cut_at_every_step(lambda one: one.forget(["ada"], NOW))):
        shop.process().forget(["bob"], NOW)
        is_decided = number > 5
        assert_forgotten(shop, *(["ada", "bob"] if is_decided else ["bob"]))


def test_new_subjects_are_sealed_whatever_was_cut_off() -> None:
    for _, shop in cut_at_every_step(lambda one: one.forget(["ada"], NOW)):
        shop.tokens["eve"] = _sealed(shop.process(), "eve")
        shop.process().forget(["ada"], NOW)
        assert_forgotten(shop, "ada")


def test_the_first_key_of_all_is_made_whatever_was_cut_off() -> None:
    number = 0
    while True:
        log, files = MemoryLog(), dict[str, bytes]()
        kill = KilledAt(number)
        process = Keyring(MemoryKeyTopic(log, kill), MemoryKeyStore(files, kill))
        try:
            process.key_for("ada")
        except Killed:
            number += 1
        else:
            break
        kill.left = -1  # the same process goes on, as after an error that passes
        assert process.key_for("ada")
        again = Keyring(MemoryKeyTopic(log), MemoryKeyStore(files))
        third = Keyring(MemoryKeyTopic(log), MemoryKeyStore(files))
        assert third.key_for("ada").secret == again.key_for("ada").secret
    assert number > 8


class Turns:
    """Lets one thread at a time take a step, in the order that it is told; then in any."""

    def __init__(self, order: list[int], count: int) -> None:
        self._order, self._running = iter(order), set(range(count))
        self._changed = threading.Condition()
        self._turn = self._next()

    def of(self, number: int) -> Step:
        def take(_name: str) -> None:
            with self._changed:
                self._pass_on(number)
                mine = self._changed.wait_for(lambda: self._turn == number, TURN_SECONDS_MAX)
                assert mine, "no turn came"

        return take

    def ended(self, number: int) -> None:
        with self._changed:
            self._running.discard(number)
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._turn == number and self._running:
            self._turn = self._next()
            self._changed.notify_all()

    def _next(self) -> int:
        wanted = next(self._order, 0)
        return wanted if wanted in self._running else min(self._running)


def run_in_turns(runs: list[Callable[[Step], object]], order: list[int]) -> list[Any]:
    turns, failures = Turns(order, len(runs)), list[Any]()

    def run(number: int) -> None:
        try:
            runs[number](turns.of(number))
        except BaseException as error:
            failures.append(error)
        finally:
            turns.ended(number)

    threads = [threading.Thread(target=run, args=[number]) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TURN_SECONDS_MAX)
    return failures


@settings(max_examples=150, deadline=None)
@given(order=st.lists(st.integers(0, 2), max_size=80), same=st.booleans())
def test_erasures_and_new_subjects_at_the_same_time_all_succeed(
    order: list[int], same: bool
) -> None:
    shop = Shop()
    names = ("ada", "ada" if same else "bob")

    def add(step: Step) -> None:
        keyring = shop.process(step)
        for name in ("eve", "fay"):
            shop.tokens[name] = _sealed(keyring, name)

    runs: list[Callable[[Step], object]] = [
        lambda step: shop.process(step).forget([names[0]], NOW),
        lambda step: shop.process(step).forget([names[1]], NOW),
        add,
    ]
    assert run_in_turns(runs, order) == []
    assert_forgotten(shop, *names)
