# FindCoordinator, versions 0-6.
#   Does:     names this node as the coordinator of every group and transactional id.
#   Does not: share groups yet (docs/not_supported.md).

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1


@handles(ApiKey.FIND_COORDINATOR, versions=range(7))
def find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    if call.version >= 4:
        found = [_coordinator(key, request.key_type, call) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(request.key, request.key_type, call)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(key: str, key_type: int, call: Call) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return Coordinator(
            key=key,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="this broker coordinates consumer groups and transactions only",
            node_id=-1,
            port=-1,
        )
    return Coordinator(
        key=key,
        node_id=call.node.config.node_id,
        host=call.peer.local_host,
        port=call.peer.local_port,
    )
