"""What a ConsumerGroupHeartbeat must say to be looked at, whatever the group is like.

Asked before a group is made or converted for it: what is refused here leaves no trace.
"""

from collections.abc import Collection

from millstream.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
)
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.said_text import fault_of_length
from millstream.broker.groups.subscription_patterns import is_valid
from millstream.broker.wire.error_codes import ErrorCode


def check_heartbeat(
    request: ConsumerHeartbeat, assignors: Collection[str]
) -> ConsumerHeartbeatReply | None:
    """The refusal, if there is one."""
    fault = _find_fault(request)
    if fault is not None:
        return refuse(ErrorCode.INVALID_REQUEST, fault)
    if request.assignor is not None and request.assignor not in assignors:
        names = ", ".join(sorted(assignors))
        message = f"assignor {request.assignor!r} is not known; there are: {names}"
        return refuse(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    if request.pattern and not is_valid(request.pattern):
        message = f"{request.pattern!r} is not a regular expression that RE2 knows"
        return refuse(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    return None


def refuse(error: ErrorCode, message: str) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error=error, message=message)


def _find_fault(request: ConsumerHeartbeat) -> str | None:
    epoch = request.epoch
    needs_id = request.requires_member_id or epoch > 0 or epoch == LEAVING_EPOCH
    if needs_id and request.member_id == NO_MEMBER_ID:
        return "the member id is empty"
    if request.instance_id == "":
        return "the instance id is empty"
    if request.rack_id == "":
        return "the rack id is empty"
    if epoch < LEAVING_STATIC_EPOCH:
        return f"there is no member epoch {epoch}"
    if epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        return "a member without an instance id cannot leave for a while"
    if request.topics is not None and (fault := fault_of_length("the topics", request.topics)):
        return fault
    return _find_fault_of_join(request) if epoch == JOINING_EPOCH else None


def _find_fault_of_join(request: ConsumerHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "a join needs a rebalance timeout"
    if request.owned is None or len(request.owned) > 0:
        return "who joins owns nothing, and says so"
    if request.topics is None and request.pattern is None:
        return "a join needs topics or a pattern"
    return None
