"""Classic groups become consumer groups and turn back, and classic members are served in both."""

import pytest

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.conversion import to_classic_group, to_consumer_group, vacated
from millstream.broker.groups.group_messages import (
    GroupProtocol,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.group_state import GroupState
from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.stored_facts import FactKind
from millstream.broker.wire.error_codes import ErrorCode
from tests.properties.group_clients import ClassicClient, read_share, write_share
from tests.unit.broker.group_steps import subscription
from tests.unit.broker.groups.consumer_steps import (
    REBALANCE_MS,
    Client,
    ConsumerDriver,
    parts,
    topic,
)
from tests.unit.broker.groups.steps import GroupDriver

READS_ORDERS = (GroupProtocol("range", subscription("orders")),)
JOIN = ConsumerHeartbeat(
    member_id="new",
    epoch=0,
    topics=frozenset({"orders"}),
    rebalance_timeout_ms=REBALANCE_MS,
    owned=frozenset(),
)


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(topic("orders", 4))


def classic_pair(old: GroupDriver) -> tuple[str, str]:
    """Two classic members, each with two of the four partitions of `orders`."""
    asked = [old.ask_to_join(name, protocols=READS_ORDERS) for name in ("ada", "bob")]
    while asked[0].is_waiting:
        old.wait(100)
    ada, bob = (one.reply.member_id for one in asked)
    shares = {ada: write_share([0, 1]), bob: write_share([2, 3])}
    for member_id in (ada, bob):
        old.ask_to_sync(member_id, assignments=shares)
    return ada, bob


def convert(old: ClassicGroup, driver: ConsumerDriver) -> Outcome:
    return to_consumer_group(old, driver.group, JOIN, reply_to="new", now_ms=driver.now_ms)


def join(
    driver: ConsumerDriver, member_id: str, *, instance_id: str | None = None, owned: bytes = b""
) -> JoinReply:
    request = JoinRequest(
        member_id=member_id,
        instance_id=instance_id,
        client_id="ada",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=READS_ORDERS,
    )
    reply = driver.take(driver.group.join(request, reply_to="ada", now_ms=driver.now_ms))
    assert isinstance(reply, JoinReply)
    return reply


def sync(driver: ConsumerDriver, member_id: str, generation: int) -> SyncReply:
    request = SyncRequest(member_id=member_id, generation=generation)
    reply = driver.take(driver.group.sync(request, reply_to="ada", now_ms=driver.now_ms))
    assert isinstance(reply, SyncReply)
    return reply


def heartbeat(driver: ConsumerDriver, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(member_id=member_id, generation=generation)
    reply = driver.take(driver.group.heartbeat(request, reply_to="ada", now_ms=driver.now_ms))
    error: ErrorCode = reply.error
    return error


def joined_reply(outcome: Outcome) -> ConsumerHeartbeatReply:
    reply = dict(outcome.replies)["new"]
    assert isinstance(reply, ConsumerHeartbeatReply)
    return reply


# --- up ---------------------------------------------------------------------------------------


def test_members_keep_their_partitions_and_the_newcomer_waits(driver: ConsumerDriver) -> None:
    old = GroupDriver()
    ada, bob = classic_pair(old)
    outcome = convert(old.group, driver)
    reply = joined_reply(outcome)
    assert (reply.error, reply.epoch, reply.assigned) == (ErrorCode.NONE, 2, frozenset())
    book = driver.group.book
    owned = {m.member_id: frozenset(m.progress.assigned) for m in book if m.is_classic}
    assert owned == {ada: parts("orders", 0, 1), bob: parts("orders", 2, 3)}
    assert old.group.state is GroupState.DEAD


def test_what_is_stored_replaces_the_classic_group(driver: ConsumerDriver) -> None:
    old = GroupDriver()
    classic_pair(old)
    facts = dict(convert(old.group, driver).facts)
    gone = [key for key, fact in facts.items() if fact is None]
    assert [key.kind for key in gone] == [FactKind.CLASSIC_GROUP]
    members = [key.name for key in facts if key.kind is FactKind.MEMBER]
    assert len(members) == 3


def test_an_empty_classic_group_becomes_one_at_once(driver: ConsumerDriver) -> None:
    reply = joined_reply(convert(GroupDriver().group, driver))
    assert (reply.epoch, reply.assigned) == (1, parts("orders", 0, 1, 2, 3))


def test_who_waits_in_the_old_group_is_sent_to_join_again(driver: ConsumerDriver) -> None:
    old = GroupDriver()
    waiting = old.ask_to_join("ada", protocols=READS_ORDERS)
    outcome = convert(old.group, driver)
    reply = dict(outcome.replies)[waiting.token]
    assert reply.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_of_another_type_are_left_alone(driver: ConsumerDriver) -> None:
    old = GroupDriver()
    old.stabilize()
    old.group.protocol_type = "connect"
    outcome = convert(old.group, driver)
    assert joined_reply(outcome).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not outcome.must_persist
    assert old.group.state is GroupState.STABLE


def test_members_whose_words_cannot_be_read_are_left_alone(driver: ConsumerDriver) -> None:
    old = GroupDriver()
    old.stabilize()  # its subscription is no subscription
    assert joined_reply(convert(old.group, driver)).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert old.group.state is GroupState.STABLE


def test_between_two_generations_a_member_keeps_what_it_said_it_owned(
    driver: ConsumerDriver,
) -> None:
    """Its client reads on while it waits for the next assignment."""
    client = ClassicClient("ada", is_eager=False, owned=frozenset({0, 1}))
    request = client.next_request()
    assert isinstance(request, JoinRequest)
    old = GroupDriver()
    asked = old.ask_to_join("ada", protocols=request.protocols)
    old.wait(200)
    assert old.group.state is GroupState.COMPLETING_REBALANCE
    convert(old.group, driver)
    member = driver.group.book.find(asked.reply.member_id)
    assert member is not None
    assert frozenset(member.progress.assigned) == parts("orders", 0, 1)


# --- in a consumer group ----------------------------------------------------------------------


def test_a_classic_member_joins_syncs_and_shares(driver: ConsumerDriver) -> None:
    new = Client(driver, "new", "orders")
    new.join()
    required = join(driver, "")
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    reply = join(driver, required.member_id)
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, 2, "")
    assert read_share(sync(driver, reply.member_id, 2).assignment) == frozenset()
    new.beat()
    assert heartbeat(driver, reply.member_id, 2) is ErrorCode.NONE  # nothing to have yet
    new.beat()
    assert heartbeat(driver, reply.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    again = join(driver, reply.member_id)
    share = read_share(sync(driver, reply.member_id, again.generation).assignment)
    assert share == {2, 3}
    assert heartbeat(driver, reply.member_id, again.generation) is ErrorCode.NONE
    assert driver.group.state is GroupState.STABLE


def test_a_classic_member_must_join_again_when_the_group_has_gone_on(
    driver: ConsumerDriver,
) -> None:
    old = GroupDriver()
    ada, _ = classic_pair(old)
    driver.take(convert(old.group, driver))
    assert heartbeat(driver, ada, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert sync(driver, ada, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(driver, ada, 7) is ErrorCode.ILLEGAL_GENERATION
    driver.wait(REBALANCE_MS)  # and does not
    assert driver.group.book.find(ada) is None


def test_classic_calls_are_not_for_members_of_the_new_protocol(driver: ConsumerDriver) -> None:
    Client(driver, "new", "orders").join()
    assert heartbeat(driver, "new", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(driver, "new", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_of_another_protocol_is_inconsistent(driver: ConsumerDriver) -> None:
    Client(driver, "new", "orders").join()
    request = JoinRequest(
        client_id="c",
        client_host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1,
        protocol_type="connect",
        protocols=READS_ORDERS,
    )
    reply = driver.take(driver.group.join(request, reply_to="c", now_ms=1))
    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_moves_to_the_new_protocol_with_its_partitions(
    driver: ConsumerDriver,
) -> None:
    old = GroupDriver()
    asked = old.ask_to_join("ada", instance_id="desk", protocols=READS_ORDERS)
    old.wait(200)
    ada = asked.reply.member_id
    old.ask_to_sync(ada, instance_id="desk", assignments={ada: write_share(range(4))})
    driver.take(convert(old.group, driver))
    back = Client(driver, "ada-2", "orders", instance_id="desk")
    back.join()
    driver.settle(back)
    assert len(back.owned) == 2
    assert driver.group.book.find(ada) is None


# --- down -------------------------------------------------------------------------------------


def mixed(driver: ConsumerDriver) -> tuple[Client, str]:
    new = Client(driver, "new", "orders")
    new.join()
    old = join(driver, "old").member_id
    for _ in range(3):
        new.beat()
        generation = join(driver, old).generation
    assert read_share(sync(driver, old, generation).assignment) == {2, 3}
    return new, old


def become_classic(driver: ConsumerDriver, group: ConsumerGroup) -> tuple[ClassicGroup, Outcome]:
    classic = GroupDriver().group
    return classic, to_classic_group(group, classic, now_ms=driver.now_ms)


def test_when_the_last_new_member_leaves_the_group_must_be_classic_again(
    driver: ConsumerDriver,
) -> None:
    new, old = mixed(driver)
    assert not driver.group.must_become_classic
    new.leave()
    assert driver.group.must_become_classic
    classic, outcome = become_classic(driver, driver.group)
    assert classic.state is GroupState.PREPARING_REBALANCE
    assert classic.generation == driver.group.book.epoch
    assert outcome.metadata is not None
    (stored,) = outcome.metadata.members
    assert (stored.member_id, read_share(stored.assignment)) == (old, {2, 3})
    assert all(fact is None for _, fact in outcome.facts)
    assert {key for key, _ in outcome.facts} >= driver.stored.keys()


def test_a_classic_member_may_leave_by_the_classic_call(driver: ConsumerDriver) -> None:
    new, old = mixed(driver)
    outcome = driver.group.leave([LeavingMember(old)], reply_to="old", now_ms=driver.now_ms)
    reply = driver.take(outcome)
    assert isinstance(reply, LeaveReply)
    assert [member.error for member in reply.members] == [ErrorCode.NONE]
    driver.settle(new)
    assert len(new.owned) == 4


def test_a_group_without_members_leaves_nothing_behind(driver: ConsumerDriver) -> None:
    new = Client(driver, "new", "orders")
    new.join()
    new.leave()
    outcome = vacated(driver.group)
    assert outcome.metadata is None
    assert {key for key, _ in outcome.facts} == driver.stored.keys()


def test_a_static_member_that_goes_back_to_the_classic_protocol_takes_the_group_along(
    driver: ConsumerDriver,
) -> None:
    Client(driver, "new", "orders", instance_id="desk").join()
    reply = join(driver, "", instance_id="desk")
    assert reply.error is ErrorCode.NONE
    member = driver.group.book.find(reply.member_id)
    assert member is not None
    assert frozenset(member.progress.assigned) == parts("orders", 0, 1, 2, 3)
    assert driver.group.must_become_classic
