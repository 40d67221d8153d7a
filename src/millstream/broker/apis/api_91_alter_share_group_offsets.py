# AlterShareGroupOffsets, version 0.
#   Does:     lets a share group without members start elsewhere, also before it exists; -1 is
#             where its share.auto.offset.reset says. Durable when answered.
#   Does not: start beyond the log's end, as Kafka would: what comes next would be skipped.

from millstream.base.errors import MillstreamError
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code, error_message
from millstream.broker.share.share_state import NO_START_OFFSET
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.log.partition_log import OffsetOutOfRange, PartitionLog


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=range(1))
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, call: Call
) -> AlterShareGroupOffsetsResponse:
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    offsets: dict[TopicIdPartition, int] = {}
    responses = [_topic(topic, offsets, call) for topic in request.topics]
    if request.topics and not offsets:
        return AlterShareGroupOffsetsResponse(responses=responses)
    try:
        await call.groups(request.group_id).shares.set_start(request.group_id, offsets)
    except MillstreamError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=coordinator_error_code(error), error_message=error_message(error)
        )
    return AlterShareGroupOffsetsResponse(responses=responses)


def _check_start(log: PartitionLog, offset: int) -> None:
    if not NO_START_OFFSET <= offset <= log.end_offset:
        raise OffsetOutOfRange(partition=log.name, offset=offset, available=log.available)


def _topic(
    wanted: AlterShareGroupOffsetsRequestTopic, offsets: dict[TopicIdPartition, int], call: Call
) -> AlterShareGroupOffsetsResponseTopic:
    """What to answer; what is there is added to `offsets`."""
    answer = AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
    for one in wanted.partitions:
        told = AlterShareGroupOffsetsResponsePartition(partition_index=one.partition_index)
        answer.partitions.append(told)
        try:
            topic = call.topics.named(wanted.topic_name)
            answer.topic_id = topic.id
            _check_start(topic.partition(one.partition_index).log, one.start_offset)
        except MillstreamError as error:
            told.error_code, told.error_message = error_code(error), error_message(error)
        else:
            offsets[TopicIdPartition(topic.id, one.partition_index)] = one.start_offset
    return answer
