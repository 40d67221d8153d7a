"""Records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's layouts.

    key 17  StreamsGroupMetadataKey                  group          -> epoch, hash of topics
    key 19  StreamsGroupMemberMetadataKey            group, member  -> what it told us
    key 20  StreamsGroupTargetAssignmentMetadataKey  group          -> epoch of the target, when
    key 21  StreamsGroupTargetAssignmentMemberKey    group, member  -> its target
    key 22  StreamsGroupCurrentMemberAssignmentKey   group, member  -> how far it has come
    key 23  StreamsGroupTopologyKey                  group          -> what the application is

Keys start with that number, values with their version, which is 0. (Key 18 is of Kafka before
4.1.) Warm-up tasks have room in the records, and are never written: Kafka 4.3 has none.
"""

from collections.abc import Iterable

from millstream.base.errors import Corrupt
from millstream.broker.groups.consumer_member import MemberState
from millstream.broker.streams.streams_facts import (
    MEMBER_KINDS,
    StreamsFact,
    StreamsFactKey,
    StreamsFactKind,
    StreamsGroupFact,
    StreamsTargetFact,
)
from millstream.broker.streams.streams_member import StreamsProfile, StreamsProgress
from millstream.broker.streams.streams_messages import UserEndpoint
from millstream.broker.streams.task import HeldTasks, TaskId, Tasks, numbers_by_subtopology
from millstream.broker.streams.topology import InternalTopic, Subtopology, Topology
from millstream.broker.streams.topology_messages import pairs_from, topology_from
from millstream.broker.wire import MalformedMessage, decode_versioned, encode_versioned
from millstream.broker.wire.message import Message, field

STREAMS_KEY_VERSIONS = frozenset(int(kind) for kind in StreamsFactKind)
VALUE_VERSION = 0
STANDBYS_CONFIG = "num.standby.replicas"  # as Kafka names it in its record


class StreamsGroupKey(Message, versions="17-23"):
    group_id: str = field("string", "0+", default="")


class StreamsMemberKey(Message, versions="19-22"):
    group_id: str = field("string", "0+", default="")
    member_id: str = field("string", "0+", default="")


class KeyValue(Message):
    key: str = field("string", "0+", default="")
    value: str = field("string", "0+", default="")


class GroupValue(Message, versions="0", flexible="0+"):
    epoch: int = field("int32", "0+", default=0)
    metadata_hash: int = field("int64", "0+", default=0)
    validated_topology_epoch: int = field("int32", "0+", tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = field(
        [KeyValue], "0+", nullable="0+", tag=1, default=None
    )


class EndpointValue(Message):
    host: str = field("string", "0+", default="")
    port: int = field("uint16", "0+", default=0)


class MemberValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = field("string", "0+", nullable="0+", default=None)
    rack_id: str | None = field("string", "0+", nullable="0+", default=None)
    client_id: str = field("string", "0+", default="")
    client_host: str = field("string", "0+", default="")
    rebalance_timeout_ms: int = field("int32", "0+", default=-1)
    topology_epoch: int = field("int32", "0+", default=0)
    process_id: str = field("string", "0+", default="")
    user_endpoint: EndpointValue | None = field(EndpointValue, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field([KeyValue], "0+", default_factory=list)


class TargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = field("int32", "0+", default=0)
    assignment_timestamp: int = field("int64", "0+", tag=0, default=0)


class TargetTasks(Message):
    subtopology_id: str = field("string", "0+", default="")
    partitions: list[int] = field(["int32"], "0+", default_factory=list)


class TargetOfMemberValue(Message, versions="0", flexible="0+"):
    active_tasks: list[TargetTasks] = field([TargetTasks], "0+", default_factory=list)
    standby_tasks: list[TargetTasks] = field([TargetTasks], "0+", default_factory=list)
    warmup_tasks: list[TargetTasks] = field([TargetTasks], "0+", default_factory=list)


class OwnTasks(Message):
    subtopology_id: str = field("string", "0+", default="")
    partitions: list[int] = field(["int32"], "0+", default_factory=list)
    assignment_epochs: list[int] | None = field(["int32"], "0+", nullable="0+", tag=0, default=None)


class ProgressValue(Message, versions="0", flexible="0+"):
    member_epoch: int = field("int32", "0+", default=0)
    previous_member_epoch: int = field("int32", "0+", default=0)
    state: int = field("int8", "0+", default=0)
    active_tasks: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)
    standby_tasks: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)
    warmup_tasks: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)
    active_tasks_pending_revocation: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)
    standby_tasks_pending_revocation: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)
    warmup_tasks_pending_revocation: list[OwnTasks] = field([OwnTasks], "0+", default_factory=list)


class TopicInfo(Message):
    name: str = field("string", "0+", default="")
    partitions: int = field("int32", "0+", default=0)
    replication_factor: int = field("int16", "0+", default=0)
    topic_configs: list[KeyValue] = field([KeyValue], "0+", default_factory=list)


class CopartitionValue(Message):
    source_topics: list[int] = field(["int16"], "0+", default_factory=list)
    source_topic_regex: list[int] = field(["int16"], "0+", default_factory=list)
    repartition_source_topics: list[int] = field(["int16"], "0+", default_factory=list)


class SubtopologyValue(Message):
    subtopology_id: str = field("string", "0+", default="")
    source_topics: list[str] = field(["string"], "0+", default_factory=list)
    source_topic_regex: list[str] = field(["string"], "0+", default_factory=list)
    state_changelog_topics: list[TopicInfo] = field([TopicInfo], "0+", default_factory=list)
    repartition_sink_topics: list[str] = field(["string"], "0+", default_factory=list)
    repartition_source_topics: list[TopicInfo] = field([TopicInfo], "0+", default_factory=list)
    copartition_groups: list[CopartitionValue] = field(
        [CopartitionValue], "0+", default_factory=list
    )


class TopologyValue(Message, versions="0", flexible="0+"):
    epoch: int = field("int32", "0+", default=0)
    subtopologies: list[SubtopologyValue] = field([SubtopologyValue], "0+", default_factory=list)


# Keys.


def streams_fact_key(group_id: str, key: StreamsFactKey) -> bytes:
    if key.kind in MEMBER_KINDS:
        message = StreamsMemberKey(group_id=group_id, member_id=key.member_id)
        return encode_versioned(message, key.kind)
    return encode_versioned(StreamsGroupKey(group_id=group_id), key.kind)


def read_streams_fact_key(data: bytes) -> tuple[str, StreamsFactKey]:
    """Of a key whose number is a `StreamsFactKind`."""
    kind = StreamsFactKind(int.from_bytes(data[:2], "big"))
    if kind in MEMBER_KINDS:
        _, member = decode_versioned(StreamsMemberKey, data)
        return member.group_id, StreamsFactKey(kind, member.member_id)
    _, group = decode_versioned(StreamsGroupKey, data)
    return group.group_id, StreamsFactKey(kind)


# Values.


def streams_fact_value(fact: StreamsFact) -> bytes:
    return encode_versioned(_message(fact), VALUE_VERSION)


def _message(fact: StreamsFact) -> Message:
    match fact:
        case StreamsGroupFact():
            return _group_value(fact)
        case StreamsTargetFact():
            return TargetValue(assignment_epoch=fact.epoch, assignment_timestamp=fact.assigned_ms)
        case StreamsProfile():
            return _member_value(fact)
        case StreamsProgress():
            return _progress_value(fact)
        case Tasks():
            return TargetOfMemberValue(
                active_tasks=_target_tasks(fact.active), standby_tasks=_target_tasks(fact.standby)
            )
        case Topology():
            return TopologyValue(
                epoch=fact.epoch, subtopologies=[*map(_subtopology_value, fact.subtopologies)]
            )


def read_streams_fact(key: StreamsFactKey, data: bytes) -> StreamsFact:
    try:
        return _read(key.kind, data)
    except (MalformedMessage, ValueError) as error:
        raise Corrupt(f"__consumer_offsets: {key} cannot be read: {error}") from error


def _read(kind: StreamsFactKind, data: bytes) -> StreamsFact:
    match kind:
        case StreamsFactKind.GROUP:
            return _group_fact(decode_versioned(GroupValue, data)[1])
        case StreamsFactKind.TARGET:
            _, target = decode_versioned(TargetValue, data)
            return StreamsTargetFact(
                epoch=target.assignment_epoch, assigned_ms=target.assignment_timestamp
            )
        case StreamsFactKind.MEMBER:
            return _profile(decode_versioned(MemberValue, data)[1])
        case StreamsFactKind.PROGRESS:
            return _progress(decode_versioned(ProgressValue, data)[1])
        case StreamsFactKind.TARGET_OF_MEMBER:
            _, own = decode_versioned(TargetOfMemberValue, data)
            return Tasks(active=_tasks(own.active_tasks), standby=_tasks(own.standby_tasks))
        case StreamsFactKind.TOPOLOGY:
            return topology_from(decode_versioned(TopologyValue, data)[1])


def _group_value(fact: StreamsGroupFact) -> GroupValue:
    configs = None
    if fact.standbys is not None:
        configs = [KeyValue(key=STANDBYS_CONFIG, value=str(fact.standbys))]
    return GroupValue(
        epoch=fact.epoch,
        metadata_hash=fact.metadata_hash,
        validated_topology_epoch=fact.validated_epoch,
        last_assignment_configs=configs,
    )


def _group_fact(value: GroupValue) -> StreamsGroupFact:
    configs = {one.key: one.value for one in value.last_assignment_configs or ()}
    standbys = configs.get(STANDBYS_CONFIG)
    return StreamsGroupFact(
        epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_epoch=value.validated_topology_epoch,
        standbys=None if standbys is None else int(standbys),
    )


def _member_value(profile: StreamsProfile) -> MemberValue:
    endpoint = profile.endpoint
    place = EndpointValue(host=endpoint.host, port=endpoint.port) if endpoint else None
    return MemberValue(
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=place,
        client_tags=_key_values(profile.client_tags),
    )


def _profile(value: MemberValue) -> StreamsProfile:
    endpoint = value.user_endpoint
    return StreamsProfile(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=UserEndpoint(host=endpoint.host, port=endpoint.port) if endpoint else None,
        client_tags=pairs_from(value.client_tags),
    )


def _progress_value(progress: StreamsProgress) -> ProgressValue:
    return ProgressValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=progress.state,
        active_tasks=_held_tasks(progress.active),
        standby_tasks=_own_tasks(progress.standby),
        active_tasks_pending_revocation=_held_tasks(progress.revoking_active),
        standby_tasks_pending_revocation=_own_tasks(progress.revoking_standby),
    )


def _progress(value: ProgressValue) -> StreamsProgress:
    epoch = value.member_epoch
    return StreamsProgress(
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        active=_holdings(value.active_tasks, epoch),
        standby=_tasks(value.standby_tasks),
        revoking_active=_holdings(value.active_tasks_pending_revocation, epoch),
        revoking_standby=_tasks(value.standby_tasks_pending_revocation),
    )


# Tasks.


def _target_tasks(tasks: Iterable[TaskId]) -> list[TargetTasks]:
    return [
        TargetTasks(subtopology_id=id_, partitions=numbers)
        for id_, numbers in numbers_by_subtopology(tasks).items()
    ]


def _own_tasks(tasks: Iterable[TaskId]) -> list[OwnTasks]:
    return [
        OwnTasks(subtopology_id=id_, partitions=numbers)
        for id_, numbers in numbers_by_subtopology(tasks).items()
    ]


def _held_tasks(held: HeldTasks) -> list[OwnTasks]:
    return [
        OwnTasks(
            subtopology_id=id_,
            partitions=numbers,
            assignment_epochs=[held[TaskId(id_, number)] for number in numbers],
        )
        for id_, numbers in numbers_by_subtopology(held).items()
    ]


def _tasks(found: Iterable[TargetTasks | OwnTasks]) -> frozenset[TaskId]:
    return frozenset(TaskId(one.subtopology_id, n) for one in found for n in one.partitions)


def _holdings(found: Iterable[OwnTasks], member_epoch: int) -> HeldTasks:
    """Without epochs of their own tasks have the member's."""
    return {
        TaskId(one.subtopology_id, number): epoch
        for one in found
        for number, epoch in zip(
            one.partitions,
            one.assignment_epochs or [member_epoch] * len(one.partitions),
            strict=True,
        )
    }


# The topology.


def _subtopology_value(one: Subtopology) -> SubtopologyValue:
    return SubtopologyValue(
        subtopology_id=one.id,
        source_topics=[*one.source_topics],
        source_topic_regex=[*one.source_patterns],
        state_changelog_topics=[*map(_topic_info, one.changelog_topics)],
        repartition_sink_topics=[*one.repartition_sink_topics],
        repartition_source_topics=[*map(_topic_info, one.repartition_source_topics)],
        copartition_groups=[
            CopartitionValue(
                source_topics=[*group.source_topics],
                source_topic_regex=[*group.source_patterns],
                repartition_source_topics=[*group.repartition_source_topics],
            )
            for group in one.copartition_groups
        ],
    )


def _topic_info(topic: InternalTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_key_values(topic.configs),
    )


def _key_values(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in pairs]
