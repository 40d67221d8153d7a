"""What brokers tell of consumer groups, in our words."""

import pytest

from millstream.broker.wire import ErrorCode, encode_versioned
from millstream.broker.wire.messages import consumer_group_describe as new_protocol
from millstream.broker.wire.messages import describe_groups as classic
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from millstream.broker.wire.messages.list_groups import ListedGroup
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from millstream.commands.connecting import Partition
from millstream.commands.consumer_groups import (
    classic_group,
    committed_of,
    consumer_group,
    is_of_consumers,
)
from millstream.commands.lag import Member
from millstream.queues.leader_link import RefusedByBroker

ADA = Member(id="m-1", client_id="ada", host="127.0.0.1")


@pytest.mark.parametrize(
    ("protocol_type", "kind", "is_one"),
    [
        ("consumer", "Classic", True),
        ("consumer", "Consumer", True),
        ("", "Classic", True),  # commits only
        ("consumer", "", True),  # of a broker that tells no kinds
        ("connect", "Classic", False),
        ("share", "Share", False),
        ("streams", "Streams", False),
    ],
)
def test_groups_of_other_kinds_are_left_out(protocol_type: str, kind: str, is_one: bool) -> None:
    group = ListedGroup(group_id="g", protocol_type=protocol_type, group_type=kind)
    assert is_of_consumers(group) is is_one


def described(assignment: bytes) -> classic.DescribedGroup:
    member = classic.DescribedGroupMember(
        member_id="m-1", client_id="ada", client_host="/127.0.0.1", member_assignment=assignment
    )
    return classic.DescribedGroup(group_id="g", group_state="Stable", members=[member])


def test_a_classic_groups_members_tell_what_they_are_assigned() -> None:
    assigned = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=[0, 2])]
    )
    group = classic_group(described(encode_versioned(assigned, 1)))
    assert (group.state, group.protocol) == ("stable", "classic")
    assert group.members == {ADA: (Partition("t", 0), Partition("t", 2))}


def test_members_with_words_of_their_own_are_shown_without_partitions() -> None:
    assert classic_group(described(b"\xff\xff?")).members == {ADA: ()}


def test_a_group_of_the_new_protocol_that_moves_partitions_is_rebalancing() -> None:
    parts = new_protocol.TopicPartitions(topic_name="t", partitions=[1])
    member = new_protocol.Member(
        member_id="m-1",
        client_id="ada",
        client_host="/127.0.0.1",
        assignment=new_protocol.Assignment(topic_partitions=[parts]),
    )
    told = new_protocol.DescribedGroup(group_id="g", group_state="Reconciling", members=[member])
    group = consumer_group(told)
    assert (group.state, group.protocol) == ("rebalancing", "consumer")
    assert group.members == {ADA: (Partition("t", 1),)}


def test_a_group_that_is_not_there_is_dead() -> None:
    group = classic_group(classic.DescribedGroup(group_id="g", group_state="Dead"))
    assert (group.exists, group.protocol) == (False, "unknown")


def test_a_group_that_may_not_be_seen_is_hidden() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert consumer_group(new_protocol.DescribedGroup(group_id="g", error_code=code)).is_hidden
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert classic_group(classic.DescribedGroup(group_id="g", error_code=code)).is_hidden


def test_a_coordinator_that_moved_is_an_error_and_no_group() -> None:
    code = ErrorCode.NOT_COORDINATOR
    with pytest.raises(RefusedByBroker):
        classic_group(classic.DescribedGroup(group_id="g", error_code=code))


def test_what_was_never_committed_is_left_out() -> None:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics)
    assert committed_of(group) == {Partition("t", 0): 5}
    group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
    assert committed_of(group) == {}
