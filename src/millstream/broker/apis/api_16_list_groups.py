# ListGroups, versions 0-5.
#   Does:     every group, filtered by state and type.

from millstream.broker.coordinated_group import CoordinatedGroup
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC, CONSUMER = "classic", "consumer"


@handles(ApiKey.LIST_GROUPS, versions=range(6))
def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.members.group_id,
                protocol_type=group.members.protocol_type or "",
                group_state=group.members.state.value,
                group_type=_type_of(group),
            )
            for group in call.node.groups
            if (not states or group.members.state.value.lower() in states)
            and (not types or _type_of(group) in types)
        ]
    )


def _type_of(group: CoordinatedGroup) -> str:
    return CONSUMER if isinstance(group.members, ConsumerGroup) else CLASSIC
