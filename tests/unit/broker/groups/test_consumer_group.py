"""A consumer group (KIP-848): who joins, who owns what, who is fenced, and what is stored."""

import pytest

from millstream.broker.groups.consumer_member import MemberState
from millstream.broker.groups.group_state import GroupState
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.consumer_steps import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    ConsumerDriver,
    joined,
    parts,
    topic,
)


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(topic("orders", 4))


def test_the_first_member_gets_everything_at_epoch_one(driver: ConsumerDriver) -> None:
    ada = Client(driver, "ada", "orders")
    reply = ada.join()
    assert (reply.error, reply.epoch, reply.member_id) == (ErrorCode.NONE, 1, "ada")
    assert reply.heartbeat_interval_ms == 5_000
    assert ada.owned == parts("orders", 0, 1, 2, 3)
    assert driver.group.state is GroupState.STABLE


def test_an_assignment_that_has_not_changed_is_not_repeated(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    assert ada.beat().assigned is None
    assert driver.last.facts == ()


def test_a_full_request_is_told_its_assignment_again(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    reply = driver.beat(
        "ada", ada.epoch, owned=ada.owned, topics=frozenset({"orders"}), rebalance_timeout_ms=1
    )
    assert reply.assigned == ada.owned


def test_a_newcomer_waits_until_the_owner_has_revoked(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    bob = Client(driver, "bob", "orders")
    bob.join()
    assert bob.owned == frozenset()
    assert (bob.epoch, driver.group.state) == (2, GroupState.RECONCILING)
    before = ada.owned
    reply = ada.beat()  # is told to revoke, and stays in its epoch
    assert (len(ada.owned), reply.epoch) == (2, 1)
    assert bob.beat().assigned is None  # not confirmed yet
    assert ada.beat().epoch == 2  # confirmed: it owns only two
    bob.beat()
    assert bob.owned == before - ada.owned
    assert driver.group.state is GroupState.STABLE


def test_a_member_that_reports_what_it_must_revoke_stays_unrevoked(
    driver: ConsumerDriver,
) -> None:
    (ada,) = joined(driver, "ada")
    Client(driver, "bob", "orders").join()
    everything = ada.owned
    for _ in range(3):
        driver.beat("ada", 1, owned=everything)
    progress = driver.group.book.find("ada")
    assert progress is not None
    assert progress.progress.state is MemberState.UNREVOKED_PARTITIONS
    driver.beat("ada", 1)  # says nothing of what it owns: that is no confirmation
    assert driver.group.book.find("ada") == progress


def test_the_partitions_of_a_member_that_leaves_go_to_the_others(driver: ConsumerDriver) -> None:
    ada, bob = joined(driver, "ada", "bob")
    reply = bob.leave()
    assert (reply.error, reply.epoch) == (ErrorCode.NONE, -1)
    assert driver.group.state is GroupState.ASSIGNING
    driver.settle(ada)
    assert ada.owned == parts("orders", 0, 1, 2, 3)


def test_a_silent_member_is_out_after_its_session(driver: ConsumerDriver) -> None:
    ada, bob = joined(driver, "ada", "bob")
    driver.wait(SESSION_MS - 1, ada)
    assert driver.group.book.find("bob") is not None
    driver.wait(1, ada)
    assert driver.group.book.find("bob") is None
    driver.settle(ada)
    assert len(ada.owned) == 4
    assert bob.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_fenced(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    bob = Client(driver, "bob", "orders")
    bob.join()
    everything = ada.owned
    driver.beat("ada", 1, owned=everything)
    for _ in range(REBALANCE_MS // 5_000):
        driver.wait(5_000, bob)
        driver.beat("ada", 1, owned=everything)
    assert driver.group.book.find("ada") is None
    driver.settle(bob)
    assert len(bob.owned) == 4


def test_an_epoch_ahead_or_behind_is_fenced(driver: ConsumerDriver) -> None:
    ada, _, _ = joined(driver, "ada", "bob", "eve")
    assert driver.beat("ada", ada.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("ada", ada.epoch - 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("ada", 0, **_join_words()).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert ada.beat().error is ErrorCode.NONE


def test_a_lost_answer_is_told_again(driver: ConsumerDriver) -> None:
    ada = Client(driver, "ada", "orders")
    ada.join()
    again = driver.beat("ada", 0, **_join_words())
    assert (again.error, again.epoch) == (ErrorCode.NONE, 1)
    assert again.assigned == ada.owned


def test_the_previous_epoch_counts_only_with_partitions_that_are_its_own(
    driver: ConsumerDriver,
) -> None:
    ada, _ = joined(driver, "ada", "bob")
    everything = parts("orders", 0, 1, 2, 3)
    assert driver.beat("ada", 1, owned=ada.owned).error is ErrorCode.NONE
    assert driver.beat("ada", 1, owned=everything).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("ada", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_is_not_a_member_must_join(driver: ConsumerDriver) -> None:
    assert driver.beat("nobody", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("nobody", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_lets_only_its_members_in() -> None:
    driver = ConsumerDriver(topic("orders", 4), group_size_max=2)
    ada, _ = joined(driver, "ada", "bob")
    assert Client(driver, "eve", "orders").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ada.beat().error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("said", "epoch"),
    [
        ({"rebalance_timeout_ms": -1}, 0),
        ({"owned": parts("orders", 0)}, 0),
        ({"owned": None}, 0),
        ({"topics": None}, 0),
        ({"instance_id": ""}, 0),
        ({"rack_id": ""}, 0),
        ({}, -2),
        ({}, -3),
    ],
)
def test_a_request_that_says_too_little_is_invalid(
    driver: ConsumerDriver, said: dict[str, object], epoch: int
) -> None:
    reply = driver.beat("ada", epoch, **{**_join_words(), **said})
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert reply.message
    assert len(driver.group.book) == 0


def test_from_version_1_on_the_client_makes_the_member_id(driver: ConsumerDriver) -> None:
    assert driver.beat("", 0, **_join_words()).error is ErrorCode.INVALID_REQUEST
    reply = driver.beat("", 0, requires_member_id=False, **_join_words())
    assert (reply.error, reply.member_id) == (ErrorCode.NONE, "made-1")


def test_only_known_assignors_are_taken(driver: ConsumerDriver) -> None:
    reply = Client(driver, "ada", "orders", assignor="sticky").join()
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert Client(driver, "ada", "orders", assignor="range").join().error is ErrorCode.NONE


def test_a_topic_that_is_unsubscribed_goes_at_once(driver: ConsumerDriver) -> None:
    driver.change_topic(topic("prices", 1))
    (ada,) = joined(driver, "ada", topics=("orders", "prices"))
    ada.subscribe("orders")
    driver.settle(ada)
    assert ada.owned == parts("orders", 0, 1, 2, 3)
    assert driver.group.book.subscribed_topics == {"orders"}


def test_partitions_that_are_added_are_handed_out(driver: ConsumerDriver) -> None:
    ada, bob = joined(driver, "ada", "bob")
    driver.change_topic(topic("orders", 6))
    assert driver.group.state is GroupState.ASSIGNING
    driver.settle(ada, bob)
    assert ada.owned | bob.owned == parts("orders", *range(6))
    assert len(ada.owned) == len(bob.owned) == 3


def test_a_topic_that_appears_later_is_read_then(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada", topics=("later",))
    assert ada.owned == frozenset()
    driver.change_topic(topic("later", 2))
    driver.settle(ada)
    assert ada.owned == parts("later", 0, 1)


def test_a_topic_that_nobody_reads_changes_nothing(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    driver.change_topic(topic("other", 2))
    assert driver.last.facts == ()
    assert ada.beat().epoch == 1


def test_a_deleted_topic_is_given_up(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    driver.remove_topic("orders")
    driver.settle(ada)
    assert ada.owned == frozenset()


def test_a_restart_finds_the_group_where_it_was(driver: ConsumerDriver) -> None:
    ada, bob = joined(driver, "ada", "bob")
    owned = ada.owned, bob.owned
    driver.restart()
    assert driver.group.state.value == "Stable"
    assert (ada.beat().error, bob.beat().error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (ada.owned, bob.owned) == owned
    driver.wait(SESSION_MS)
    assert driver.group.state is GroupState.EMPTY


def test_a_restart_in_the_middle_of_a_revocation_goes_on_with_it(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    bob = Client(driver, "bob", "orders")
    bob.join()
    ada.beat()
    driver.restart()
    assert driver.group.state is GroupState.RECONCILING
    driver.settle(ada, bob)
    assert len(ada.owned) == len(bob.owned) == 2


def test_topics_that_grew_just_before_a_crash_are_noticed_after_it(
    driver: ConsumerDriver,
) -> None:
    (ada,) = joined(driver, "ada")
    driver.catalog.put(topic("orders", 5))  # and nobody told the group
    driver.restart()
    driver.settle(ada)
    assert len(ada.owned) == 5


def test_a_group_that_was_left_by_all_is_stored_without_members(driver: ConsumerDriver) -> None:
    (ada,) = joined(driver, "ada")
    ada.leave()
    driver.restart()
    assert (driver.group.state, driver.group.book.epoch) == (GroupState.EMPTY, 2)
    assert {key.name for key in driver.stored} == {""}


def _join_words() -> dict[str, object]:
    return {
        "topics": frozenset({"orders"}),
        "rebalance_timeout_ms": REBALANCE_MS,
        "owned": frozenset(),
    }
