"""Who may join a classic group, by its state, its limits and the protocols of those inside.

Questions only: nothing here changes a group.
"""

from millstream.broker.groups.group_messages import NO_MEMBER_ID, JoinRequest
from millstream.broker.groups.group_state import GroupLimits, GroupState
from millstream.broker.groups.member import Member
from millstream.broker.groups.roster import Roster
from millstream.broker.wire.error_codes import ErrorCode


def check_join(
    request: JoinRequest,
    *,
    roster: Roster,
    state: GroupState,
    protocol_type: str | None,
    limits: GroupLimits,
) -> ErrorCode:
    timeout_ms = request.session_timeout_ms
    if state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not limits.session_timeout_ms_min <= timeout_ms <= limits.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not _has_room(request, roster, state, limits.group_size_max):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _is_consistent(request, roster, state, protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == NO_MEMBER_ID:
        return ErrorCode.NONE
    if request.member_id in roster.pending and request.instance_id is None:
        return ErrorCode.NONE
    return roster.check(request.member_id, request.instance_id)


def _has_room(request: JoinRequest, roster: Roster, state: GroupState, group_size_max: int) -> bool:
    """Members keep their place, also under a new id if they are static.

    While all rejoin, only those count that will be in the next generation, so that a limit that
    was lowered shuts somebody out. (Kafka does not count static members that are away, and so
    exceeds the limit by them.)
    """
    known = _find(request, roster)
    if state is not GroupState.PREPARING_REBALANCE:
        return known is not None or len(roster) < group_size_max
    if known is not None and known.is_joining:
        return True
    staying = [m for m in roster if m is not known and (m.is_joining or m.is_static)]
    return len(staying) < group_size_max


def _find(request: JoinRequest, roster: Roster) -> Member | None:
    if request.member_id in roster:
        return roster[request.member_id]
    return roster.find_static(request.instance_id)


def _is_consistent(
    request: JoinRequest, roster: Roster, state: GroupState, protocol_type: str | None
) -> bool:
    if state is GroupState.EMPTY:
        return bool(request.protocol_type and request.protocols)
    return request.protocol_type == protocol_type and roster.has_common(request.protocols)
