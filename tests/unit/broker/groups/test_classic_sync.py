import pytest

from millstream.broker.groups.group_messages import LeavingMember
from millstream.broker.groups.group_state import GroupState
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import REBALANCE_MS, SESSION_MS, GroupDriver


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


class TestSync:
    def test_followers_wait_for_the_leaders_assignment(self, driver: GroupDriver) -> None:
        leader, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        assert waiting.is_waiting
        mine = driver.ask_to_sync(leader, assignments={leader: b"0", follower: b"1"})
        assert (mine.reply.assignment, waiting.reply.assignment) == (b"0", b"1")
        assert waiting.reply.protocol_type == "consumer"
        assert waiting.reply.protocol_name == "range"
        assert driver.group.state is GroupState.STABLE

    def test_the_assignment_is_stored_with_the_outcome_that_answers(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.start_generation(None, None)
        driver.ask_to_sync(follower)
        assert not driver.last.must_persist
        driver.ask_to_sync(leader, assignments={follower: b"1"})
        assert driver.last.must_persist
        assert len(driver.last.replies) == 2
        assert driver.stored is not None
        assert [member.assignment for member in driver.stored.members] == [b"", b"1"]

    def test_a_member_that_the_leader_forgot_gets_nothing(self, driver: GroupDriver) -> None:
        leader, follower = driver.start_generation(None, None)
        driver.ask_to_sync(leader, assignments={leader: b"all"})
        assert driver.ask_to_sync(follower).reply.assignment == b""

    def test_in_a_stable_group_it_returns_the_current_assignment(self, driver: GroupDriver) -> None:
        _, follower = driver.stabilize(None, None)
        assert driver.ask_to_sync(follower).reply.assignment == follower.encode()
        assert not driver.last.must_persist

    def test_a_stable_leader_cannot_assign_again(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        driver.ask_to_sync(leader, assignments={follower: b"other"})
        assert driver.ask_to_sync(follower).reply.assignment == follower.encode()

    def test_during_a_rebalance_it_says_so(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        driver.ask_to_join(member_id=leader)
        assert driver.ask_to_sync(follower).error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_only_a_member_of_this_generation_may_sync(self, driver: GroupDriver) -> None:
        (leader,) = driver.start_generation()
        assert driver.ask_to_sync("eve-9").error is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.ask_to_sync(leader, generation=0).error is ErrorCode.ILLEGAL_GENERATION
        assert driver.ask_to_sync(leader, generation=2).error is ErrorCode.ILLEGAL_GENERATION

    @pytest.mark.parametrize(
        ("type_", "name"), [("connect", "range"), ("consumer", "sticky"), ("connect", None)]
    )
    def test_a_sync_with_another_protocol_is_refused(
        self, driver: GroupDriver, type_: str, name: str | None
    ) -> None:
        (leader,) = driver.start_generation()
        asked = driver.ask_to_sync(leader, protocol_type=type_, protocol_name=name)
        assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.group.state is GroupState.COMPLETING_REBALANCE

    def test_a_sync_with_the_groups_protocol_is_taken(self, driver: GroupDriver) -> None:
        (leader,) = driver.start_generation()
        asked = driver.ask_to_sync(leader, protocol_type="consumer", protocol_name="range")
        assert asked.error is ErrorCode.NONE

    def test_an_empty_group_and_a_dead_one_have_nothing_to_sync(self, driver: GroupDriver) -> None:
        assert driver.ask_to_sync("ada-1").error is ErrorCode.UNKNOWN_MEMBER_ID
        driver.group.delete()
        assert driver.ask_to_sync("ada-1").error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_member_that_joined_and_never_synced_is_removed(self, driver: GroupDriver) -> None:
        leader, sleeper = driver.start_generation(None, None)
        driver.ask_to_sync(leader)
        driver.wait(REBALANCE_MS - 1, alive=[leader, sleeper])
        assert sleeper in driver.group.roster
        driver.wait(1)
        assert sleeper not in driver.group.roster
        assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_if_the_leader_never_assigns_the_others_start_over(self, driver: GroupDriver) -> None:
        leader, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        driver.wait(REBALANCE_MS, alive=[leader])
        assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert [member.member_id for member in driver.group.roster] == [follower]

    def test_a_member_that_waits_in_sync_does_not_expire(self, driver: GroupDriver) -> None:
        leader, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        driver.wait(2 * SESSION_MS, alive=[leader])
        assert waiting.is_waiting
        driver.ask_to_sync(leader)
        driver.wait(SESSION_MS - 1, alive=[leader])
        assert driver.heartbeat(follower) is ErrorCode.NONE

    def test_a_member_that_asks_again_is_answered_twice_and_well_once(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.start_generation(None, None)
        lost = driver.ask_to_sync(follower)
        again = driver.ask_to_sync(follower)
        assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
        driver.ask_to_sync(leader, assignments={follower: b"1"})
        assert again.reply.assignment == b"1"

    def test_a_newcomer_sends_waiting_followers_back_to_join(self, driver: GroupDriver) -> None:
        _, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        driver.ask_to_join("cyd")
        assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


class TestHeartbeat:
    def test_it_keeps_a_member_in(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        driver.wait(5 * SESSION_MS, alive=[leader, follower])
        assert driver.group.state is GroupState.STABLE

    def test_a_silent_member_is_removed_when_its_session_ends(self, driver: GroupDriver) -> None:
        leader, silent = driver.stabilize(None, None)
        driver.wait(SESSION_MS - 1, alive=[leader])
        assert silent in driver.group.roster
        driver.wait(1)
        assert silent not in driver.group.roster
        assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_when_the_last_member_falls_silent_the_group_is_empty(
        self, driver: GroupDriver
    ) -> None:
        driver.stabilize()
        driver.wait(SESSION_MS)
        assert driver.group.state is GroupState.EMPTY
        assert driver.group.generation == 2
        assert driver.stored is not None
        assert driver.stored.generation == 2
        assert driver.stored.members == ()

    def test_before_the_assignment_it_is_fine(self, driver: GroupDriver) -> None:
        (leader,) = driver.start_generation()
        assert driver.heartbeat(leader) is ErrorCode.NONE

    def test_during_a_rebalance_it_keeps_the_session_and_says_so(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        driver.ask_to_join(member_id=leader)
        driver.wait(2 * SESSION_MS, alive=[follower])
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_another_generation_is_refused(self, driver: GroupDriver) -> None:
        (leader,) = driver.stabilize()
        assert driver.heartbeat(leader, generation=0) is ErrorCode.ILLEGAL_GENERATION

    def test_a_member_that_waits_to_join_does_not_expire(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        rejoin = driver.ask_to_join(member_id=leader)
        driver.wait(3 * SESSION_MS, alive=[follower])
        assert rejoin.is_waiting

    def test_a_dead_group_does_not_answer_for_itself(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert driver.heartbeat("ada-1") is ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestLeave:
    def test_the_others_rebalance(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        assert driver.leave(leader).members[0].error is ErrorCode.NONE
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.ask_to_join(member_id=follower).reply.leader == follower

    def test_when_the_last_one_leaves_the_group_is_empty_and_stored(
        self, driver: GroupDriver
    ) -> None:
        (leader,) = driver.stabilize()
        driver.leave(leader)
        assert driver.group.state is GroupState.EMPTY
        assert driver.group.generation == 2
        assert driver.last.must_persist
        assert driver.stored is not None
        assert driver.stored.state_timestamp_ms == driver.now_ms

    def test_a_rebalance_does_not_wait_for_one_that_left(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        rejoin = driver.ask_to_join(member_id=leader)
        driver.leave(follower)
        assert rejoin.reply.generation == 2

    def test_several_leave_at_once_each_with_its_own_answer(self, driver: GroupDriver) -> None:
        _, second, third = driver.stabilize("pod-1", "pod-2", None)
        reply = driver.leave(
            LeavingMember("", "pod-1"),
            LeavingMember(second, "pod-2"),
            LeavingMember(third),
            LeavingMember(third),
            LeavingMember("", "pod-9"),
        )
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        none = ErrorCode.NONE
        assert [one.error for one in reply.members] == [none, none, none, unknown, unknown]
        assert driver.group.state is GroupState.EMPTY

    def test_a_fenced_static_member_cannot_leave(self, driver: GroupDriver) -> None:
        (old,) = driver.stabilize("pod-1")
        driver.ask_to_join(instance_id="pod-1")
        reply = driver.leave(LeavingMember(old, "pod-1"))
        assert reply.members[0].error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.group.state is GroupState.STABLE

    def test_a_given_id_can_leave_without_a_rebalance(self, driver: GroupDriver) -> None:
        driver.stabilize()
        given = driver.ask_to_join("bob", requires_known_member_id=True).reply.member_id
        assert driver.leave(given).members[0].error is ErrorCode.NONE
        assert driver.group.state is GroupState.STABLE

    def test_who_waits_and_leaves_is_answered(self, driver: GroupDriver) -> None:
        _, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        driver.leave(follower)
        assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_dead_group_refuses_all(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert driver.leave("ada-1").error is ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestDelete:
    def test_only_an_empty_group_can_be_deleted(self, driver: GroupDriver) -> None:
        (leader,) = driver.stabilize()
        assert driver.group.delete() is ErrorCode.NON_EMPTY_GROUP
        driver.leave(leader)
        assert driver.group.delete() is ErrorCode.NONE
        assert driver.group.state is GroupState.DEAD
        assert driver.group.deadline_ms is None

    def test_a_deleted_group_is_not_found(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert driver.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
