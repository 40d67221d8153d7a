# ConsumerGroupHeartbeat, versions 0-1.
#   Does:     everything of the consumer group protocol (KIP-848, groups/consumer_group.py); a
#             join makes a consumer group of a classic one.
#   Does not: look at racks.

from collections.abc import Iterable

from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.outcome import AnyReply
from millstream.broker.groups.topic_catalog import TopicIdPartition, numbers_by_topic
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.kafka_errors import clipped
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CLIENT_MAKES_ID = 1  # the first version in which it must


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=range(2))
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse | Later:
    if not request.group_id:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="the group id is empty"
        )
    later = Later()

    def reply_to(reply: AnyReply) -> None:
        assert isinstance(reply, ConsumerHeartbeatReply)
        later.resolve(_response(reply))

    groups = call.groups(request.group_id)
    groups.consumer_heartbeat(request.group_id, _heartbeat(request, call), reply_to)
    return later


def _heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=call.client_id or "",
        client_host=f"/{call.peer.host}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else {TopicIdPartition(one.topic_id, n) for one in owned for n in one.partitions},
        requires_member_id=call.version >= CLIENT_MAKES_ID,
        sees=call.permit.topics.shows,
    )


def _response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
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
