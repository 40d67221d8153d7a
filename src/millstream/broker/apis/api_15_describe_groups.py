# DescribeGroups, versions 0-6.
#   Does:     state, protocol and members of classic groups; of others it knows nothing.

from millstream.broker.access.permit import GroupDenied
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.group_state import GroupState
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.security.acls import ResourceType
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@handles(ApiKey.DESCRIBE_GROUPS, versions=range(7))
def describe_groups(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    groups = [_describe(name, call) for name in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            group.authorized_operations = operations_on_group(group.group_id, call)
    return DescribeGroupsResponse(groups=groups)


def operations_on_group(group_id: str, call: Call) -> int:
    return call.permit.operations_on(ResourceType.GROUP, group_id)


def _describe(group_id: str, call: Call) -> DescribedGroup:
    try:
        groups = call.groups(group_id)
        found, kind = groups.find(group_id), groups.kind_of(group_id)
    except GroupDenied as error:
        return DescribedGroup(
            group_id=group_id, error_code=error_code(error), error_message=error_message(error)
        )
    if found is None or not isinstance(found.members, ClassicGroup):
        # Up to version 5 an unknown group is a dead one.
        is_error = call.version >= 6
        reason = "there is no such group" if kind is None else f"it is a {kind.value} group"
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
