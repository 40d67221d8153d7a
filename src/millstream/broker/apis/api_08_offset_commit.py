# OffsetCommit, versions 2-9.
#   Does:     stores offsets of members and of consumers that assign themselves; answers once
#             they are synced.
#   Does not: topic ids (version 10).

from collections.abc import Callable

from millstream.base.errors import MillstreamError
from millstream.broker.group_coordinator import CoordinatedGroup
from millstream.broker.groups.classic_offset_rules import admit_commit, check_commit_without_group
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

CodeOf = Callable[[str, int], int]
Commits = list[tuple[TopicPartition, CommittedOffset]]


@handles(ApiKey.OFFSET_COMMIT, versions=range(2, 10))
async def offset_commit(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    error = _admit(request, call)
    if error is not ErrorCode.NONE:
        return _answer(request, lambda topic, partition: error)
    group = call.node.groups.find_or_create(request.group_id)
    commits: Commits = []
    codes: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            codes[topic.name, partition.partition_index] = _check(
                group, topic.name, partition, request, call, commits
            )
    try:
        await call.node.groups.commit(group, commits)
    except MillstreamError as failure:
        for where, _ in commits:
            codes[where] = coordinator_error_code(failure)
    return _answer(request, lambda topic, partition: codes[topic, partition])


def _admit(request: OffsetCommitRequest, call: Call) -> ErrorCode:
    group = call.node.groups.find(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        return check_commit_without_group(
            generation=generation, knows_group_not_found=call.version >= 9
        )
    return admit_commit(
        group.members,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=generation,
        now_ms=call.node.groups.now_ms(),
    )


def _check(
    group: CoordinatedGroup,
    topic_name: str,
    partition: OffsetCommitRequestPartition,
    request: OffsetCommitRequest,
    call: Call,
    commits: Commits,
) -> int:
    """The error of one partition; without one it is added to `commits`."""
    try:
        call.node.topics.named(topic_name).partition(partition.partition_index)
    except MillstreamError as error:
        return error_code(error)
    now_ms = call.node.now_ms()
    retention_ms = request.retention_time_ms
    committed = CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        committed_ms=now_ms,
        expires_ms=now_ms + retention_ms if retention_ms >= 0 else None,
    )
    error_number = group.offsets.check(committed)
    if error_number is ErrorCode.NONE:
        commits.append((TopicPartition(topic_name, partition.partition_index), committed))
    return error_number


def _answer(request: OffsetCommitRequest, code_of: CodeOf) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code_of(topic.name, partition.partition_index),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
