"""Sources that are asked one after another see a turn in the same round."""

from pathlib import Path

import pytest

from millstream.processing.steps.gate import Entrance, Gate


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def clicks(gate: Gate, tmp_path: Path) -> Entrance:
    return Entrance(tmp_path / "gate", "clicks")


@pytest.fixture
def users(gate: Gate, tmp_path: Path) -> Entrance:
    return Entrance(tmp_path / "gate", "users")


def test_nothing_enters_before_the_first_turn(clicks: Entrance, users: Entrance) -> None:
    assert [clicks.may_enter(), users.may_enter()] == [False, False]


def test_all_enter_in_a_turn_and_once(gate: Gate, clicks: Entrance, users: Entrance) -> None:
    gate.open()
    assert [clicks.may_enter(), users.may_enter()] == [True, True]
    assert [clicks.may_enter(), users.may_enter()] == [False, False]


def test_a_turn_that_opens_between_two_questions_waits_for_the_next_round(
    gate: Gate, clicks: Entrance, users: Entrance
) -> None:
    clicks.may_enter(), users.may_enter()
    before = clicks.may_enter()
    gate.open()
    assert [before, users.may_enter()] == [False, False]
    assert [clicks.may_enter(), users.may_enter()] == [True, True]


def test_a_query_that_starts_anew_may_ask_in_another_order(
    gate: Gate, clicks: Entrance, tmp_path: Path
) -> None:
    gate.open()
    assert clicks.may_enter()
    again = Gate(tmp_path / "gate")
    users, clicks = (Entrance(tmp_path / "gate", name) for name in ("users", "clicks"))
    assert [users.may_enter(), clicks.may_enter()] == [False, False]
    again.open()
    assert [users.may_enter(), clicks.may_enter()] == [True, True]
