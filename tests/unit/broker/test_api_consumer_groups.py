"""Consumer groups (KIP-848) through their APIs: what is answered, stored, and found again."""

from typing import Any

import pytest

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.topics import OFFSETS_TOPIC, Topic
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.list_groups import ListGroupsRequest
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.properties.group_clients import write_share
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import CLIENT_ID, PEER, Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.support.transactions import Flow, Producer
from tests.unit.broker.group_steps import (
    GROUP,
    JOIN_AT_ONCE,
    Joined,
    commit,
    committed,
    heartbeat,
    join_alone,
    join_request,
    sync_request,
)


def beat_request(
    member_id: str,
    epoch: int,
    *,
    topics: list[str] | None = None,
    owned: list[TopicPartitions] | None = None,
    **more: Any,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=topics,
        topic_partitions=owned,
        **more,
    )


def join_as(member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return beat_request(
        member_id, 0, topics=list(topics), owned=[], rebalance_timeout_ms=30_000, **more
    )


def join(served: ServedNode, member_id: str = "ada") -> int:
    """The epoch of a member that has joined."""
    answer = served.ask(join_as(member_id, "orders"))
    assert answer.error_code == ErrorCode.NONE, answer
    epoch: int = answer.member_epoch
    return epoch


def group_of(served: ServedNode) -> ConsumerGroup:
    group = served.node.groups.find(GROUP)
    assert group is not None
    assert isinstance(group.members, ConsumerGroup)
    return group.members


@pytest.fixture
def orders(served: ServedNode) -> Topic:
    return served.create(partitions=2)


# --- heartbeat --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_is_told_what_to_read(
    served: ServedNode, orders: Topic, version: int
) -> None:
    answer = served.ask(join_as("ada", "orders"), version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "ada", 1)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment.topic_partitions == [
        TopicPartitions(topic_id=orders.id, partitions=[0, 1])
    ]
    again = served.ask(beat_request("ada", 1), version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)


def test_in_version_0_the_broker_makes_the_member_id(served: ServedNode, orders: Topic) -> None:
    assert served.ask(join_as("", "orders"), 0).member_id
    assert served.ask(join_as("", "orders"), 1).error_code == ErrorCode.INVALID_REQUEST


def test_a_pattern_subscribes_and_a_bad_one_is_refused(served: ServedNode, orders: Topic) -> None:
    bad = served.ask(join_as("ada", subscribed_topic_regex="(orders"))
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "(orders" in bad.error_message
    assert served.node.groups.find(GROUP) is None
    good = served.ask(join_as("ada", subscribed_topic_regex="ord.*"))
    assert good.assignment.topic_partitions[0].topic_id == orders.id


def test_only_a_join_makes_a_group(served: ServedNode) -> None:
    answer = served.ask(beat_request("ada", 3))
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert served.node.groups.find(GROUP) is None


def test_a_topic_that_is_created_later_is_assigned(served: ServedNode) -> None:
    assert join(served) == 1
    orders = served.create(partitions=1)
    answer = served.ask(beat_request("ada", 1, owned=[]))
    assert answer.assignment.topic_partitions[0].topic_id == orders.id
    assert answer.member_epoch == 2


def test_partitions_that_are_added_are_assigned_and_deleted_topics_revoked(
    served: ServedNode, orders: Topic
) -> None:
    join(served)
    served.run(served.node.topics.add_partitions(orders, 3))
    owned = [TopicPartitions(topic_id=orders.id, partitions=[0, 1])]
    grown = served.ask(beat_request("ada", 1, owned=owned))
    assert grown.assignment.topic_partitions[0].partitions == [0, 1, 2]
    served.run(served.node.topics.delete(orders))
    owned[0].partitions.append(2)
    gone = served.ask(beat_request("ada", 2, owned=owned))
    assert gone.assignment.topic_partitions == []


def test_a_silent_member_is_out_after_the_session_timeout(serve: Serve) -> None:
    served = serve(group_consumer_session_timeout_ms=2_000)
    served.create()
    join(served)
    served.advance(1.9)
    assert len(group_of(served).book) == 1
    served.advance(0.2)
    assert len(group_of(served).book) == 0


# --- durability -------------------------------------------------------------------------------


def test_nobody_hears_of_an_epoch_that_is_not_on_disk(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    answer = served.ask_soon(join_as("ada", "orders"))
    gate.until_a_sync_waits()
    served.turn()
    assert not answer.done()
    gate.open_gate()
    served.settle()
    assert answer.result().member_epoch == 1


@pytest.mark.parametrize("survival", Survival)
def test_a_power_cut_loses_no_member_that_was_answered(
    serve: Serve, disk: SimulatedDisk, survival: Survival
) -> None:
    served = serve()
    served.create(partitions=2)
    join(served)
    before = group_of(served).book
    served.crash()
    again = serve(disk=disk.after_power_cut(survival, seed=1))
    book = group_of(again).book
    assert list(book) == list(before)
    assert (book.epoch, book.target_epoch) == (1, 1)
    assert book.target_partitions("ada") == before.target_partitions("ada")
    assert again.ask(beat_request("ada", 1)).error_code == ErrorCode.NONE


def test_what_a_full_disk_refused_is_stored_before_anyone_is_answered(
    serve: Serve, disk: SimulatedDisk
) -> None:
    served = serve()
    served.create(partitions=2)
    disk.fill_at(disk.steps)
    answer = served.ask(join_as("ada", "orders"))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert served.ask(join_as("ada", "orders")).member_epoch == 1
    served.crash()
    again = serve()
    assert [member.member_id for member in group_of(again).book] == ["ada"]
    assert group_of(again).book.epoch == 1


# --- display ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_epochs_and_members(
    served: ServedNode, orders: Topic, version: int
) -> None:
    join(served)
    answer = served.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), version)
    (group,) = answer.groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    (member,) = group.members
    assert (member.member_id, member.member_epoch) == ("ada", 1)
    assert (member.client_id, member.client_host) == (CLIENT_ID, f"/{PEER.host}")
    assert member.subscribed_topic_names == ["orders"]
    assert member.assignment == member.target_assignment
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("orders", [0, 1])
    assert member.member_type == (1 if version == 1 else -1)


def test_each_kind_of_group_is_described_by_its_own_api(served: ServedNode, orders: Topic) -> None:
    join(served)
    join_alone(served, group="classic")
    answer = served.ask(ConsumerGroupDescribeRequest(group_ids=["classic", "none"]))
    assert [g.error_code for g in answer.groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    answer = served.ask(DescribeGroupsRequest(groups=[GROUP]), 6)
    assert answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert served.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups[0].group_state == "Dead"


def test_groups_are_listed_by_type(served: ServedNode, orders: Topic) -> None:
    join(served)
    join_alone(served, group="classic")

    def listed(*types: str) -> list[tuple[str, str, str]]:
        answer = served.ask(ListGroupsRequest(types_filter=list(types)), 5)
        return sorted((g.group_id, g.group_type, g.protocol_type) for g in answer.groups)

    old, new = ("classic", "classic", "consumer"), (GROUP, "consumer", "consumer")
    assert listed() == [old, new]
    assert (listed("Classic"), listed("consumer"), listed("share")) == ([old], [new], [])


# --- offsets ----------------------------------------------------------------------------------


def commit_as(
    served: ServedNode,
    epoch: int,
    *,
    member_id: str = "ada",
    partition: int = 0,
    version: int = 9,
    topic_id: bytes = bytes(16),
) -> int:
    place = OffsetCommitRequestPartition(partition_index=partition, committed_offset=5)
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="orders", topic_id=topic_id, partitions=[place])],
    )
    code: int = served.ask(request, version).topics[0].partitions[0].error_code
    return code


def test_a_member_commits_with_its_epoch(served: ServedNode, orders: Topic) -> None:
    join(served)
    assert commit_as(served, 1) == ErrorCode.NONE
    assert commit_as(served, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(served, 1, member_id="eve") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(served, 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(served, 5) == ErrorCode.UNKNOWN_MEMBER_ID  # without an identity
    assert committed(served) == 5


def test_an_older_epoch_counts_for_partitions_that_were_its_own_since(
    served: ServedNode, orders: Topic
) -> None:
    join(served)
    served.run(served.node.topics.add_partitions(orders, 3))
    owned = [TopicPartitions(topic_id=orders.id, partitions=[0, 1])]
    assert served.ask(beat_request("ada", 1, owned=owned)).member_epoch == 2
    assert commit_as(served, 1, partition=0) == ErrorCode.NONE
    assert commit_as(served, 1, partition=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(served, 2, partition=2) == ErrorCode.NONE


def test_offsets_are_committed_by_topic_id(served: ServedNode, orders: Topic) -> None:
    join(served)
    assert commit_as(served, 1, version=10, topic_id=orders.id) == ErrorCode.NONE
    assert commit_as(served, 1, version=10, topic_id=b"?" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert committed(served) == 5


def fetch_group(
    served: ServedNode, *, member_id: str | None = None, epoch: int = -1, **more: Any
) -> Any:
    group = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, **more)
    return served.ask(OffsetFetchRequest(groups=[group]), 10).groups[0]


def test_offsets_are_fetched_by_topic_id(served: ServedNode, orders: Topic) -> None:
    join(served)
    commit_as(served, 1)
    wanted = [
        OffsetFetchRequestTopics(topic_id=orders.id, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0]),
    ]
    known, unknown = fetch_group(served, topics=wanted).topics
    assert known.topic_id == orders.id
    assert [p.committed_offset for p in known.partitions] == [5, -1]
    assert [p.error_code for p in unknown.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    (everything,) = fetch_group(served, topics=None).topics
    assert (everything.topic_id, len(everything.partitions)) == (orders.id, 1)


def test_a_member_fetches_with_its_epoch(served: ServedNode, orders: Topic) -> None:
    join(served)

    def code(member_id: str | None, epoch: int) -> int:
        error: int = fetch_group(served, member_id=member_id, epoch=epoch).error_code
        return error

    assert code("ada", 1) == ErrorCode.NONE
    assert code(None, -1) == ErrorCode.NONE
    assert code("ada", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("eve", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_what_is_read_are_not_deleted(served: ServedNode, orders: Topic) -> None:
    join(served)
    commit_as(served, 1)
    part = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="orders", partitions=[part])]
    )
    code = served.ask(request).topics[0].partitions[0].error_code
    assert code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    served.ask(beat_request("ada", -1))
    assert served.ask(request).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(served) == -1


def test_a_group_without_members_can_be_deleted_and_leaves_no_record(serve: Serve) -> None:
    served = serve()
    served.create()
    join(served)

    def delete() -> int:
        code: int = served.ask(DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code
        return code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    served.ask(beat_request("ada", -1))
    assert delete() == ErrorCode.NONE
    served.crash()
    again = serve()
    assert again.node.groups.find(GROUP) is None
    assert OFFSETS_TOPIC in again.node.topics


def test_offsets_of_what_is_read_do_not_expire_and_others_do(serve: Serve) -> None:
    served = serve(offsets_retention_ms=60_000, group_consumer_session_timeout_ms=600_000)
    served.create(partitions=2)
    join(served)
    commit_as(served, 1)
    served.advance(100)
    served.run(served.node.groups.expire())
    assert committed(served) == 5
    served.ask(beat_request("ada", -1))
    served.run(served.node.groups.expire())
    assert committed(served) == -1
    assert served.node.groups.find(GROUP) is None  # nothing is left of it


# --- both protocols ---------------------------------------------------------------------------


def test_a_classic_group_becomes_a_consumer_group_and_turns_back(serve: Serve) -> None:
    served = serve()
    served.create(partitions=2)
    old = join_alone_reading(served)
    assert join(served, "new") == 2
    assert heartbeat(served, old) == ErrorCode.REBALANCE_IN_PROGRESS
    served.crash()
    again = serve()
    assert {m.member_id: m.is_classic for m in group_of(again).book} == {
        old.member_id: True,
        "new": False,
    }
    again.ask(beat_request("new", -1))
    group = again.node.groups.find(GROUP)
    assert group is not None
    assert isinstance(group.members, ClassicGroup)
    assert old.member_id in group.members.roster
    again.crash()
    third = serve()
    group = third.node.groups.find(GROUP)
    assert group is not None
    assert isinstance(group.members, ClassicGroup)
    assert old.member_id in group.members.roster


def join_alone_reading(served: ServedNode) -> Joined:
    """The only member of a classic group, with an assignment that is one."""
    joined = served.ask(join_request(), JOIN_AT_ONCE)
    me = Joined(joined.member_id, joined.generation_id)
    request = sync_request(me.member_id, me.generation, all=write_share([0, 1]))
    assert served.ask(request).error_code == ErrorCode.NONE
    return me


def test_an_empty_consumer_group_is_a_classic_one_for_who_joins_so(
    served: ServedNode, orders: Topic
) -> None:
    join(served)
    served.ask(beat_request("ada", -1))
    assert served.ask(join_request(), JOIN_AT_ONCE).error_code == ErrorCode.NONE
    group = served.node.groups.find(GROUP)
    assert group is not None
    assert isinstance(group.members, ClassicGroup)


# --- offsets in transactions ------------------------------------------------------------------


def commit_in_transaction(
    served: ServedNode, producer: Producer, epoch: int, *, partition: int = 0, member: str = "ada"
) -> int:
    place = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=GROUP,
        producer_id=producer.who.producer_id,
        producer_epoch=producer.who.epoch,
        generation_id=epoch,
        member_id=member,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[place])],
    )
    code: int = served.ask(request).topics[0].partitions[0].error_code
    return code


def test_a_processor_that_lost_a_partition_cannot_commit_it_in_a_transaction(
    served: ServedNode, orders: Topic
) -> None:
    """Its successor reads on from there: both would have processed the same records."""
    join(served)
    producer = Producer(served, "tx", Flow.EPOCH_PER_TRANSACTION)
    assert producer.init() == ErrorCode.NONE
    assert commit_in_transaction(served, producer, 1) == ErrorCode.NONE
    assert served.ask(join_as("bob", "orders")).member_epoch == 2
    everything = [TopicPartitions(topic_id=orders.id, partitions=[0, 1])]
    (left,) = served.ask(beat_request("ada", 1, owned=everything)).assignment.topic_partitions
    kept = left.partitions[0]
    assert served.ask(beat_request("ada", 1, owned=[left])).member_epoch == 2
    assert commit_in_transaction(served, producer, 1, partition=kept) == ErrorCode.NONE
    stale = commit_in_transaction(served, producer, 1, partition=1 - kept)
    assert stale == ErrorCode.STALE_MEMBER_EPOCH
    unknown = commit_in_transaction(served, producer, 1, member="eve")
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
