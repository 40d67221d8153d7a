"""Guessing passwords gets slower and slower, for the one who guesses."""

import pytest

from millstream.broker.security import login_attempts
from millstream.broker.security.login_attempts import (
    ADDRESS_FAILURES_FREE,
    ADDRESS_WAIT_MS_MAX,
    FORGET_MS,
    PAIR_FAILURES_FREE,
    TURN_MS_MAX,
    WAIT_MS_FIRST,
    WAIT_MS_MAX,
    LoginAttempts,
    TooManyAttempts,
)

NOW_MS = 1_700_000_000_000
HOME, AWAY = "10.0.0.1", "10.0.0.2"


def failed(times: int, *, address: str = HOME, user: str = "ada") -> LoginAttempts:
    attempts = LoginAttempts()
    for _ in range(times):
        attempts.failed(address, user, now_ms=NOW_MS)
    return attempts


def test_nobody_waits_before_the_first_failures() -> None:
    assert LoginAttempts().take_turn(HOME, "ada", now_ms=NOW_MS) == 0
    assert failed(PAIR_FAILURES_FREE).take_turn(HOME, "ada", now_ms=NOW_MS) == 0


def turn_ms(attempts: LoginAttempts, user: str = "ada", *, now_ms: int = NOW_MS) -> int:
    """When the next attempt is checked: those that are refused come again when they are told."""
    while True:
        try:
            return now_ms + attempts.take_turn(HOME, user, now_ms=now_ms)
        except TooManyAttempts as refusal:
            now_ms += refusal.retry_in_ms


def test_the_wait_doubles_up_to_its_limit() -> None:
    waits = [turn_ms(failed(PAIR_FAILURES_FREE + more)) - NOW_MS for more in range(1, 12)]
    assert waits[:4] == [WAIT_MS_FIRST, 2 * WAIT_MS_FIRST, 4 * WAIT_MS_FIRST, 8 * WAIT_MS_FIRST]
    assert waits[-1] == WAIT_MS_MAX


def test_a_host_of_ipv6_guesses_no_faster_from_many_of_its_addresses() -> None:
    attempts = LoginAttempts()
    for number in range(PAIR_FAILURES_FREE + 1):
        attempts.failed(f"2001:db8::{number}", "ada", now_ms=NOW_MS)
    assert attempts.take_turn("2001:db8::ffff", "ada", now_ms=NOW_MS) == WAIT_MS_FIRST
    assert attempts.take_turn("2001:db8:0:1::1", "ada", now_ms=NOW_MS) == 0


def test_the_wait_is_over_when_it_is_over() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 1)
    assert attempts.take_turn(HOME, "ada", now_ms=NOW_MS + WAIT_MS_FIRST) == 0


def guesses_one_after_another(seconds: int) -> list[int]:
    attempts, now_ms, checked = LoginAttempts(), NOW_MS, []
    while (now_ms := turn_ms(attempts, now_ms=now_ms)) <= NOW_MS + seconds * 1_000:
        attempts.failed(HOME, "ada", now_ms=now_ms)
        checked.append(now_ms)
    return checked


def test_guesses_at_once_are_as_slow_as_one_after_another() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 1)
    turns = [turn_ms(attempts) for _ in range(6)]
    assert turns == guesses_one_after_another(10)[PAIR_FAILURES_FREE + 1 :][:5] + turns[5:]
    assert turns[5] > NOW_MS + TURN_MS_MAX


def test_ten_guesses_in_26_seconds_then_two_a_minute() -> None:
    assert len(guesses_one_after_another(26)) == 10
    hour = len(guesses_one_after_another(3_600))
    assert 120 <= hour <= 130


def test_a_turn_that_is_too_far_away_is_refused_and_moves_nothing() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 20)
    for _ in range(1_000):
        with pytest.raises(TooManyAttempts, match="try again in 31 s"):
            attempts.take_turn(HOME, "ada", now_ms=NOW_MS)
    later_ms = NOW_MS + WAIT_MS_MAX - TURN_MS_MAX
    assert attempts.take_turn(HOME, "ada", now_ms=later_ms) == TURN_MS_MAX


def test_one_that_does_not_stay_for_its_turn_moves_nothing() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 1)
    for _ in range(5):
        attempts.take_turn(HOME, "ada", now_ms=NOW_MS)
    for _ in range(5):
        attempts.gave_up(HOME, "ada")
    assert attempts.take_turn(HOME, "ada", now_ms=NOW_MS) == WAIT_MS_FIRST


def test_one_that_goes_does_not_hurry_those_that_stay() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 1)
    turns = [turn_ms(attempts) for _ in range(3)]
    attempts.gave_up(HOME, "ada")
    assert turn_ms(attempts) > turns[-1]


def test_nobody_can_lock_out_a_user_who_is_elsewhere() -> None:
    assert failed(1_000).take_turn(AWAY, "ada", now_ms=NOW_MS) == 0


def test_an_address_that_tries_many_users_waits_too() -> None:
    attempts = LoginAttempts()
    for number in range(ADDRESS_FAILURES_FREE + 1):
        assert attempts.take_turn(HOME, f"user{number}", now_ms=NOW_MS) == 0
        attempts.failed(HOME, f"user{number}", now_ms=NOW_MS)
    assert attempts.take_turn(HOME, "another", now_ms=NOW_MS) == WAIT_MS_FIRST


def test_the_right_password_ends_the_suspicion() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 3)
    attempts.succeeded(HOME, "ada")
    assert attempts.take_turn(HOME, "ada", now_ms=NOW_MS) == 0


def test_a_right_password_gets_in_within_a_second_whoever_else_guesses_there() -> None:
    attempts = failed(1_000)
    for number in range(1_000):
        attempts.take_turn(HOME, f"user{number}", now_ms=NOW_MS)
        attempts.failed(HOME, f"user{number}", now_ms=NOW_MS)
    assert attempts.take_turn(HOME, "bob", now_ms=NOW_MS) == ADDRESS_WAIT_MS_MAX == 1_000
    attempts.succeeded(HOME, "bob")
    assert attempts.take_turn(HOME, "bob", now_ms=NOW_MS) == 0, "it has been right there before"
    assert attempts.take_turn(HOME, "eve", now_ms=NOW_MS) == ADDRESS_WAIT_MS_MAX


def test_who_has_logged_in_before_is_not_spared_failures_of_its_own() -> None:
    attempts = LoginAttempts()
    attempts.succeeded(HOME, "ada")
    for _ in range(PAIR_FAILURES_FREE + 1):
        attempts.failed(HOME, "ada", now_ms=NOW_MS)
    assert attempts.take_turn(HOME, "ada", now_ms=NOW_MS) == WAIT_MS_FIRST


def test_failures_are_forgotten_after_a_while() -> None:
    attempts = failed(PAIR_FAILURES_FREE + 30)
    assert attempts.take_turn(HOME, "ada", now_ms=NOW_MS + FORGET_MS) == 0
    assert len(attempts) == 0


def test_a_flood_of_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "SUSPECTS_MAX", 10)
    monkeypatch.setattr(login_attempts, "PROVEN_MAX", 10)
    attempts = LoginAttempts()
    for number in range(100):
        attempts.succeeded(HOME, f"user{number}")
        attempts.failed(HOME, f"user{number}", now_ms=NOW_MS)
    assert len(attempts._proven) == 10
    assert len(attempts) == 10
    assert attempts.take_turn(HOME, "x", now_ms=NOW_MS) > 0  # the address itself is still known
