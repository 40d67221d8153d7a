# DeleteShareGroupOffsets, version 0.
#   Does:     lets a share group without members forget where it was in whole topics. Durable when
#             answered.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code, error_message
from millstream.broker.share.share_group import ShareGroup
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=range(1))
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, call: Call
) -> DeleteShareGroupOffsetsResponse:
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    shares = call.groups(request.group_id).shares
    try:
        group = shares.named(request.group_id)
        group.check_vacant()
        responses = [_topic(topic.topic_name, group, call) for topic in request.topics]
        topic_ids = [one.topic_id for one in responses if one.error_code == ErrorCode.NONE]
        if topic_ids:
            await shares.forget_topics(request.group_id, topic_ids)
    except MillstreamError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=coordinator_error_code(error), error_message=error_message(error)
        )
    return DeleteShareGroupOffsetsResponse(responses=responses)


def _topic(name: str, group: ShareGroup, call: Call) -> DeleteShareGroupOffsetsResponseTopic:
    answer = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
    try:
        topic = call.topics.named(name)
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
        return answer
    if any(part.topic_id == topic.id for part in group.book.shared):
        answer.topic_id = topic.id
    else:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.error_message = "the group has no offsets of this topic"
    return answer
