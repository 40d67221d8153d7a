import pytest

from millstream.broker.groups.group_messages import NO_GENERATION, GroupProtocol, JoinedMember
from millstream.broker.groups.group_state import GroupState
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import (
    INITIAL_DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupDriver,
)

BOTH = (GroupProtocol("range", b"r"), GroupProtocol("sticky", b"s"))
BOTH_STICKY_FIRST = BOTH[::-1]


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


class TestMemberIds:
    def test_a_new_member_is_told_its_id_and_must_come_back_with_it(
        self, driver: GroupDriver
    ) -> None:
        first = driver.ask_to_join("ada", requires_known_member_id=True)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        assert first.reply.member_id == "ada-1"
        assert driver.group.state is GroupState.EMPTY
        second = driver.ask_to_join("ada", member_id="ada-1", requires_known_member_id=True)
        driver.wait(INITIAL_DELAY_MS)
        assert second.reply.member_id == "ada-1"

    def test_an_older_client_is_let_in_at_once(self, driver: GroupDriver) -> None:
        assert driver.ask_to_join("ada", requires_known_member_id=False).is_waiting
        assert len(driver.group.roster) == 1

    def test_a_given_id_that_does_not_come_back_expires_with_the_session(
        self, driver: GroupDriver
    ) -> None:
        driver.ask_to_join("ada", requires_known_member_id=True)
        driver.wait(SESSION_MS - 1)
        assert "ada-1" in driver.group.roster.pending
        driver.wait(1)
        assert driver.ask_to_join(member_id="ada-1").error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_rebalance_waits_for_a_given_id(self, driver: GroupDriver) -> None:
        (leader,) = driver.stabilize()
        driver.ask_to_join("bob", requires_known_member_id=True)
        rejoin = driver.ask_to_join(member_id=leader)
        assert rejoin.is_waiting
        driver.ask_to_join(member_id="bob-2")
        assert not rejoin.is_waiting
        assert [member.member_id for member in rejoin.reply.members] == [leader, "bob-2"]

    def test_a_rebalance_does_not_wait_for_a_given_id_that_expired(
        self, driver: GroupDriver
    ) -> None:
        (leader,) = driver.stabilize()
        driver.ask_to_join("bob", requires_known_member_id=True)
        rejoin = driver.ask_to_join(member_id=leader)
        driver.wait(SESSION_MS)
        assert rejoin.reply.generation == 2

    def test_a_static_members_id_starts_with_its_instance_id(self, driver: GroupDriver) -> None:
        asked = driver.ask_to_join("ada", instance_id="pod-1", requires_known_member_id=True)
        driver.wait(INITIAL_DELAY_MS)
        assert asked.reply.member_id == "pod-1-1"

    def test_an_id_that_nobody_gave_is_unknown(self, driver: GroupDriver) -> None:
        driver.stabilize()
        asked = driver.ask_to_join(member_id="eve-99")
        assert asked.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert asked.reply.member_id == "eve-99"


class TestAdmission:
    @pytest.mark.parametrize(
        ("session_timeout_ms", "is_allowed"),
        [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)],
    )
    def test_a_session_timeout_has_bounds(
        self, driver: GroupDriver, session_timeout_ms: int, is_allowed: bool
    ) -> None:
        asked = driver.ask_to_join(session_timeout_ms=session_timeout_ms)
        assert asked.is_waiting is is_allowed
        if not is_allowed:
            assert asked.error is ErrorCode.INVALID_SESSION_TIMEOUT

    def test_a_group_takes_no_more_members_than_its_limit(self) -> None:
        driver = GroupDriver(group_size_max=2)
        driver.stabilize(None, None)
        asked = driver.ask_to_join("cyd")
        assert asked.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.group.state is GroupState.STABLE

    def test_a_full_group_still_lets_its_own_members_rejoin(self) -> None:
        driver = GroupDriver(group_size_max=2)
        leader, follower = driver.stabilize(None, None)
        first = driver.ask_to_join(member_id=leader)
        second = driver.ask_to_join(member_id=follower)
        assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)

    def test_a_full_group_lets_a_static_member_restart(self) -> None:
        driver = GroupDriver(group_size_max=2)
        driver.stabilize("pod-1", "pod-2")
        assert driver.ask_to_join(instance_id="pod-2").error is ErrorCode.NONE

    def test_a_full_join_phase_turns_newcomers_away(self) -> None:
        driver = GroupDriver(group_size_max=2)
        driver.ask_to_join("ada")
        driver.ask_to_join("bob")
        assert driver.ask_to_join("cyd").error is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_static_member_that_is_away_keeps_its_place(self) -> None:
        driver = GroupDriver(group_size_max=2)
        leader, _ = driver.stabilize(None, "pod-2")
        driver.ask_to_join(member_id=leader)
        assert driver.ask_to_join("cyd").error is ErrorCode.GROUP_MAX_SIZE_REACHED

    @pytest.mark.parametrize(("type_", "protocols"), [("", RANGE), ("consumer", ())])
    def test_the_first_member_must_name_a_type_and_a_protocol(
        self, driver: GroupDriver, type_: str, protocols: tuple[GroupProtocol, ...]
    ) -> None:
        asked = driver.ask_to_join(protocol_type=type_, protocols=protocols)
        assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_member_of_another_protocol_type_is_refused(self, driver: GroupDriver) -> None:
        driver.stabilize()
        asked = driver.ask_to_join(protocol_type="connect")
        assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_member_without_a_common_protocol_is_refused(self, driver: GroupDriver) -> None:
        driver.stabilize()
        asked = driver.ask_to_join(protocols=(GroupProtocol("sticky", b""),))
        assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.group.state is GroupState.STABLE

    def test_a_dead_group_sends_members_to_look_again(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert driver.ask_to_join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestTheInitialDelay:
    def test_the_first_join_waits_for_others(self, driver: GroupDriver) -> None:
        asked = driver.ask_to_join()
        driver.wait(INITIAL_DELAY_MS - 1)
        assert asked.is_waiting
        driver.wait(1)
        assert asked.reply.generation == 1

    def test_without_a_delay_it_is_answered_at_once(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=0)
        assert driver.ask_to_join().reply.generation == 1

    def test_a_newcomer_extends_it_once_more(self, driver: GroupDriver) -> None:
        first = driver.ask_to_join("ada")
        driver.wait(INITIAL_DELAY_MS - 1)
        second = driver.ask_to_join("bob")
        driver.wait(INITIAL_DELAY_MS)
        assert first.is_waiting
        driver.wait(1)
        assert first.reply.generation == second.reply.generation == 1

    def test_it_ends_with_the_rebalance_timeout_however_many_come(
        self, driver: GroupDriver
    ) -> None:
        first = driver.ask_to_join(rebalance_timeout_ms=250)
        for _ in range(4):
            driver.wait(60)
            driver.ask_to_join(rebalance_timeout_ms=250)
        driver.wait(9)
        assert first.is_waiting
        driver.wait(1)
        assert len(first.reply.members) == 5


class TestTheJoinPhase:
    def test_the_first_member_leads_and_is_told_of_all(self, driver: GroupDriver) -> None:
        first = driver.ask_to_join("ada")
        second = driver.ask_to_join("bob", instance_id="pod-1")
        driver.wait(2 * INITIAL_DELAY_MS)
        assert first.reply.leader == second.reply.leader == "ada-1"
        assert first.reply.members == (
            JoinedMember("ada-1", None, b"topics"),
            JoinedMember("pod-1-2", "pod-1", b"topics"),
        )
        assert second.reply.members == ()
        assert first.reply.protocol_type == "consumer"
        assert first.reply.protocol_name == "range"

    def test_it_ends_when_all_members_have_rejoined(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        newcomer = driver.ask_to_join("cyd")
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        driver.ask_to_join(member_id=follower)
        assert newcomer.is_waiting
        driver.ask_to_join(member_id=leader)
        assert newcomer.reply.generation == 2
        assert newcomer.reply.leader == leader

    def test_at_its_timeout_members_that_did_not_rejoin_are_out(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        rejoin = driver.ask_to_join(member_id=leader)
        driver.wait(REBALANCE_MS - 1, alive=[follower])
        assert rejoin.is_waiting
        driver.wait(1)
        assert rejoin.reply.generation == 2
        assert follower not in driver.group.roster

    def test_its_timeout_is_the_longest_of_all_members(self, driver: GroupDriver) -> None:
        slow = driver.ask_to_join("ada", rebalance_timeout_ms=90_000)
        driver.wait(INITIAL_DELAY_MS)
        driver.ask_to_sync(slow.reply.member_id)
        newcomer = driver.ask_to_join("bob", rebalance_timeout_ms=1_000)
        driver.wait(89_999, alive=[slow.reply.member_id])
        assert newcomer.is_waiting
        driver.wait(1)
        assert newcomer.reply.leader == newcomer.reply.member_id

    def test_a_version_without_rebalance_timeout_uses_the_session_timeout(
        self, driver: GroupDriver
    ) -> None:
        driver.ask_to_join(rebalance_timeout_ms=-1, session_timeout_ms=7_000)
        (member,) = driver.group.roster
        assert member.rebalance_timeout_ms == 7_000

    def test_a_leader_that_did_not_rejoin_is_followed_by_one_that_did(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.stabilize(None, None)
        newcomer = driver.ask_to_join("cyd")
        rejoin = driver.ask_to_join(member_id=follower)
        driver.wait(REBALANCE_MS)
        assert leader not in driver.group.roster
        assert rejoin.reply.leader == newcomer.reply.leader == follower

    def test_a_static_member_that_did_not_rejoin_stays_until_its_session_ends(
        self, driver: GroupDriver
    ) -> None:
        leader, sleeper = driver.stabilize("pod-1", "pod-2")
        rejoin = driver.ask_to_join(member_id=leader, instance_id="pod-1")
        driver.wait(REBALANCE_MS, alive=[sleeper])
        assert [member.member_id for member in rejoin.reply.members] == [leader, sleeper]

    def test_if_only_static_members_are_left_and_none_rejoins_their_sessions_end_the_group(
        self, driver: GroupDriver
    ) -> None:
        driver.stabilize("pod-1", "pod-2", None)
        driver.leave("ada-3")
        driver.wait(SESSION_MS)
        assert driver.group.state is GroupState.EMPTY

    def test_no_generation_starts_until_somebody_has_rejoined(self, driver: GroupDriver) -> None:
        first, second, third = driver.stabilize("pod-1", "pod-2", None)
        driver.leave(third)
        driver.wait(REBALANCE_MS, alive=[first, second])
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        assert driver.group.generation == 1
        driver.ask_to_join(member_id=second, instance_id="pod-2")
        driver.wait(REBALANCE_MS, alive=[first])
        assert driver.group.generation == 2
        assert driver.group.roster.leader == second

    def test_a_new_member_waits_longer_than_a_session_but_not_for_ever(
        self, driver: GroupDriver
    ) -> None:
        sleeper = driver.ask_to_join("ada", rebalance_timeout_ms=1_000_000)
        driver.wait(INITIAL_DELAY_MS)
        driver.ask_to_sync(sleeper.reply.member_id)
        newcomer = driver.ask_to_join("bob")
        driver.wait(299_999, alive=[sleeper.reply.member_id])
        assert newcomer.is_waiting
        driver.wait(1, alive=[sleeper.reply.member_id])
        assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_asks_again_gets_only_its_last_question_answered_well(
        self, driver: GroupDriver
    ) -> None:
        leader, _ = driver.stabilize(None, None)
        lost = driver.ask_to_join(member_id=leader)
        again = driver.ask_to_join(member_id=leader)
        assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
        driver.wait(REBALANCE_MS)
        assert again.reply.generation == 2


class TestTheProtocol:
    def test_most_votes_win(self, driver: GroupDriver) -> None:
        driver.ask_to_join("ada", protocols=BOTH)
        driver.ask_to_join("bob", protocols=BOTH_STICKY_FIRST)
        driver.ask_to_join("cyd", protocols=BOTH_STICKY_FIRST)
        driver.wait(2 * INITIAL_DELAY_MS)
        assert driver.group.protocol_name == "sticky"

    def test_only_what_all_know_can_win(self, driver: GroupDriver) -> None:
        first = driver.ask_to_join("ada", protocols=BOTH_STICKY_FIRST)
        driver.ask_to_join("bob", protocols=BOTH_STICKY_FIRST)
        driver.ask_to_join("cyd", protocols=RANGE)
        driver.wait(2 * INITIAL_DELAY_MS)
        assert first.reply.protocol_name == "range"
        assert [member.metadata for member in first.reply.members] == [b"r", b"r", b"topics"]


class TestRejoining:
    def test_the_leader_triggers_a_rebalance_by_joining_again(self, driver: GroupDriver) -> None:
        leader, _ = driver.stabilize(None, None)
        assert driver.ask_to_join(member_id=leader).is_waiting
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_a_follower_that_has_not_changed_is_told_the_current_generation(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.stabilize(None, None)
        reply = driver.ask_to_join(member_id=follower).reply
        assert (reply.generation, reply.leader, reply.members) == (1, leader, ())
        assert driver.group.state is GroupState.STABLE

    def test_a_follower_that_has_changed_triggers_a_rebalance(self, driver: GroupDriver) -> None:
        _, follower = driver.stabilize(None, None)
        changed = (GroupProtocol("range", b"other topics"),)
        assert driver.ask_to_join(member_id=follower, protocols=changed).is_waiting
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_before_the_assignment_the_same_question_gets_the_same_answer(
        self, driver: GroupDriver
    ) -> None:
        leader, follower = driver.start_generation(None, None)
        again = driver.ask_to_join(member_id=leader).reply
        assert [member.member_id for member in again.members] == [leader, follower]
        assert driver.ask_to_join(member_id=follower).reply.members == ()
        assert again.generation == 1
        assert driver.group.state is GroupState.COMPLETING_REBALANCE

    def test_before_the_assignment_a_change_starts_over(self, driver: GroupDriver) -> None:
        leader, follower = driver.start_generation(None, None)
        waiting = driver.ask_to_sync(follower)
        changed = (GroupProtocol("range", b"other topics"),)
        driver.ask_to_join(member_id=leader, protocols=changed)
        assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_an_error_carries_no_generation(self, driver: GroupDriver) -> None:
        assert driver.ask_to_join(member_id="eve-9").reply.generation == NO_GENERATION
