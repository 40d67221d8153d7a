# StreamsGroupDescribe, version 0.
#   Does:     epochs, topology and members of streams groups (KIP-1071), with the tasks that each
#             has and shall have. As in Kafka, internal topics have the decided number of
#             partitions once the topology is ready, and the declared one before.

from collections.abc import Iterable, Mapping

from millstream.broker.access.permit import GroupDenied
from millstream.broker.apis.api_15_describe_groups import operations_on_group
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.streams.internal_topics import ResolvedTopology
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.streams.streams_member import StreamsMember
from millstream.broker.streams.task import TaskId, Tasks, numbers_by_subtopology
from millstream.broker.streams.topology import InternalTopic, Subtopology
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages import streams_group_describe as wire


@handles(ApiKey.STREAMS_GROUP_DESCRIBE, versions=range(1))
def streams_group_describe(
    request: wire.StreamsGroupDescribeRequest, call: Call
) -> wire.StreamsGroupDescribeResponse:
    groups = [_describe(group_id, call) for group_id in request.group_ids]
    for group in groups:
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_on_group(group.group_id, call)
    return wire.StreamsGroupDescribeResponse(groups=groups)


def _describe(group_id: str, call: Call) -> wire.DescribedGroup:
    try:
        groups = call.groups(group_id)
        found, kind = groups.find(group_id), groups.kind_of(group_id)
    except GroupDenied as error:
        return wire.DescribedGroup(
            group_id=group_id, error_code=error_code(error), error_message=error_message(error)
        )
    if found is None or not isinstance(found.members, StreamsGroup):
        reason = "there is no such group" if kind is None else f"it is a {kind.value} group"
        return wire.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=reason
        )
    topology = found.members.book.topology
    if topology is not None and not all(map(call.topics.may_use, sorted(topology.named_topics))):
        return wire.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="it uses topics that you are not authorized to describe",
        )
    return _described(found.members)


def _described(group: StreamsGroup) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.book.epoch,
        assignment_epoch=group.book.target_epoch,
        topology=_topology(group),
        members=[_member(one, group.book.target_tasks(one.member_id)) for one in group.book],
    )


def _topology(group: StreamsGroup) -> wire.Topology | None:
    topology, resolved = group.book.topology, group.book.resolved
    if topology is None:
        return None
    parts = sorted(topology.subtopologies, key=lambda one: one.id)
    return wire.Topology(
        epoch=topology.epoch, subtopologies=[_subtopology(one, resolved) for one in parts]
    )


def _subtopology(one: Subtopology, resolved: ResolvedTopology) -> wire.Subtopology:
    """Partitions of internal topics as decided; until all is as it must be, as declared."""
    tasks = resolved.task_counts.get(one.id, 0)
    decided: dict[str, int] = {}
    if resolved.is_ready:
        decided |= {topic.name: tasks for topic in one.changelog_topics}
        decided |= resolved.repartition_counts
    return wire.Subtopology(
        subtopology_id=one.id,
        source_topics=sorted(one.source_topics),
        repartition_sink_topics=sorted(one.repartition_sink_topics),
        state_changelog_topics=_topic_infos(one.changelog_topics, decided),
        repartition_source_topics=_topic_infos(one.repartition_source_topics, decided),
    )


def _topic_infos(
    topics: Iterable[InternalTopic], decided: Mapping[str, int]
) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            name=topic.name,
            partitions=decided.get(topic.name, topic.partitions),
            replication_factor=topic.replication_factor,
            topic_configs=[wire.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Tasks) -> wire.Member:
    profile, endpoint = member.profile, member.profile.endpoint
    place = wire.Endpoint(host=endpoint.host, port=endpoint.port) if endpoint else None
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=place,
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in profile.client_tags],
        assignment=_assignment(member.progress.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks) -> wire.Assignment:
    return wire.Assignment(
        active_tasks=_task_ids(tasks.active), standby_tasks=_task_ids(tasks.standby)
    )


def _task_ids(tasks: Iterable[TaskId]) -> list[wire.TaskIds]:
    return [
        wire.TaskIds(subtopology_id=id_, partitions=numbers)
        for id_, numbers in numbers_by_subtopology(tasks).items()
    ]
