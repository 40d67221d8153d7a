# LeaveGroup, versions 0-5.
#   Does:     removes one member (0-2) or several (3+), by member id or instance id.

from millstream.broker.groups.group_messages import LeaveReply, LeavingMember, Reply
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)


@handles(ApiKey.LEAVE_GROUP, versions=range(6))
def leave_group(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse | Later:
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id) for member in request.members
    ]
    if call.version < 3:
        leaving = [LeavingMember(request.member_id)]
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    if group is None:
        return _unknown_group(leaving, call)
    later = Later()

    def reply_to(reply: Reply) -> None:
        assert isinstance(reply, LeaveReply)
        later.resolve(_response(reply, call))

    groups.run(group, group.members.leave(leaving, reply_to=reply_to, now_ms=groups.now_ms()))
    return later


def _response(reply: LeaveReply, call: Call) -> LeaveGroupResponse:
    if call.version < 3:
        error = reply.error or next((member.error for member in reply.members), ErrorCode.NONE)
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=reply.error,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                error_code=member.error,
            )
            for member in reply.members
        ],
    )


def _unknown_group(leaving: list[LeavingMember], call: Call) -> LeaveGroupResponse:
    if call.version < 3:
        return LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=who.member_id,
                group_instance_id=who.instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for who in leaving
        ]
    )
