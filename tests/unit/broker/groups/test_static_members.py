import pytest

from millstream.broker.groups.group_messages import GroupProtocol
from millstream.broker.groups.group_state import GroupState
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import SESSION_MS, GroupDriver


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


class TestARestartInAStableGroup:
    def test_it_gets_a_new_id_and_no_rebalance(self, driver: GroupDriver) -> None:
        leader, old = driver.stabilize("pod-1", "pod-2")
        reply = driver.ask_to_join(instance_id="pod-2").reply
        assert reply.member_id not in (leader, old)
        assert (reply.generation, reply.leader, reply.skip_assignment) == (1, leader, False)
        assert driver.group.state is GroupState.STABLE

    def test_it_keeps_its_assignment(self, driver: GroupDriver) -> None:
        _, old = driver.stabilize("pod-1", "pod-2")
        new = driver.ask_to_join(instance_id="pod-2").reply.member_id
        assert driver.ask_to_sync(new, instance_id="pod-2").reply.assignment == old.encode()

    def test_its_new_id_is_stored(self, driver: GroupDriver) -> None:
        leader, _ = driver.stabilize("pod-1", "pod-2")
        new = driver.ask_to_join(instance_id="pod-2").reply.member_id
        assert driver.last.must_persist
        assert driver.stored is not None
        assert [member.member_id for member in driver.stored.members] == [leader, new]

    def test_its_session_starts_again(self, driver: GroupDriver) -> None:
        driver.stabilize("pod-1")
        driver.wait(SESSION_MS - 1)
        new = driver.ask_to_join(instance_id="pod-1").reply.member_id
        driver.wait(SESSION_MS - 1)
        assert driver.heartbeat(new, instance_id="pod-1") is ErrorCode.NONE

    def test_a_restarted_leader_leads_and_is_told_to_skip_the_assignment(
        self, driver: GroupDriver
    ) -> None:
        _, follower = driver.stabilize("pod-1", "pod-2")
        reply = driver.ask_to_join(instance_id="pod-1").reply
        assert reply.leader == reply.member_id
        assert reply.skip_assignment
        assert {member.member_id for member in reply.members} == {reply.member_id, follower}

    def test_a_restarted_leader_still_leads_the_next_generation(self, driver: GroupDriver) -> None:
        _, follower = driver.stabilize("pod-1", "pod-2")
        leader = driver.ask_to_join(instance_id="pod-1").reply.member_id
        driver.ask_to_join(member_id=leader, instance_id="pod-1")
        reply = driver.ask_to_join(member_id=follower, instance_id="pod-2").reply
        assert (reply.generation, reply.leader) == (2, leader)

    def test_an_older_restarted_leader_is_told_its_old_id_so_that_it_does_not_assign(
        self, driver: GroupDriver
    ) -> None:
        leader, _ = driver.stabilize("pod-1", "pod-2")
        reply = driver.ask_to_join(instance_id="pod-1", supports_skip_assignment=False).reply
        assert (reply.leader, reply.members, reply.skip_assignment) == (leader, (), False)
        assert driver.group.roster.leader == reply.member_id

    def test_other_bytes_in_its_subscription_do_not_rebalance(self, driver: GroupDriver) -> None:
        driver.stabilize("pod-1", "pod-2")
        owns_nothing = (GroupProtocol("range", b"topics, nothing owned"),)
        asked = driver.ask_to_join(instance_id="pod-2", protocols=owns_nothing)
        assert asked.error is ErrorCode.NONE
        assert driver.group.state is GroupState.STABLE

    def test_another_protocol_does(self, driver: GroupDriver) -> None:
        both = (GroupProtocol("range", b""), GroupProtocol("sticky", b""))
        first = driver.ask_to_join(instance_id="pod-1", protocols=both)
        driver.wait(100)
        driver.ask_to_sync(first.reply.member_id, instance_id="pod-1")
        again = driver.ask_to_join(instance_id="pod-1", protocols=both[::-1])
        assert (again.reply.generation, again.reply.protocol_name) == (2, "sticky")


class TestFencing:
    def test_the_old_id_is_fenced_everywhere(self, driver: GroupDriver) -> None:
        (old,) = driver.stabilize("pod-1")
        driver.ask_to_join(instance_id="pod-1")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert driver.heartbeat(old, instance_id="pod-1") is fenced
        assert driver.ask_to_sync(old, instance_id="pod-1").error is fenced
        assert driver.ask_to_join(member_id=old, instance_id="pod-1").error is fenced

    def test_the_old_id_without_its_instance_is_unknown(self, driver: GroupDriver) -> None:
        (old,) = driver.stabilize("pod-1")
        driver.ask_to_join(instance_id="pod-1")
        assert driver.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_instance_that_is_no_member_is_unknown(self, driver: GroupDriver) -> None:
        (member,) = driver.stabilize("pod-1")
        assert driver.heartbeat(member, instance_id="pod-9") is ErrorCode.UNKNOWN_MEMBER_ID
        asked = driver.ask_to_join(member_id=member, instance_id="pod-9")
        assert asked.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_twin_fences_the_one_that_waits_to_join(self, driver: GroupDriver) -> None:
        first = driver.ask_to_join(instance_id="pod-1")
        second = driver.ask_to_join(instance_id="pod-1")
        assert first.error is ErrorCode.FENCED_INSTANCE_ID
        assert first.reply.member_id == "pod-1-1"
        driver.wait(100)
        assert second.reply.generation == 1

    def test_a_twin_fences_the_one_that_waits_to_sync_and_starts_over(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.start_generation("pod-1", "pod-2")
        waiting = driver.ask_to_sync(follower, instance_id="pod-2")
        twin = driver.ask_to_join(instance_id="pod-2")
        assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
        assert twin.is_waiting  # the leader knows the old id only: it must assign anew
        assert driver.heartbeat(leader, instance_id="pod-1") is ErrorCode.REBALANCE_IN_PROGRESS

    def test_two_instances_are_two_members(self, driver: GroupDriver) -> None:
        assert len(set(driver.stabilize("pod-1", "pod-2"))) == 2
