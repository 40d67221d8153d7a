"""Streams groups (KIP-1071) through their APIs: what is answered, stored, and found again."""

from typing import Any

import pytest

from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.streams.streams_messages import StatusCode
from millstream.broker.topics import Topic
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages import streams_group_heartbeat as wire
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest
from millstream.broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.list_groups import ListGroupsRequest
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.broker.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.support.served_node import Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk
from tests.support.transactions import Producer
from tests.unit.broker.group_steps import (
    Joined,
    commit,
    committed,
    join_alone,
    join_request,
    leave,
)
from tests.unit.broker.test_api_group_configs import alter

APP = "counting"
NOTHING_ELSE = {
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
}


@pytest.fixture
def orders(served: ServedNode) -> Topic:
    return served.create(partitions=2)


def counting(source: str = "orders", **configs: str) -> wire.Topology:
    """Reads a topic, and counts it by way of a repartition topic, with a store."""
    settings = [wire.KeyValue(key=key, value=value) for key, value in configs.items()]
    compact = wire.KeyValue(key="cleanup.policy", value="compact")
    return wire.Topology(
        epoch=0,
        subtopologies=[
            wire.Subtopology(
                subtopology_id="0", source_topics=[source], repartition_sink_topics=["by-key"]
            ),
            wire.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[wire.TopicInfo(name="by-key", topic_configs=settings)],
                state_changelog_topics=[wire.TopicInfo(name="counts", topic_configs=[compact])],
            ),
        ],
    )


def beat(served: ServedNode, member_id: str, epoch: int, group: str = APP, **said: Any) -> Any:
    fields = NOTHING_ELSE | said
    request = wire.StreamsGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **fields
    )
    return served.ask(request)


def join(served: ServedNode, member_id: str = "ada", group: str = APP, **said: Any) -> Any:
    whole: dict[str, Any] = {
        "topology": counting(),
        "rebalance_timeout_ms": 60_000,
        "process_id": f"process of {member_id}",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    return beat(served, member_id, 0, group, **whole | said)


def start(served: ServedNode, member_id: str = "ada") -> Any:
    """The answer with tasks, after the topics were made and the first delay is over."""
    joined = join(served, member_id)
    assert joined.error_code == ErrorCode.NONE, joined
    served.advance(4)
    return beat(served, member_id, joined.member_epoch)


def group_of(served: ServedNode, group: str = APP) -> StreamsGroup:
    found = served.node.groups.find(group)
    assert found is not None
    assert isinstance(found.members, StreamsGroup)
    return found.members


def listed(served: ServedNode) -> dict[str, tuple[str, str]]:
    groups = served.ask(ListGroupsRequest(types_filter=["Streams"])).groups
    return {one.group_id: (one.group_type, one.group_state) for one in groups}


def delete_group(served: ServedNode, group: str = APP) -> int:
    code: int = served.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code
    return code


def fetched_as(served: ServedNode, member_id: str, epoch: int) -> int:
    group = OffsetFetchRequestGroup(
        group_id=APP, member_id=member_id, member_epoch=epoch, topics=None
    )
    code: int = served.ask(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code
    return code


# --- heartbeat --------------------------------------------------------------------------------


def test_an_instance_joins_and_gets_tasks_once_its_topics_are_made(
    served: ServedNode, orders: Topic
) -> None:
    joined = join(served)
    codes = [one.status_code for one in joined.status]
    assert codes == [StatusCode.ASSIGNMENT_DELAYED, StatusCode.MISSING_INTERNAL_TOPICS]
    assert (joined.active_tasks, joined.heartbeat_interval_ms) == ([], 5_000)
    topics = served.node.topics
    assert [len(topics.named(name).partitions) for name in ("by-key", "counts")] == [2, 2]
    assert topics.named("counts").overrides == {"cleanup.policy": "compact"}
    served.advance(4)
    answer = beat(served, "ada", joined.member_epoch)
    assert [(one.subtopology_id, one.partitions) for one in answer.active_tasks] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]
    assert (answer.status, answer.standby_tasks, answer.warmup_tasks) == ([], [], [])
    again = beat(served, "ada", answer.member_epoch)
    assert (again.active_tasks, again.standby_tasks, again.warmup_tasks) == (None, None, None)


def test_a_topic_that_cannot_be_made_is_named_with_the_reason(
    served: ServedNode, orders: Topic
) -> None:
    answer = join(served, topology=counting(**{"retention.ms": "soon"}))
    assert answer.error_code == ErrorCode.NONE
    [status] = [one for one in answer.status if one.status_code == 3]
    assert "by-key: " in status.status_detail
    assert "retention.ms" in status.status_detail
    assert "by-key" not in served.node.topics
    assert "counts" in served.node.topics


@pytest.mark.parametrize(
    "said",
    [
        {"instance_id": "one"},
        {"task_offsets": []},
        {"task_end_offsets": []},
        {"warmup_tasks": [wire.TaskIds(subtopology_id="0", partitions=[0])]},
        {"standby_tasks": None},
    ],
)
def test_what_kafka_does_not_have_yet_is_refused(
    served: ServedNode, orders: Topic, said: dict[str, Any]
) -> None:
    answer = join(served, **said)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert served.node.groups.find(APP) is None


def test_patterns_of_sources_are_refused(served: ServedNode) -> None:
    part = wire.Subtopology(subtopology_id="0", source_topic_regex=["ord.*"])
    answer = join(served, topology=wire.Topology(epoch=0, subtopologies=[part]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["__consumer_offsets", "no topic", ""])
def test_a_topology_of_topics_that_cannot_be_is_refused(served: ServedNode, name: str) -> None:
    answer = join(served, topology=counting(name))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_group_without_a_name_and_a_member_that_is_unknown(
    served: ServedNode, orders: Topic
) -> None:
    assert join(served, group="").error_code == ErrorCode.INVALID_REQUEST
    assert beat(served, "ada", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join(served)
    assert beat(served, "eve", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_obey_the_configs_of_their_group(served: ServedNode, orders: Topic) -> None:
    alter(served, "streams.initial.rebalance.delay.ms", "0", group=APP)
    alter(served, "streams.heartbeat.interval.ms", "700", group=APP)
    join(served)
    told = join(served)  # its topics are there now
    assert (told.status, told.heartbeat_interval_ms) == ([], 700)
    assert [one.partitions for one in told.active_tasks] == [[0, 1], [0, 1]]
    alter(served, "streams.heartbeat.interval.ms", "900", group=APP)
    alter(served, "streams.num.standby.replicas", "1", group=APP)
    answer = beat(served, "ada", told.member_epoch)
    assert answer.heartbeat_interval_ms == 900
    assert answer.member_epoch > told.member_epoch  # assigned again, for the standbys
    alter(served, "streams.session.timeout.ms", "1000", group=APP)
    beat(served, "ada", answer.member_epoch)
    served.advance(1.1)
    assert listed(served) == {APP: ("streams", "Empty")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams.session.timeout.ms", "999"),
        ("streams.heartbeat.interval.ms", "45000"),
        ("streams.heartbeat.interval.ms", "99"),
        ("streams.num.standby.replicas", "11"),
        ("streams.initial.rebalance.delay.ms", "-1"),
        ("streams.assignment.interval.ms", "-1"),
        ("streams.assignor.offload.enable", "true"),  # not of groups, as in Kafka 4.3
    ],
)
def test_configs_of_streams_groups_have_bounds(served: ServedNode, name: str, value: str) -> None:
    assert alter(served, name, value, group=APP) == ErrorCode.INVALID_CONFIG


# --- kinds of groups --------------------------------------------------------------------------


def test_an_id_is_of_one_kind_of_group(served: ServedNode, orders: Topic) -> None:
    start(served)
    assert served.ask(join_request(group=APP)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=APP, member_id="eve", rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"]
    )
    assert served.ask(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    share = ShareGroupHeartbeatRequest(
        group_id=APP, member_id="eve", subscribed_topic_names=["orders"]
    )
    assert served.ask(share).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    join_alone(served, group="readers")
    assert join(served, group="readers").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_group_without_members_goes_on_as_a_streams_group_with_its_offsets(
    serve: Serve, disk: SimulatedDisk
) -> None:
    served = serve()
    served.create(partitions=2)
    me = join_alone(served, group=APP)
    commit(served, 7, group=APP, member=me)
    leave(served, me, group=APP)
    start(served)
    assert committed(served, group=APP) == 7
    served.crash()
    served = serve()
    assert committed(served, group=APP) == 7
    assert len(group_of(served).book) == 1


def test_a_streams_group_without_members_is_a_name_for_a_classic_group(
    served: ServedNode, orders: Topic
) -> None:
    start(served)
    beat(served, "ada", -1)
    join_alone(served, group=APP)
    assert listed(served) == {}
    found = served.node.groups.find(APP)
    assert found is not None
    assert found.members.kind.value == "classic"


def test_a_streams_group_without_members_keeps_its_topology_when_a_consumer_asks(
    served: ServedNode, orders: Topic
) -> None:
    start(served)
    beat(served, "ada", -1)
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=APP,
        member_id="eve",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert served.ask(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert listed(served) == {APP: ("streams", "Empty")}
    assert group_of(served).book.topology is not None


def test_clients_are_told_that_there_are_streams_groups(served: ServedNode) -> None:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    features = served.ask(asked).finalized_features
    assert {one.name: one.max_version_level for one in features}["streams.version"] == 1


# --- offsets ----------------------------------------------------------------------------------


def test_members_commit_and_fetch_with_their_epoch(served: ServedNode, orders: Topic) -> None:
    epoch = start(served).member_epoch
    assert commit(served, 3, group=APP, member=Joined("ada", epoch)) == ErrorCode.NONE
    newer, older = Joined("ada", epoch + 1), Joined("ada", epoch - 2)
    assert commit(served, 4, group=APP, member=newer) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(served, 4, group=APP, member=older) == ErrorCode.STALE_MEMBER_EPOCH
    eve = Joined("eve", epoch)
    assert commit(served, 4, group=APP, member=eve) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(served, 4, group=APP) == ErrorCode.UNKNOWN_MEMBER_ID  # members are in it
    assert committed(served, group=APP) == 3
    assert fetched_as(served, "ada", epoch) == ErrorCode.NONE
    assert fetched_as(served, "ada", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_commit_with_an_older_epoch_counts_for_tasks_that_the_member_has_kept(
    served: ServedNode, orders: Topic
) -> None:
    told = start(served)
    join(served, "bob")
    owned = [wire.TaskIds(subtopology_id=str(part), partitions=[0, 1]) for part in (0, 1)]
    kept = beat(
        served, "ada", told.member_epoch, active_tasks=owned, standby_tasks=[], warmup_tasks=[]
    )
    has = {one.subtopology_id: one.partitions for one in kept.active_tasks}
    now = beat(
        served,
        "ada",
        kept.member_epoch,
        active_tasks=kept.active_tasks,
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert now.member_epoch > told.member_epoch
    before = Joined("ada", told.member_epoch)
    places = [("orders", "0"), ("by-key", "1")]
    codes = {
        (part, number): commit(served, 1, group=APP, member=before, topic=name, partition=number)
        for name, part in places
        for number in (0, 1)
    }
    for (part, number), code in codes.items():
        is_kept = number in has.get(part, [])
        assert code == (ErrorCode.NONE if is_kept else ErrorCode.STALE_MEMBER_EPOCH)


def test_offsets_of_a_transaction_are_checked_and_count_with_it(
    served: ServedNode, orders: Topic
) -> None:
    epoch = start(served).member_epoch
    producer, as_ada = Producer(served), {"group": APP, "member_id": "ada"}
    producer.init()
    assert producer.write_offset("orders", 5, **as_ada, generation_id=epoch) == ErrorCode.NONE
    assert committed(served, group=APP) == -1
    producer.commit()
    assert committed(served, group=APP) == 5
    stale = producer.write_offset("orders", 6, **as_ada, generation_id=epoch + 1)
    assert stale == ErrorCode.STALE_MEMBER_EPOCH


# --- list, describe, delete, restart ----------------------------------------------------------


def test_a_group_is_described_with_its_topology_and_members(
    served: ServedNode, orders: Topic
) -> None:
    start(served)
    request = StreamsGroupDescribeRequest(group_ids=[APP, "other"])
    group, other = served.ask(request).groups
    assert (group.group_state, group.group_epoch) == ("Stable", group.assignment_epoch)
    assert [one.subtopology_id for one in group.topology.subtopologies] == ["0", "1"]
    [member] = group.members
    assert (member.member_id, member.process_id) == ("ada", "process of ada")
    assert member.assignment == member.target_assignment
    assert [one.partitions for one in member.assignment.active_tasks] == [[0, 1], [0, 1]]
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_description_has_the_decided_partitions_once_the_topology_is_ready(
    served: ServedNode,
) -> None:
    topology = counting()
    topology.subtopologies.reverse()
    [changelog] = topology.subtopologies[0].state_changelog_topics
    changelog.name = "z-counts"
    topology.subtopologies[0].state_changelog_topics += [wire.TopicInfo(name="a-counts")]
    join(served, topology=topology)  # its source is missing
    assert described_topics(served) == {"by-key": 0, "a-counts": 0, "z-counts": 0}
    served.create(partitions=2)
    join(served, topology=topology)
    found = described_topics(served)
    assert found == {"by-key": 2, "a-counts": 2, "z-counts": 2}
    assert [*found] == ["by-key", "a-counts", "z-counts"]


def described_topics(served: ServedNode) -> dict[str, int]:
    """The internal topics with their partitions, in the order of the answer."""
    [group] = served.ask(StreamsGroupDescribeRequest(group_ids=[APP])).groups
    first, second = group.topology.subtopologies
    assert (first.subtopology_id, second.subtopology_id) == ("0", "1")
    internal = (*second.repartition_source_topics, *second.state_changelog_topics)
    return {one.name: one.partitions for one in internal}


def test_a_group_is_listed_and_deleted_when_it_is_empty(served: ServedNode, orders: Topic) -> None:
    start(served)
    assert listed(served) == {APP: ("streams", "Stable")}
    assert delete_group(served) == ErrorCode.NON_EMPTY_GROUP
    assert beat(served, "ada", -1).member_epoch == -1
    assert listed(served) == {APP: ("streams", "Empty")}
    assert delete_group(served) == ErrorCode.NONE
    assert listed(served) == {}


def test_a_group_is_as_it_was_after_the_broker_died(serve: Serve, disk: SimulatedDisk) -> None:
    served = serve()
    served.create(partitions=2)
    told = start(served)
    before = group_of(served).book
    served.crash()
    served = serve()
    after = group_of(served).book
    assert (after.epoch, after.target_epoch, [*after]) == (
        before.epoch,
        before.target_epoch,
        [*before],
    )
    assert after.topology == before.topology
    assert beat(served, "ada", told.member_epoch).error_code == ErrorCode.NONE
    served.advance(46)
    assert listed(served) == {APP: ("streams", "Empty")}


def test_a_deleted_group_stays_deleted(serve: Serve, disk: SimulatedDisk) -> None:
    served = serve()
    served.create(partitions=2)
    start(served)
    beat(served, "ada", -1)
    delete_group(served)
    served.crash()
    assert listed(serve()) == {}
