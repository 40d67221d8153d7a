# DescribeGroups, versions 0-6.
#   Does:     state, protocol and members of classic groups; of others it knows nothing.
#   Does not: authorised operations (always "unknown").

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.group_state import GroupState
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@handles(ApiKey.DESCRIBE_GROUPS, versions=range(7))
def describe_groups(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_describe(name, call) for name in request.groups])


def _describe(group_id: str, call: Call) -> DescribedGroup:
    found = call.node.groups.find(group_id)
    if found is None or not isinstance(found.members, ClassicGroup):
        # Up to version 5 an unknown group is a dead one.
        is_error = call.version >= 6
        reason = "there is no such group" if found is None else "it is a consumer group"
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            error_message=reason if is_error else None,
        )
    group = found.members
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.roster
        ],
    )
