# OffsetDelete, version 0.
#   Does:     removes committed offsets of topics that no member of the group reads.

from millstream.base.errors import MillstreamError
from millstream.broker.access.permit import TopicDenied
from millstream.broker.coordinated_group import CoordinatedGroup
from millstream.broker.groups.group_offsets import TopicPartition
from millstream.broker.groups.offset_rules import check_offset_delete, check_topic_offset_delete
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(ApiKey.OFFSET_DELETE, versions=range(1))
async def offset_delete(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    error = check_offset_delete(group.members)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    codes = {topic.name: _check_topic(topic.name, group, call) for topic in request.topics}
    deletable = [
        (group, TopicPartition(topic.name, partition.partition_index))
        for topic in request.topics
        if codes[topic.name] is ErrorCode.NONE
        for partition in topic.partitions
    ]
    try:
        await groups.delete_offsets(deletable)
    except MillstreamError as failure:
        return OffsetDeleteResponse(error_code=coordinator_error_code(failure))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=codes[topic.name]
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check_topic(name: str, group: CoordinatedGroup, call: Call) -> ErrorCode:
    try:
        call.topics.check(name)
    except TopicDenied as error:
        return error_code(error)
    return check_topic_offset_delete(group.members, name)
