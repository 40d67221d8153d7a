# JoinGroup, versions 0-9.
#   Does:     everything of the classic protocol (groups/classic_group.py), also for members of a
#             consumer group (groups/hosted_classics.py).

from millstream.broker.groups.group_messages import (
    NO_MEMBER_ID,
    GroupProtocol,
    JoinReply,
    JoinRequest,
    Reply,
)
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

# Of a client or an instance: a member id is made of it, and must fit into an answer. As Kafka's.
NAME_LENGTH_MAX = 249


@handles(
    ApiKey.JOIN_GROUP,
    versions=range(10),
    refuse=lambda request, code: _refuse(request, code),
)
def join_group(request: JoinGroupRequest, call: Call) -> JoinGroupResponse | Later:
    groups = call.groups(request.group_id)
    if not request.group_id:
        return _refuse(request, ErrorCode.INVALID_GROUP_ID)
    if len(request.group_instance_id or "") > NAME_LENGTH_MAX:
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    if request.group_id in groups.shares:
        return JoinGroupResponse(
            error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, generation_id=-1, protocol_name=""
        )
    if request.member_id != NO_MEMBER_ID and groups.find(request.group_id) is None:
        return _refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    group = groups.find_for_join(request.group_id)
    later = Later()

    def reply_to(reply: Reply) -> None:
        assert isinstance(reply, JoinReply)
        later.resolve(_response(reply, call))

    outcome = group.members.join(_join(request, call), reply_to=reply_to, now_ms=groups.now_ms())
    groups.run(group, outcome)
    return later


def _join(request: JoinGroupRequest, call: Call) -> JoinRequest:
    return JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=(call.client_id or "")[:NAME_LENGTH_MAX],
        client_host=f"/{call.peer.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(
            GroupProtocol(protocol.name, protocol.metadata) for protocol in request.protocols
        ),
        requires_known_member_id=call.version >= 4,
        supports_skip_assignment=call.version >= 9,
    )


def _response(reply: JoinReply, call: Call) -> JoinGroupResponse:
    # Before version 7 the name could not be null.
    protocol_name = reply.protocol_name if call.version >= 7 else reply.protocol_name or ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )


def _refuse(request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, generation_id=-1, member_id=request.member_id, protocol_name=""
    )
