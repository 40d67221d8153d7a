# OffsetCommit, versions 2-10.
#   Does:     stores offsets of members and of consumers that assign themselves, by topic id from
#             version 10 on; answers once they are synced.

from collections.abc import Callable

from millstream.base.errors import MillstreamError
from millstream.broker.groups.classic_offset_rules import check_commit_without_group
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.offset_rules import admit_commit, check_partition_commit
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

HAS_EPOCHS = 9
HAS_TOPIC_IDS = 10

CodeOf = Callable[[OffsetCommitRequestTopic, int], int]
Commits = list[tuple[TopicPartition, CommittedOffset]]


@handles(
    ApiKey.OFFSET_COMMIT,
    versions=range(2, 11),
    refuse=lambda request, code: _answer(request, lambda topic, partition: code),
)
async def offset_commit(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    error = _admit(request, call)
    if error is not ErrorCode.NONE:
        return _answer(request, lambda topic, partition: error)
    groups = call.groups(request.group_id)
    unnamed = _name_topics(request, call)
    commits: Commits = []
    codes: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions if topic.topic_id not in unnamed else ():
            codes[topic.name, partition.partition_index] = _check(
                topic.name, partition, request, call, commits
            )
    try:
        if commits:
            await groups.commit(groups.find_or_create(request.group_id), commits)
    except MillstreamError as failure:
        for where, _ in commits:
            codes[where] = coordinator_error_code(failure)

    def code_of(topic: OffsetCommitRequestTopic, partition: int) -> int:
        refused = unnamed.get(topic.topic_id)
        return codes[topic.name, partition] if refused is None else refused

    return _answer(request, code_of)


def _admit(request: OffsetCommitRequest, call: Call) -> ErrorCode:
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    generation = request.generation_id_or_member_epoch
    if request.group_id in groups.shares:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group is None:
        return check_commit_without_group(
            generation=generation, knows_group_not_found=call.version >= HAS_EPOCHS
        )
    return admit_commit(
        group.members,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=generation,
        knows_epochs=call.version >= HAS_EPOCHS,
        now_ms=groups.now_ms(),
    )


def _name_topics(request: OffsetCommitRequest, call: Call) -> dict[bytes, ErrorCode]:
    """Where a request has ids: give each topic its name. Returns why some have none, by id."""
    unnamed = {}
    for topic in request.topics if call.version >= HAS_TOPIC_IDS else ():
        try:
            topic.name = call.topics.with_id(topic.topic_id).name
        except MillstreamError as error:
            topic.name, unnamed[topic.topic_id] = "", error_code(error)
    return unnamed


def _check(
    topic_name: str,
    partition: OffsetCommitRequestPartition,
    request: OffsetCommitRequest,
    call: Call,
    commits: Commits,
) -> int:
    """The error of one partition; without one it is added to `commits`.

    Only a commit to a partition that is there, and the caller's to read, makes a group.
    """
    where = TopicPartition(topic_name, partition.partition_index)
    try:
        call.topics.named(topic_name).partition(partition.partition_index)
    except MillstreamError as error:
        return error_code(error)
    group = call.groups(request.group_id).find_or_create(request.group_id)
    committed = _committed(partition, request.retention_time_ms, call.node.now_ms())
    error_number = group.offsets.check(committed) or check_partition_commit(
        group.members,
        where,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
    )
    if error_number is ErrorCode.NONE:
        commits.append((where, committed))
    return error_number


def _committed(
    partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int
) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        committed_ms=now_ms,
        expires_ms=now_ms + retention_ms if retention_ms >= 0 else None,
    )


def _answer(request: OffsetCommitRequest, code_of: CodeOf) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code_of(topic, partition.partition_index),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
