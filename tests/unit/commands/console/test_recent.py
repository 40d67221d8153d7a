"""Answers that are a moment old."""

import threading

import pytest

from millstream.base.errors import Retryable
from millstream.commands.console.recent import (
    ANSWERS_MAX,
    ERROR_KEEP_SECONDS,
    KEEP_SECONDS_MIN,
    Recent,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """Counts; each question takes a time of the clock."""

    def __init__(self, clock: Clock, *, takes_s: float = 0.0) -> None:
        self.clock, self.takes_s, self.times = clock, takes_s, 0
        self.error: Exception | None = None

    def __call__(self) -> int:
        self.times += 1
        self.clock.now += self.takes_s
        if self.error is not None:
            raise self.error
        return self.times


class Unreached(Retryable):
    pass


def test_the_same_question_is_asked_once_in_a_second() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock)
    assert [recent.answer("a", asked), recent.answer("a", asked)] == [1, 1]
    clock.now += KEEP_SECONDS_MIN
    assert recent.answer("a", asked) == 2
    assert recent.answer("b", asked) == 3


def test_what_is_dear_is_asked_less_often() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock, takes_s=3.0)
    recent.answer("a", asked)
    clock.now += 14.9
    assert recent.answer("a", asked) == 1
    clock.now += 0.2
    assert recent.answer("a", asked) == 2


def test_an_error_is_an_answer_too() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock)
    asked.error = Unreached("nobody answers")
    for _ in range(2):
        with pytest.raises(Unreached):
            recent.answer("a", asked)
    assert asked.times == 1


def test_an_error_is_soon_asked_again_however_long_it_took() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock, takes_s=15.0)
    asked.error = Unreached("nobody answers in time")
    with pytest.raises(Unreached):
        recent.answer("a", asked)
    asked.error = None
    clock.now += ERROR_KEEP_SECONDS
    assert recent.answer("a", asked) == 2


def test_a_question_that_hangs_holds_up_no_other_one() -> None:
    recent = Recent()
    hangs, may_end = threading.Event(), threading.Event()

    def hang() -> str:
        hangs.set()
        assert may_end.wait(60)
        return "late"

    found: list[str] = []
    first = threading.Thread(target=lambda: found.append(recent.answer("a", hang)))
    first.start()
    assert hangs.wait(60)
    other = threading.Thread(target=lambda: found.append(recent.answer("b", lambda: "at once")))
    other.start()
    other.join(5)
    recent.forget()  # does not wait for it, either
    assert found == ["at once"]
    may_end.set()
    first.join(60)
    assert found == ["at once", "late"]
    assert recent.answer("a", lambda: "new") == "new"  # what was asked before a change is not kept


def test_a_question_may_ask_another_one() -> None:
    recent = Recent()
    assert recent.answer("a", lambda: recent.answer("b", lambda: 1) + 1) == 2


def test_after_a_change_all_is_asked_anew() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock)
    recent.answer("a", asked)
    recent.forget()
    assert recent.answer("a", asked) == 2


def test_so_many_answers_are_kept() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock)
    for number in range(ANSWERS_MAX + 1):
        recent.answer(number, asked)
    before = asked.times
    recent.answer(1, asked)
    assert asked.times == before
    recent.answer(0, asked)
    assert asked.times == before + 1


def test_many_who_ask_at_once_ask_once() -> None:
    clock = Clock()
    recent, asked = Recent(clock), Asked(clock)
    threads = [threading.Thread(target=recent.answer, args=("a", asked)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert asked.times == 1
