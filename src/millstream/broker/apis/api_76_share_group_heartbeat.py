# ShareGroupHeartbeat, version 1.
#   Does:     everything of the share group protocol (KIP-932, share/share_group.py); a join makes
#             the group.
#   Does not: look at racks.

from collections.abc import Iterable

from millstream.base.errors import MillstreamError
from millstream.broker.groups.topic_catalog import TopicIdPartition, numbers_by_topic
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import clipped, coordinator_error_code, error_message
from millstream.broker.share.share_group_messages import ShareHeartbeat, ShareHeartbeatReply
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


@handles(ApiKey.SHARE_GROUP_HEARTBEAT, versions=range(1, 2))
async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    if not request.group_id:
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="the group id is empty"
        )
    shares = call.groups(request.group_id).shares
    try:
        return _response(await shares.heartbeat(request.group_id, _heartbeat(request, call)))
    except MillstreamError as error:
        return ShareGroupHeartbeatResponse(
            error_code=coordinator_error_code(error), error_message=error_message(error)
        )


def _heartbeat(request: ShareGroupHeartbeatRequest, call: Call) -> ShareHeartbeat:
    names = request.subscribed_topic_names
    return ShareHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=call.client_id or "",
        client_host=f"/{call.peer.host}",
        rack_id=request.rack_id,
        topics=None if names is None else frozenset(names),
    )


def _response(reply: ShareHeartbeatReply) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=None if reply.message is None else clipped(reply.message),
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assigned is None else _assignment(reply.assigned),
    )


def _assignment(partitions: Iterable[TopicIdPartition]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in numbers_by_topic(partitions).items()
        ]
    )
