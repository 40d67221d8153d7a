"""The group APIs: what each version of them carries, and how errors reach a client."""

import pytest

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.find_coordinator import FindCoordinatorRequest
from millstream.broker.wire.messages.heartbeat import HeartbeatRequest
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.broker.wire.messages.list_groups import ListGroupsRequest
from millstream.broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from millstream.broker.wire.messages.sync_group import SyncGroupRequest
from tests.support.served_node import CLIENT_ID, ServedNode
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.group_steps import (
    GROUP,
    JOIN_AT_ONCE,
    Joined,
    commit,
    commit_request,
    committed,
    heartbeat,
    join_alone,
    join_request,
    leave,
    sync_request,
)

NOBODY = Joined("nobody", 1)


# --- coordinator ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_every_group(served: ServedNode, version: int) -> None:
    request = FindCoordinatorRequest(key="readers", coordinator_keys=["readers", "writers"])
    answer = served.ask(request, version)
    found = [answer] if version < 4 else answer.coordinators
    assert [(one.error_code, one.node_id, one.host, one.port) for one in found] == [
        (ErrorCode.NONE, 1, "127.0.0.1", 9092)
    ] * (1 if version < 4 else 2)
    if version >= 4:
        assert [one.key for one in found] == ["readers", "writers"]


@pytest.mark.parametrize("version", [1, 4, 6])
@pytest.mark.parametrize(
    ("key_type", "expected"), [(1, (0, 1)), (2, (ErrorCode.INVALID_REQUEST, -1))]
)
def test_it_coordinates_transactions_too_and_no_share_groups_yet(
    served: ServedNode, version: int, key_type: int, expected: tuple[int, int]
) -> None:
    request = FindCoordinatorRequest(key="tx", key_type=key_type, coordinator_keys=["tx"])
    answer = served.ask(request, version)
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id) == expected


# --- members ----------------------------------------------------------------------------------


def test_from_version_4_on_a_new_member_is_given_its_id_first(served: ServedNode) -> None:
    first = served.ask(join_request(), 4)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith(f"{CLIENT_ID}-")
    second = served.ask(join_request(first.member_id), 4)
    assert (second.error_code, second.leader) == (ErrorCode.NONE, first.member_id)
    assert [member.member_id for member in second.members] == [first.member_id]


def test_a_join_needs_a_group_id_and_a_known_member(served: ServedNode) -> None:
    assert served.ask(join_request(group="")).error_code == ErrorCode.INVALID_GROUP_ID
    unknown = served.ask(join_request("nobody"))
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(served.node.groups) == []


def test_an_instance_id_that_no_answer_could_carry_is_refused(served: ServedNode) -> None:
    limit = 249
    assert served.ask(join_request(instance_id="x" * limit)).error_code == ErrorCode.NONE
    refused = served.ask(join_request(group="other", instance_id="x" * (limit + 1)))
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_two_members_join_the_leader_assigns_and_each_gets_its_part(served: ServedNode) -> None:
    first = served.ask(join_request(), JOIN_AT_ONCE)
    second = served.ask_soon(join_request(), JOIN_AT_ONCE)
    assert heartbeat(served, Joined(first.member_id, 1)) == ErrorCode.REBALANCE_IN_PROGRESS
    again = served.ask_soon(join_request(first.member_id), JOIN_AT_ONCE)
    served.settle()
    leader, follower = again.result(), second.result()
    assert (leader.generation_id, follower.generation_id) == (2, 2)
    assert len(leader.members) == 2
    assert not follower.members
    waiting = served.ask_soon(sync_request(follower.member_id, 2))
    assert not waiting.done()
    request = sync_request(leader.member_id, 2, mine=b"first")
    request.assignments.append(
        type(request.assignments[0])(member_id=follower.member_id, assignment=b"second")
    )
    assert served.ask(request).assignment == b"first"
    served.settle()
    assert waiting.result().assignment == b"second"


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="nobody"),
        SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="nobody"),
    ],
)
@pytest.mark.parametrize("has_group", [True, False])
def test_who_is_not_a_member_is_told_so(
    served: ServedNode, request_: HeartbeatRequest | SyncGroupRequest, has_group: bool
) -> None:
    if has_group:
        join_alone(served)
    assert served.ask(request_).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_is_refused(served: ServedNode) -> None:
    me = join_alone(served)
    assert heartbeat(served, Joined(me.member_id, 7)) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(3))
def test_up_to_version_2_one_member_leaves(served: ServedNode, version: int) -> None:
    me = join_alone(served)
    request = LeaveGroupRequest(group_id=GROUP, member_id=me.member_id)
    assert served.ask(request, version).error_code == ErrorCode.NONE
    assert served.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = LeaveGroupRequest(group_id="other", member_id=me.member_id)
    assert served.ask(other, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_from_version_3_on_several_leave_and_each_gets_its_answer(
    served: ServedNode, version: int
) -> None:
    me = join_alone(served)
    who = [MemberIdentity(member_id=me.member_id), MemberIdentity(member_id="nobody")]
    answer = served.ask(LeaveGroupRequest(group_id=GROUP, members=who), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(one.member_id, one.error_code) for one in answer.members] == [
        (me.member_id, ErrorCode.NONE),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    unknown = served.ask(LeaveGroupRequest(group_id="other", members=who), version)
    assert [one.error_code for one in unknown.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_an_operator_removes_a_static_member_by_its_instance_id(served: ServedNode) -> None:
    served.ask(join_request(instance_id="desk"), 5)
    who = [MemberIdentity(member_id="", group_instance_id="desk")]
    answer = served.ask(LeaveGroupRequest(group_id=GROUP, members=who))
    assert [(one.group_instance_id, one.error_code) for one in answer.members] == [("desk", 0)]


# --- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_an_offset_is_committed_in_every_version(served: ServedNode, version: int) -> None:
    served.create()
    assert commit(served, 5, version=version, metadata="here") == ErrorCode.NONE
    assert committed(served) == 5


def test_of_a_commit_each_partition_has_its_own_error(served: ServedNode) -> None:
    served.create("orders", 2)
    request = commit_request(1)
    for more in (
        commit_request(2, partition=9),
        commit_request(3, topic="nothing"),
        commit_request(4, partition=1, metadata="x" * 4_097),
    ):
        request.topics += more.topics
    codes = [topic.partitions[0].error_code for topic in served.ask(request).topics]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert committed(served) == 1


def test_only_members_commit_while_there_are_members(served: ServedNode) -> None:
    served.create()
    me = join_alone(served)
    assert commit(served, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(served, 1, member=NOBODY) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(served, 1, member=Joined(me.member_id, 9)) == ErrorCode.ILLEGAL_GENERATION
    assert commit(served, 1, member=me) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_gone_is_told_so(
    served: ServedNode, version: int, code: ErrorCode
) -> None:
    served.create()
    assert commit(served, 1, version=version, member=NOBODY) == code
    assert served.node.groups.find(GROUP) is None


@pytest.mark.parametrize("version", range(1, 8))
def test_up_to_version_7_offsets_of_one_group_are_fetched(served: ServedNode, version: int) -> None:
    served.create("orders", 2)
    commit(served, 5, metadata="here")
    wanted = OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1, 9])
    answer = served.ask(OffsetFetchRequest(group_id=GROUP, topics=[wanted]), version)
    (topic,) = answer.topics
    assert [(p.committed_offset, p.metadata, p.error_code) for p in topic.partitions] == [
        (5, "here", 0),
        (-1, "", 0),
        (-1, "", 0),
    ]
    if version >= 2:
        everything = served.ask(OffsetFetchRequest(group_id=GROUP, topics=None), version)
        assert [(t.name, len(t.partitions)) for t in everything.topics] == [("orders", 1)]


@pytest.mark.parametrize("version", [8, 9])
def test_from_version_8_on_offsets_of_several_groups_are_fetched(
    served: ServedNode, version: int
) -> None:
    served.create("orders", 2)
    commit(served, 5, group="a")
    commit(served, 6, group="b", partition=1)
    named = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    groups = [
        OffsetFetchRequestGroup(group_id="a", topics=[named]),
        OffsetFetchRequestGroup(group_id="b", topics=None),
        OffsetFetchRequestGroup(group_id="unknown", topics=[named]),
    ]
    answer = served.ask(OffsetFetchRequest(groups=groups), version)
    offsets = {
        (group.group_id, topic.name, one.partition_index): one.committed_offset
        for group in answer.groups
        for topic in group.topics
        for one in topic.partitions
    }
    assert offsets == {
        ("a", "orders", 0): 5,
        ("b", "orders", 1): 6,
        ("unknown", "orders", 0): -1,
    }


def offset_delete(served: ServedNode, *topics: str, group: str = GROUP) -> tuple[int, list[int]]:
    wanted = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        for topic in topics
    ]
    answer = served.ask(OffsetDeleteRequest(group_id=group, topics=wanted))
    return answer.error_code, [topic.partitions[0].error_code for topic in answer.topics]


def test_offsets_are_deleted_but_for_topics_that_a_member_reads(served: ServedNode) -> None:
    served.create("orders")
    served.create("other")
    me = join_alone(served)
    for topic in ("orders", "other"):
        commit(served, 5, topic=topic, member=me)
    assert offset_delete(served, "orders", "other") == (
        ErrorCode.NONE,
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE],
    )
    assert committed(served) == 5
    assert committed(served, topic="other") == -1
    leave(served, me)
    assert offset_delete(served, "orders") == (ErrorCode.NONE, [ErrorCode.NONE])
    assert offset_delete(served, "orders", group="unknown") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_that_cannot_be_deleted_stay(served: ServedNode, disk: SimulatedDisk) -> None:
    served.create()
    commit(served, 5)
    disk.fill_at(disk.steps)
    assert offset_delete(served, "orders") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    disk.heal()
    assert committed(served) == 5


# --- operators --------------------------------------------------------------------------------


def listed(
    served: ServedNode, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> set[str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    return {group.group_id for group in served.ask(request).groups}


def test_groups_are_listed_by_state_and_type(served: ServedNode) -> None:
    served.create()
    join_alone(served, group="stable")
    commit(served, 1, group="empty")
    assert listed(served) == {"stable", "empty"}
    assert listed(served, states=("STABLE",)) == {"stable"}
    assert listed(served, states=("Empty", "Dead")) == {"empty"}
    assert listed(served, types=("Classic",)) == {"stable", "empty"}
    assert listed(served, types=("consumer",)) == set()


def test_a_group_is_described_with_its_members(served: ServedNode) -> None:
    me = join_alone(served)
    (group,) = served.ask(DescribeGroupsRequest(groups=[GROUP])).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id) == (me.member_id, CLIENT_ID)
    assert (member.client_host, member.member_assignment) == ("/192.0.2.7", b"everything")


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead_and_from_version_6_on_an_error(
    served: ServedNode, version: int
) -> None:
    (group,) = served.ask(DescribeGroupsRequest(groups=[GROUP]), version).groups
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


def test_of_several_groups_each_deletion_has_its_answer(served: ServedNode) -> None:
    served.create()
    join_alone(served, group="stable")
    commit(served, 1, group="empty")
    request = DeleteGroupsRequest(groups_names=["stable", "empty", "unknown"])
    codes = [one.error_code for one in served.ask(request).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]


# --- producers --------------------------------------------------------------------------------


def test_an_idempotent_producer_gets_a_new_id_and_epoch_zero(served: ServedNode) -> None:
    answers = [served.ask(InitProducerIdRequest()) for _ in range(2)]
    assert [(one.error_code, one.producer_epoch) for one in answers] == [(0, 0)] * 2
    assert answers[0].producer_id != answers[1].producer_id


def test_on_a_full_disk_a_producer_is_told_to_try_again(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    disk.fill_at(disk.steps)
    answer = served.ask(InitProducerIdRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert served.ask(InitProducerIdRequest()).error_code == ErrorCode.NONE
