# ListGroups, versions 0-5.
#   Does:     every group, filtered by state and type.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


@handles(ApiKey.LIST_GROUPS, versions=range(6))
def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.kind.value,
            )
            for group in call.visible_groups()
            if (not states or group.state.value.lower() in states)
            and (not types or group.kind.value in types)
        ]
    )
