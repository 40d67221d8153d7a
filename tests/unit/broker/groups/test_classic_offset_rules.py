import struct

import pytest

from millstream.broker.groups.classic_offset_rules import (
    admit_commit,
    check_commit,
    check_commit_without_group,
    check_offset_delete,
    check_topic_offset_delete,
    expiry_rule,
    subscribed_topics,
)
from millstream.broker.groups.consumer_subscription import topics_of
from millstream.broker.groups.group_messages import GroupProtocol
from millstream.broker.groups.group_offsets import ExpiryRule
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import INITIAL_DELAY_MS, SESSION_MS, GroupDriver


def subscription(*topics: str, version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", version, len(topics)) + names + rest


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


def commit(
    driver: GroupDriver,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> ErrorCode:
    return admit_commit(
        driver.group,
        member_id=member_id,
        instance_id=instance_id,
        generation=generation,
        now_ms=driver.now_ms,
    )


def stabilize_consumers(driver: GroupDriver, *subscriptions: bytes, type_: str = "consumer") -> str:
    asked = [
        driver.ask_to_join(protocols=(GroupProtocol("range", data),), protocol_type=type_)
        for data in subscriptions
    ]
    driver.wait(2 * INITIAL_DELAY_MS)
    for one in asked:
        driver.ask_to_sync(one.reply.member_id)
    return asked[0].reply.member_id


class TestCommit:
    def test_a_consumer_without_a_group_commits_while_the_group_is_empty(
        self, driver: GroupDriver
    ) -> None:
        assert commit(driver) is ErrorCode.NONE
        driver.stabilize()
        assert commit(driver) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_commits_for_its_generation(self, driver: GroupDriver) -> None:
        (leader,) = driver.stabilize()
        assert commit(driver, leader, 1) is ErrorCode.NONE
        assert commit(driver, leader, 0) is ErrorCode.ILLEGAL_GENERATION
        assert commit(driver, leader, -1) is ErrorCode.ILLEGAL_GENERATION
        assert commit(driver, "eve-9", 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_commits_while_the_others_rejoin(self, driver: GroupDriver) -> None:
        leader, follower = driver.stabilize(None, None)
        driver.ask_to_join(member_id=leader)
        assert commit(driver, follower, 1) is ErrorCode.NONE

    def test_before_the_assignment_it_must_wait(self, driver: GroupDriver) -> None:
        (leader,) = driver.start_generation()
        assert commit(driver, leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_fenced_static_member_cannot_commit(self, driver: GroupDriver) -> None:
        (old,) = driver.stabilize("pod-1")
        driver.ask_to_join(instance_id="pod-1")
        assert commit(driver, old, 1, "pod-1") is ErrorCode.FENCED_INSTANCE_ID

    def test_a_commit_keeps_the_session(self, driver: GroupDriver) -> None:
        (leader,) = driver.stabilize()
        driver.wait(SESSION_MS - 1)
        commit(driver, leader, 1)
        driver.wait(SESSION_MS - 1)
        assert leader in driver.group.roster

    def test_a_member_of_an_empty_group_is_unknown(self, driver: GroupDriver) -> None:
        assert commit(driver, "ada-1", 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_dead_group_takes_no_commit(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert commit(driver) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_transaction_without_a_member_may_commit_any_time(self, driver: GroupDriver) -> None:
        driver.start_generation()
        error = check_commit(
            driver.group, member_id="", instance_id=None, generation=-1, is_transactional=True
        )
        assert error is ErrorCode.NONE

    def test_a_transaction_with_a_member_is_checked_except_for_the_rebalance(
        self, driver: GroupDriver
    ) -> None:
        (leader,) = driver.start_generation()

        def check(generation: int) -> ErrorCode:
            return check_commit(
                driver.group,
                member_id=leader,
                instance_id=None,
                generation=generation,
                is_transactional=True,
            )

        assert (check(1), check(0)) == (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION)

    @pytest.mark.parametrize(
        ("generation", "knows", "error"),
        [
            (-1, True, ErrorCode.NONE),
            (-1, False, ErrorCode.NONE),
            (0, True, ErrorCode.GROUP_ID_NOT_FOUND),
            (0, False, ErrorCode.ILLEGAL_GENERATION),
        ],
    )
    def test_without_a_group_only_a_commit_without_generation_makes_one(
        self, generation: int, knows: bool, error: ErrorCode
    ) -> None:
        answer = check_commit_without_group(generation=generation, knows_group_not_found=knows)
        assert answer is error


class TestOffsetDelete:
    def test_a_topic_that_a_member_reads_is_kept(self, driver: GroupDriver) -> None:
        stabilize_consumers(driver, subscription("orders"), subscription("clicks"))
        assert check_offset_delete(driver.group) is ErrorCode.NONE
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert check_topic_offset_delete(driver.group, "orders") is subscribed
        assert check_topic_offset_delete(driver.group, "clicks") is subscribed
        assert check_topic_offset_delete(driver.group, "old") is ErrorCode.NONE

    def test_if_a_subscription_cannot_be_read_every_topic_is_kept(
        self, driver: GroupDriver
    ) -> None:
        stabilize_consumers(driver, subscription("orders"), b"?")
        error = check_topic_offset_delete(driver.group, "old")
        assert error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    def test_a_group_of_another_type_must_be_empty(self, driver: GroupDriver) -> None:
        leader = stabilize_consumers(driver, b"worker", type_="connect")
        assert check_offset_delete(driver.group) is ErrorCode.NON_EMPTY_GROUP
        driver.leave(leader)
        assert check_offset_delete(driver.group) is ErrorCode.NONE
        assert check_topic_offset_delete(driver.group, "any") is ErrorCode.NONE

    def test_an_empty_group_lets_go_of_all(self, driver: GroupDriver) -> None:
        driver.leave(stabilize_consumers(driver, subscription("orders")))
        assert check_topic_offset_delete(driver.group, "orders") is ErrorCode.NONE

    def test_a_dead_group_is_not_found(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert check_offset_delete(driver.group) is ErrorCode.GROUP_ID_NOT_FOUND


class TestExpiryRule:
    def test_a_group_that_never_had_members_counts_from_each_commit(
        self, driver: GroupDriver
    ) -> None:
        assert expiry_rule(driver.group) == ExpiryRule()

    def test_an_empty_group_counts_from_when_it_became_empty(self, driver: GroupDriver) -> None:
        driver.leave(stabilize_consumers(driver, subscription("orders")))
        left_ms = driver.now_ms
        driver.wait(5_000)
        assert expiry_rule(driver.group) == ExpiryRule(counted_from_ms=left_ms)

    def test_a_stable_group_of_consumers_keeps_what_it_reads(self, driver: GroupDriver) -> None:
        stabilize_consumers(driver, subscription("orders"))
        assert expiry_rule(driver.group) == ExpiryRule(kept_topics=frozenset({"orders"}))

    def test_nothing_expires_during_a_rebalance(self, driver: GroupDriver) -> None:
        leader = stabilize_consumers(driver, subscription("orders"), subscription("clicks"))
        driver.ask_to_join(
            member_id=leader, protocols=(GroupProtocol("range", subscription("orders")),)
        )
        assert expiry_rule(driver.group) is None

    def test_nothing_expires_where_the_subscription_is_unknown(self, driver: GroupDriver) -> None:
        stabilize_consumers(driver, b"worker", type_="connect")
        assert expiry_rule(driver.group) is None

    def test_nothing_expires_in_a_dead_group(self, driver: GroupDriver) -> None:
        driver.group.delete()
        assert expiry_rule(driver.group) is None


class TestSubscribedTopics:
    def test_they_are_those_of_all_members(self, driver: GroupDriver) -> None:
        stabilize_consumers(
            driver, subscription("a", "b"), subscription("b", "c", version=3, rest=b"more")
        )
        assert subscribed_topics(driver.group) == frozenset({"a", "b", "c"})

    def test_a_group_that_is_not_of_consumers_has_none_that_we_know(
        self, driver: GroupDriver
    ) -> None:
        assert subscribed_topics(driver.group) is None

    def test_a_subscription_cut_at_any_byte_is_not_one(self) -> None:
        whole = subscription("orders", "größe", rest=b"")
        assert topics_of(whole) == frozenset({"orders", "größe"})
        for cut in range(len(whole)):
            assert topics_of(whole[:cut]) is None, f"cut at byte {cut}"

    @pytest.mark.parametrize(
        "data",
        [
            subscription("a", version=-1),
            struct.pack(">hi", 0, -1),
            struct.pack(">hih", 0, 1, -1),
            struct.pack(">hih", 0, 1, 1) + b"\xff",
            struct.pack(">hi", 0, 2**31 - 1),
        ],
    )
    def test_what_lies_about_itself_is_not_one(self, data: bytes) -> None:
        assert topics_of(data) is None
