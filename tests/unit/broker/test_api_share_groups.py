"""Share groups (KIP-932) through their APIs: what is answered, stored, and found again."""

import pytest

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_group import ShareGroup
from millstream.broker.share.share_state import ShareState
from millstream.broker.topics import Topic
from millstream.broker.wire import ErrorCode, Message
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest
from millstream.broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.find_coordinator import FindCoordinatorRequest
from millstream.broker.wire.messages.list_groups import ListGroupsRequest
from millstream.broker.wire.messages.share_group_describe import ShareGroupDescribeRequest
from millstream.broker.wire.messages.share_group_heartbeat import TopicPartitions
from millstream.broker.wire.messages.sync_group import SyncGroupRequest
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import CLIENT_ID, PEER, Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.support.transactions import Flow, Producer
from tests.unit.broker.group_steps import commit, committed, join_alone, join_request
from tests.unit.broker.share_group_steps import (
    QUEUE,
    FakeRecords,
    beat_request,
    forget_topics,
    join_share,
    leave_share,
    set_start,
    share_positions,
)


@pytest.fixture
def orders(served: ServedNode) -> Topic:
    return served.create(partitions=2)


@pytest.fixture
def records(served: ServedNode) -> FakeRecords:
    return fake_records(served)


def fake_records(served: ServedNode) -> FakeRecords:
    records = FakeRecords()
    served.run(_joined(served, records))
    return records


async def _joined(served: ServedNode, records: FakeRecords) -> None:
    served.node.groups.shares.join_records(records)


def queue_of(served: ServedNode) -> ShareGroup:
    return served.node.groups.shares.named(QUEUE)


def listed(served: ServedNode) -> dict[str, tuple[str, str]]:
    groups = served.ask(ListGroupsRequest()).groups
    return {one.group_id: (one.group_type, one.group_state) for one in groups}


def delete_group(served: ServedNode, group: str = QUEUE) -> int:
    code: int = served.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code
    return code


# --- heartbeat --------------------------------------------------------------------------------


def test_a_member_joins_and_is_told_what_to_read(served: ServedNode, orders: Topic) -> None:
    answer = served.ask(beat_request("ada", 0, ["orders"]))
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "ada", 1)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment.topic_partitions == [
        TopicPartitions(topic_id=orders.id, partitions=[0, 1])
    ]
    again = served.ask(beat_request("ada", 1))
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (beat_request("ada", 0, ["orders"], group=""), ErrorCode.INVALID_REQUEST),
        (beat_request("", 0, ["orders"]), ErrorCode.INVALID_REQUEST),
        (beat_request("ada", 0, []), ErrorCode.INVALID_REQUEST),
        (beat_request("ada", 0, ["orders"], rack_id=""), ErrorCode.INVALID_REQUEST),
        (beat_request("ada", -2), ErrorCode.INVALID_REQUEST),
        (beat_request("ada", 3), ErrorCode.GROUP_ID_NOT_FOUND),
        (beat_request("ada", -1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_that_makes_no_sense_makes_no_group(
    served: ServedNode, request_: Message, code: ErrorCode
) -> None:
    assert served.ask(request_).error_code == code
    assert list(served.node.groups.shares) == []


def test_nobody_hears_of_an_epoch_that_is_not_on_disk(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    joining = served.ask_soon(beat_request("ada", 0, ["orders"]))
    beating = served.ask_soon(beat_request("ada", 1))  # changes nothing, but rests on the join
    assert not joining.done()
    assert not beating.done()
    gate.open_gate()
    served.settle()
    assert [joining.result().member_epoch, beating.result().member_epoch] == [1, 1]


def test_who_is_silent_for_too_long_is_out(served: ServedNode, orders: Topic) -> None:
    join_share(served, "ada")
    served.advance(30)
    join_share(served, "bob")
    served.advance(16)
    assert [member.member_id for member in queue_of(served).book] == ["bob"]
    answer = served.ask(beat_request("ada", 1))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_empty_when_its_last_member_has_left(served: ServedNode, orders: Topic) -> None:
    join_share(served)
    leave_share(served)
    assert listed(served) == {QUEUE: ("share", "Empty")}


def test_members_follow_topics_that_come_grow_and_go(
    served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    join_share(served, "ada", "orders", "audit")
    audit = served.create("audit")
    answer = served.ask(beat_request("ada", 1))
    assert {one.topic_id for one in answer.assignment.topic_partitions} == {orders.id, audit.id}
    served.run(served.node.topics.add_partitions(audit, 3))
    answer = served.ask(beat_request("ada", 2))
    parts = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}
    assert parts[audit.id] == [0, 1, 2]
    served.run(records.set_start(QUEUE, {TopicIdPartition(audit.id, 0): 7}))
    served.run(served.node.topics.delete(audit))
    served.settle()
    answer = served.ask(beat_request("ada", 3))
    assert [one.topic_id for one in answer.assignment.topic_partitions] == [orders.id]
    assert records.stored == {}


# --- what outlives the broker -----------------------------------------------------------------


@pytest.mark.parametrize("survival", Survival)
def test_a_crash_keeps_members_and_epochs(
    serve: Serve, disk: SimulatedDisk, survival: Survival
) -> None:
    served = serve()
    served.create(partitions=2)
    join_share(served, "ada")
    assert join_share(served, "bob") == 2
    served.crash()
    again = serve(disk=disk.after_power_cut(survival, seed=1))
    assert listed(again) == {QUEUE: ("share", "Stable")}
    answer = again.ask(beat_request("bob", 2))
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    again.advance(46)  # its session is counted, too
    assert [member.member_id for member in queue_of(again).book] == []


def test_who_does_not_come_back_after_a_crash_is_out(serve: Serve) -> None:
    served = serve()
    served.create()
    join_share(served)
    served.crash()
    again = serve()
    again.advance(44)
    assert listed(again) == {QUEUE: ("share", "Stable")}
    again.advance(2)
    assert listed(again) == {QUEUE: ("share", "Empty")}


def test_what_a_crash_left_of_a_forgotten_topic_goes_at_the_start(serve: Serve) -> None:
    served = serve()
    topic = served.create()
    join_share(served)
    served.crash()
    again = serve()
    records = FakeRecords()
    shared, beside, stray = (
        TopicIdPartition(topic.id, 0),
        TopicIdPartition(topic.id, 1),  # of a topic that is shared: nobody asked to forget it
        TopicIdPartition(b"x" * 16, 0),
    )
    for part in (shared, beside, stray):
        again.run(records.set_start(QUEUE, {part: 3}))
    again.run(_joined(again, records))
    again.settle()
    assert records.stored[QUEUE].keys() == {shared, beside}


def test_a_full_disk_refuses_and_the_next_heartbeat_stores_it_all(
    serve: Serve, disk: SimulatedDisk
) -> None:
    served = serve()
    served.create()
    disk.fill_at(disk.steps)
    answer = served.ask(beat_request("ada", 0, ["orders"]))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert served.ask(beat_request("ada", 0, ["orders"])).error_code == ErrorCode.NONE
    served.crash()
    assert listed(serve()) == {QUEUE: ("share", "Stable")}


# --- an id belongs to one kind of group ---------------------------------------------------------


def test_other_protocols_are_refused_on_a_share_group(served: ServedNode, orders: Topic) -> None:
    join_share(served)
    joined = served.ask(join_request(group=QUEUE))
    assert (joined.error_code, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    sync = SyncGroupRequest(group_id=QUEUE, generation_id=1, member_id="ada")
    assert served.ask(sync).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=QUEUE,
        member_id="eve",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert served.ask(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(served, 3, group=QUEUE) == ErrorCode.GROUP_ID_NOT_FOUND
    producer = Producer(served, "tx", Flow.EPOCH_PER_TRANSACTION)
    producer.init()
    assert producer.send_offset("orders", 3, group=QUEUE) == ErrorCode.GROUP_ID_NOT_FOUND
    assert committed(served, group=QUEUE) == -1
    assert listed(served) == {QUEUE: ("share", "Stable")}


def test_the_share_protocol_is_refused_on_other_groups(served: ServedNode, orders: Topic) -> None:
    join_alone(served, group=QUEUE)
    answer = served.ask(beat_request("ada", 0, ["orders"]))
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == "workers is not a share group: it is a classic group"
    assert set_start(served, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert forget_topics(served, "orders").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert listed(served) == {QUEUE: ("classic", "Stable")}


def test_who_asks_for_another_kind_is_told_which_it_is(served: ServedNode, orders: Topic) -> None:
    join_share(served)
    (classic,) = served.ask(DescribeGroupsRequest(groups=[QUEUE])).groups
    (consumer,) = served.ask(ConsumerGroupDescribeRequest(group_ids=[QUEUE])).groups
    for one in (classic, consumer):
        assert (one.error_code, one.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "it is a share group",
        )


def test_groups_are_listed_by_their_kind(served: ServedNode, orders: Topic) -> None:
    join_share(served)
    join_alone(served, group="readers")
    answer = served.ask(ListGroupsRequest(types_filter=["Share"]))
    (one,) = answer.groups
    assert (one.group_id, one.protocol_type, one.group_type) == (QUEUE, "share", "share")


def test_clients_are_told_that_there_are_share_groups(served: ServedNode) -> None:
    answer = served.ask(
        ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    )
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels["share.version"] == 1
    assert {76, 77, 90, 91, 92} <= {one.api_key for one in answer.api_keys}


def test_a_share_partition_has_a_coordinator(served: ServedNode) -> None:
    keys = [f"{QUEUE}:{'A' * 22}:0", QUEUE]
    found = served.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys)).coordinators
    assert [one.error_code for one in found] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


# --- describe ---------------------------------------------------------------------------------


def test_a_share_group_is_described_with_what_each_member_reads(
    served: ServedNode, orders: Topic
) -> None:
    join_share(served)
    request = ShareGroupDescribeRequest(group_ids=[QUEUE, "nobody", ""])
    found, unknown, empty = served.ask(request).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
    assert found.assignor_name == "simple"
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (
        "ada",
        CLIENT_ID,
        f"/{PEER.host}",
    )
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1])
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


# --- where groups are -------------------------------------------------------------------------


def test_the_lag_counts_what_is_not_done(
    served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    served.produce(b"a", b"b", b"c", b"d")
    join_share(served)
    state = ShareState(start_offset=1, complete_count=2)
    records.stored[QUEUE] = {TopicIdPartition(orders.id, 0): state}
    assert share_positions(served) == {("orders", 0): (1, 1), ("orders", 1): (-1, -1)}
    assert share_positions(served, version=0)["orders", 0] == (1, -1)
    assert share_positions(served, orders=[0, 9]) == {
        ("orders", 0): (1, 1),
        ("orders", 9): (-1, -1),
    }


def test_of_a_group_or_topic_that_is_not_there_nothing_has_begun(
    served: ServedNode, orders: Topic
) -> None:
    assert share_positions(served) == {}
    assert share_positions(served, orders=[0], audit=[0]) == {
        ("orders", 0): (-1, -1),
        ("audit", 0): (-1, -1),
    }


def test_an_empty_group_can_be_moved_and_one_is_made_if_need_be(
    serve: Serve, served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    served.produce(b"a", b"b", b"c")
    assert set_start(served, 2).error_code == ErrorCode.NONE
    assert share_positions(served) == {("orders", 0): (2, 1)}
    assert listed(served) == {QUEUE: ("share", "Empty")}
    served.crash()
    again = serve()
    assert listed(again) == {QUEUE: ("share", "Empty")}
    assert join_share(again) == 1


def test_who_joins_while_the_group_is_moved_is_told_to_try_again(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    place = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=[place])
    moving = served.ask_soon(AlterShareGroupOffsetsRequest(group_id=QUEUE, topics=[topic]))
    joining = served.ask_soon(beat_request("ada", 0, ["orders"]))
    assert joining.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    gate.open_gate()
    served.settle()
    assert served.run(moving).error_code == ErrorCode.NONE
    assert join_share(served) == 1


def test_what_is_not_there_cannot_be_moved(
    served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    for topic, partition in (("orders", 9), ("audit", 0)):
        answer = set_start(served, 0, topic=topic, partition=partition)
        (told,) = answer.responses[0].partitions
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set_start(served, 0, group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert listed(served) == {}


@pytest.mark.parametrize(("offset", "error"), [(-2, 1), (-1, 0), (2, 0), (3, 1)])
def test_a_group_starts_at_the_latest_where_the_log_ends(
    served: ServedNode, orders: Topic, records: FakeRecords, offset: int, error: int
) -> None:
    served.produce(b"a", b"b")
    (told,) = set_start(served, offset).responses[0].partitions
    assert told.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if error else ErrorCode.NONE)
    assert listed(served) == ({} if error else {QUEUE: ("share", "Empty")})


def test_a_topic_can_be_forgotten(served: ServedNode, orders: Topic, records: FakeRecords) -> None:
    served.create("audit")
    set_start(served, 0)
    known, unread, unknown = forget_topics(served, "orders", "audit", "gone").responses
    assert (known.error_code, known.topic_id) == (ErrorCode.NONE, orders.id)
    assert unread.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert share_positions(served) == {}
    assert records.stored == {}
    assert forget_topics(served, group="nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_while_members_read_nobody_moves_deletes_or_forgets(
    served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    join_share(served)
    assert set_start(served, 0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert forget_topics(served, "orders").error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete_group(served) == ErrorCode.NON_EMPTY_GROUP
    assert listed(served) == {QUEUE: ("share", "Stable")}


def test_a_deleted_group_leaves_nothing(
    serve: Serve, served: ServedNode, orders: Topic, records: FakeRecords
) -> None:
    set_start(served, 0)
    join_share(served)
    leave_share(served)
    assert delete_group(served) == ErrorCode.NONE
    assert records.stored == {}
    assert listed(served) == {}
    assert delete_group(served) == ErrorCode.GROUP_ID_NOT_FOUND
    served.crash()
    again = serve()
    assert listed(again) == {}
    assert join_share(again) == 1
