# SyncGroup, versions 0-5.
#   Does:     takes the leader's assignment, stores it, and gives each member its part.

from millstream.broker.groups.group_messages import Reply, SyncReply, SyncRequest
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(ApiKey.SYNC_GROUP, versions=range(6))
def sync_group(request: SyncGroupRequest, call: Call) -> SyncGroupResponse | Later:
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    if request.group_id in groups.shares:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group is None:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    later = Later()

    def reply_to(reply: Reply) -> None:
        assert isinstance(reply, SyncReply)
        later.resolve(
            SyncGroupResponse(
                error_code=reply.error,
                protocol_type=reply.protocol_type,
                protocol_name=reply.protocol_name,
                assignment=reply.assignment,
            )
        )

    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((part.member_id, part.assignment) for part in request.assignments),
    )
    groups.run(group, group.members.sync(sync, reply_to=reply_to, now_ms=groups.now_ms()))
    return later
