"""Members of a share group: joining, heartbeating, leaving, and what outlives the broker."""

import pytest

from millstream.broker.groups.group_state import GroupState
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog, TopicIdPartition
from millstream.broker.share.share_group import ShareGroup, ShareGroupLimits, ShareGroupNotEmpty
from millstream.broker.share.share_group_facts import ShareFact, ShareFactKey
from millstream.broker.share.share_group_messages import (
    ShareGroupOutcome,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from millstream.broker.share.share_group_records import (
    read_share_fact,
    read_share_fact_key,
    share_changes_of,
)
from millstream.broker.wire.error_codes import ErrorCode

ORDERS_ID, AUDIT_ID = b"o" * 16, b"a" * 16
SESSION_MS = 45_000
ORDERS = frozenset({"orders"})


def orders(*numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(ORDERS_ID, number) for number in numbers)


class Room:
    """A group, its topics, its clock, and the facts that a shell would have stored."""

    def __init__(self, *, size_max: int = 200, partition_count: int = 2) -> None:
        self.catalog = TopicCatalog([CataloguedTopic("orders", ORDERS_ID, partition_count)])
        self.limits = ShareGroupLimits(group_size_max=size_max)
        self.group = ShareGroup("g", catalog=self.catalog, limits=self.limits)
        self.now_ms = 0
        self.stored: dict[bytes, bytes] = {}

    def say(
        self, member_id: str, epoch: int, topics: frozenset[str] | None = None
    ) -> ShareHeartbeatReply:
        reply = self.heartbeat(member_id, epoch, topics).reply
        assert reply is not None
        return reply

    def heartbeat(
        self, member_id: str, epoch: int, topics: frozenset[str] | None = None
    ) -> ShareGroupOutcome:
        request = ShareHeartbeat(member_id=member_id, epoch=epoch, topics=topics)
        return self.keep(self.group.heartbeat(request, now_ms=self.now_ms))

    def join(self, member_id: str, topics: frozenset[str] = ORDERS) -> ShareHeartbeatReply:
        return self.say(member_id, 0, topics)

    def wait(self, ms: int) -> ShareGroupOutcome:
        self.now_ms += ms
        return self.keep(self.group.tick(self.now_ms))

    def member_ids(self) -> list[str]:
        return [member.member_id for member in self.group.book]

    def grow(self, partition_count: int) -> ShareGroupOutcome:
        self.catalog.put(CataloguedTopic("orders", ORDERS_ID, partition_count))
        return self.keep(self.group.topics_changed())

    def keep(self, outcome: ShareGroupOutcome) -> ShareGroupOutcome:
        for key, value in share_changes_of("g", outcome.facts):
            if value is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = value
        return outcome

    def restart(self) -> None:
        facts: dict[ShareFactKey, ShareFact] = {}
        for data, value in self.stored.items():
            group_id, key = read_share_fact_key(data)
            assert group_id == "g"
            facts[key] = read_share_fact(key, value)
        self.group = ShareGroup("g", catalog=self.catalog, limits=self.limits)
        self.group.restore(facts, now_ms=self.now_ms)


def test_who_joins_is_told_its_partitions_at_once() -> None:
    room = Room()
    reply = room.join("ada")
    assert (reply.error, reply.member_id, reply.epoch) == (ErrorCode.NONE, "ada", 1)
    assert reply.assigned == orders(0, 1)
    assert reply.heartbeat_interval_ms == 5_000
    assert room.group.state is GroupState.STABLE


def test_the_first_to_subscribe_begins_the_state_of_the_partitions() -> None:
    room = Room()
    assert room.group.book.shared == frozenset()
    room.join("ada")
    assert room.group.book.shared == orders(0, 1)


def test_more_members_than_partitions_all_have_something_to_read() -> None:
    room = Room(partition_count=1)
    assert [room.join(name).assigned for name in ("ada", "bob", "eve")] == [orders(0)] * 3


def test_a_heartbeat_that_brings_nothing_new_names_no_assignment() -> None:
    room = Room()
    room.join("ada")
    assert room.say("ada", 1).assigned is None
    assert room.heartbeat("ada", 1).facts == ()


def test_who_has_forgotten_its_epoch_joins_again() -> None:
    room = Room()
    room.join("ada")
    room.grow(3)
    assert room.say("ada", 1).epoch == 2
    again = room.join("ada")
    assert (again.error, again.epoch, again.assigned) == (ErrorCode.NONE, 2, orders(0, 1, 2))


def test_a_heartbeat_that_says_everything_is_told_everything() -> None:
    room = Room()
    room.join("ada")
    assert room.say("ada", 1, ORDERS).assigned == orders(0, 1)


def test_a_member_hears_of_others_with_its_next_heartbeat() -> None:
    room = Room()
    room.join("ada")
    assert room.join("bob").assigned == orders(0)
    reply = room.say("ada", 1)
    assert (reply.epoch, reply.assigned) == (2, orders(1))


def test_an_answer_that_was_lost_may_be_asked_for_again() -> None:
    room = Room()
    room.join("ada")
    room.join("bob")
    assert room.say("ada", 1).epoch == room.say("ada", 1).epoch == 2


@pytest.mark.parametrize("epoch", [1, 4])
def test_another_epoch_is_fenced(epoch: int) -> None:
    room = Room()
    room.join("ada")
    for name in ("bob", "eve"):
        room.join(name)
        room.say("ada", room.group.book.epoch - 1)
    assert room.say("ada", epoch).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_is_not_a_member_must_join_first() -> None:
    room = Room()
    assert room.say("ada", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.say("ada", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_in_and_keeps_its_own() -> None:
    room = Room(size_max=1)
    room.join("ada")
    assert room.join("bob").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.say("ada", 1).error is ErrorCode.NONE


@pytest.mark.parametrize(
    "request_",
    [
        ShareHeartbeat(member_id="", epoch=0, topics=ORDERS),
        ShareHeartbeat(member_id="ada", epoch=0),
        ShareHeartbeat(member_id="ada", epoch=0, topics=frozenset()),
        ShareHeartbeat(member_id="ada", epoch=-2, topics=ORDERS),
        ShareHeartbeat(member_id="ada", epoch=0, topics=ORDERS, rack_id=""),
    ],
)
def test_a_heartbeat_that_makes_no_sense_leaves_no_trace(request_: ShareHeartbeat) -> None:
    room = Room()
    outcome = room.group.heartbeat(request_, now_ms=0)
    assert outcome.reply is not None
    assert outcome.reply.error is ErrorCode.INVALID_REQUEST
    assert (outcome.facts, room.group.state) == ((), GroupState.EMPTY)


def test_who_leaves_is_forgotten_and_the_others_read_its_partitions() -> None:
    room = Room()
    room.join("ada")
    room.join("bob")
    outcome = room.heartbeat("bob", -1)
    assert outcome.reply == ShareHeartbeatReply(member_id="bob", epoch=-1)
    assert room.member_ids() == ["ada"]
    reply = room.say("ada", 1, ORDERS)
    assert (reply.epoch, reply.assigned) == (3, orders(0, 1))
    assert not [key for key in room.stored if b"bob" in key]


def test_silence_ends_a_membership_at_its_time_and_not_before() -> None:
    room = Room()
    room.join("ada")
    room.wait(1)
    room.join("bob")
    assert room.group.deadline_ms == SESSION_MS
    room.wait(SESSION_MS - 2)
    assert room.member_ids() == ["ada", "bob"]
    room.wait(1)
    assert room.member_ids() == ["bob"]
    room.wait(1)
    assert room.group.state is GroupState.EMPTY
    assert room.group.deadline_ms is None


def test_a_topic_that_grows_is_read_in_full_after_the_next_heartbeat() -> None:
    room = Room()
    room.join("ada")
    room.grow(3)
    outcome = room.heartbeat("ada", 1)
    assert room.group.book.shared == orders(0, 1, 2)
    assert outcome.reply is not None
    assert outcome.reply.assigned == orders(0, 1, 2)


def test_a_topic_that_is_deleted_takes_its_state_with_it() -> None:
    room = Room()
    room.join("ada")
    room.catalog.remove("orders")
    assert room.keep(room.group.topics_changed()).ended == orders(0, 1)
    assert room.say("ada", 1).assigned == frozenset()


def test_a_topic_that_appears_later_is_read_from_then_on() -> None:
    room = Room()
    assert room.join("ada", frozenset({"audit"})).assigned == frozenset()
    room.catalog.put(CataloguedTopic("audit", AUDIT_ID, 1))
    room.keep(room.group.topics_changed())
    assert room.say("ada", 1).assigned == frozenset({TopicIdPartition(AUDIT_ID, 0)})


def test_a_member_that_subscribes_to_something_else_reads_that() -> None:
    room = Room()
    room.catalog.put(CataloguedTopic("audit", AUDIT_ID, 1))
    room.join("ada")
    reply = room.say("ada", 1, frozenset({"audit"}))
    assert (reply.epoch, reply.assigned) == (2, frozenset({TopicIdPartition(AUDIT_ID, 0)}))


def test_the_state_of_partitions_stays_when_all_have_left() -> None:
    room = Room()
    room.join("ada")
    assert room.heartbeat("ada", -1).ended == frozenset()
    assert room.group.book.shared == orders(0, 1)
    assert room.keep(room.group.forget_topics([ORDERS_ID])).ended == orders(0, 1)


def test_a_state_can_be_had_of_partitions_that_nobody_reads_yet() -> None:
    room = Room()
    room.keep(room.group.share(orders(1)))
    assert room.group.book.shared == orders(1)
    room.join("ada")
    assert room.group.book.shared == orders(0, 1)


def test_only_of_a_group_without_members_may_others_change_what_it_has() -> None:
    room = Room()
    room.join("ada")
    for change in (
        room.group.check_vacant,
        lambda: room.group.share(orders(0)),
        lambda: room.group.forget_topics([ORDERS_ID]),
    ):
        with pytest.raises(ShareGroupNotEmpty, match="1 members"):
            change()
    room.heartbeat("ada", -1)
    room.group.check_vacant()


def test_a_restarted_broker_goes_on_with_the_group_it_stored() -> None:
    room = Room()
    room.join("ada")
    room.join("bob")
    room.say("ada", 1)
    room.restart()
    assert room.group.topics_changed().facts == ()
    assert room.group.deadline_ms == SESSION_MS
    assert room.say("ada", 2, ORDERS).assigned == orders(1)
    assert room.say("bob", 2, ORDERS).assigned == orders(0)
    assert room.group.book.shared == orders(0, 1)


def test_topics_that_changed_while_the_broker_was_down_are_noticed() -> None:
    room = Room()
    room.join("ada")
    room.catalog.put(CataloguedTopic("orders", ORDERS_ID, 3))
    room.restart()
    room.keep(room.group.topics_changed())
    assert room.say("ada", 1).assigned == orders(0, 1, 2)
