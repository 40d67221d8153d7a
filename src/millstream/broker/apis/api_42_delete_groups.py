# DeleteGroups, versions 0-2.
#   Does:     removes groups of every kind without members, with their offsets; durable when
#             answered.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handles(ApiKey.DELETE_GROUPS, versions=range(3))
async def delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=await _delete(name, call))
            for name in request.groups_names
        ]
    )


async def _delete(group_id: str, call: Call) -> int:
    try:
        groups = call.groups(group_id)
        group = groups.find(group_id)
        if group is not None:
            return await groups.delete(group)
        await groups.shares.delete(group_id)
        return ErrorCode.NONE
    except MillstreamError as failure:
        return coordinator_error_code(failure)
