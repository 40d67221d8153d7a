# Heartbeat, versions 0-4.
#   Does:     keeps a member's session alive, and tells it of a rebalance.

from millstream.broker.groups.group_messages import HeartbeatRequest as Heartbeat
from millstream.broker.groups.group_messages import Reply
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(ApiKey.HEARTBEAT, versions=range(5))
def heartbeat(request: HeartbeatRequest, call: Call) -> HeartbeatResponse | Later:
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    if group is None:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    later = Later()

    def reply_to(reply: Reply) -> None:
        later.resolve(HeartbeatResponse(error_code=reply.error))

    beat = Heartbeat(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    groups.run(group, group.members.heartbeat(beat, reply_to=reply_to, now_ms=groups.now_ms()))
    return later
