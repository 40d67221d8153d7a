# FindCoordinator, versions 0-6.
#   Does:     names this node as the coordinator of every group and transactional id, and of every
#             share partition (which only brokers ask for).

import re

from millstream.broker.access.permit import AccessDenied
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+")  # group, topic id in base 64, partition


@handles(
    ApiKey.FIND_COORDINATOR,
    versions=range(7),
    refuse=lambda request, code: _refused(request, code),
)
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
    if key_type not in (GROUP, TRANSACTION, SHARE):
        reason = "this broker coordinates groups and transactions only"
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, reason)
    if key_type == SHARE and not SHARE_KEY.fullmatch(key):
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "not GROUP:TOPIC ID:PARTITION")
    try:
        _check_access(key, key_type, call)
    except AccessDenied as error:
        return _no_coordinator(key, error_code(error), error_message(error))
    return Coordinator(
        key=key,
        node_id=call.node.config.node_id,
        host=call.peer.local_host,
        port=call.peer.local_port,
    )


def _check_access(key: str, key_type: int, call: Call) -> None:
    if key_type == GROUP:
        call.groups(key)
    elif key_type == TRANSACTION:
        call.transactions(key)


def _no_coordinator(key: str, code: ErrorCode, reason: str | None = None) -> Coordinator:
    return Coordinator(key=key, error_code=code, error_message=reason, node_id=-1, port=-1)


def _refused(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        node_id=-1,
        port=-1,
        coordinators=[_no_coordinator(key, code) for key in request.coordinator_keys],
    )
