from dataclasses import replace

import pytest

from millstream.broker.groups.group_messages import LeavingMember
from millstream.broker.groups.group_state import GroupLimits, GroupState
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import REBALANCE_MS, SESSION_MS, GroupDriver


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def test_members_go_on_as_if_nothing_had_happened(driver: GroupDriver) -> None:
    leader, follower = driver.stabilize(None, "pod-2")
    driver.restart()
    assert driver.group.state is GroupState.STABLE
    assert driver.group.roster.leader == leader
    assert driver.heartbeat(follower, instance_id="pod-2") is ErrorCode.NONE
    assert driver.ask_to_sync(leader, generation=1).reply.assignment == leader.encode()


def test_what_is_restored_can_be_stored_again_unchanged(driver: GroupDriver) -> None:
    driver.stabilize(None, "pod-2")
    driver.restart()
    assert driver.group.metadata() == driver.stored


def test_sessions_start_when_the_group_is_restored(driver: GroupDriver) -> None:
    (leader,) = driver.stabilize()
    driver.now_ms += 10 * SESSION_MS
    driver.restart()
    driver.wait(SESSION_MS - 1)
    assert leader in driver.group.roster
    driver.wait(1)
    assert driver.group.state is GroupState.EMPTY


def test_an_empty_group_keeps_its_generation_and_the_time_it_became_empty(
    driver: GroupDriver,
) -> None:
    (leader,) = driver.stabilize()
    driver.leave(leader)
    left_ms = driver.now_ms
    driver.wait(5_000)
    driver.restart()
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.state_timestamp_ms == left_ms
    (again,) = driver.stabilize()
    assert driver.heartbeat(again, generation=3) is ErrorCode.NONE


def test_a_rebalance_that_was_under_way_is_forgotten(driver: GroupDriver) -> None:
    leader, follower = driver.stabilize(None, None)
    driver.ask_to_join("cyd")
    driver.restart()
    assert driver.group.state is GroupState.STABLE
    assert {member.member_id for member in driver.group.roster} == {leader, follower}


def test_a_static_member_may_restart_together_with_the_broker(driver: GroupDriver) -> None:
    driver.stabilize("pod-1")
    driver.restart()
    assert driver.ask_to_join(instance_id="pod-1").reply.generation == 1


def test_a_group_above_a_lowered_limit_loses_the_last_to_rejoin(driver: GroupDriver) -> None:
    first, second, third = driver.stabilize(None, None, None)
    driver.limits = GroupLimits(group_size_max=2)
    driver.restart()
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    late = driver.ask_to_join(member_id=third)
    early = driver.ask_to_join(member_id=second)
    assert driver.ask_to_join(member_id=first).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert early.reply.generation == late.reply.generation == 2


def test_a_rebalance_timeout_of_zero_does_not_make_a_tick_endless(driver: GroupDriver) -> None:
    driver.stabilize("pod-1", "pod-2")
    assert driver.stored is not None
    hasty = tuple(replace(member, rebalance_timeout_ms=0) for member in driver.stored.members)
    driver.stored = replace(driver.stored, members=hasty)
    driver.restart()
    driver.leave(LeavingMember("", "pod-2"))
    driver.take(driver.group.tick(driver.now_ms))
    assert driver.group.deadline_ms == driver.now_ms + 1


def test_time_that_passed_in_one_step_is_worked_off_in_order(driver: GroupDriver) -> None:
    """A broker that was suspended ticks once, late: the join phase, then the sessions."""
    leader, _ = driver.stabilize(None, None)
    rejoin = driver.ask_to_join(member_id=leader)
    driver.now_ms += 10 * REBALANCE_MS
    driver.take(driver.group.tick(driver.now_ms))
    assert rejoin.reply.generation == 2
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
