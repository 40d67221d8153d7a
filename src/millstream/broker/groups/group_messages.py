"""What a member says to a classic group, and what the group answers.

Values only, without the wire's versions: the API handlers translate them, and turn a version into
what it means (`requires_known_member_id`). An error is an answer here, never an exception.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from millstream.broker.wire.error_codes import ErrorCode

# Where an answer goes: any hashable but None. The group keeps it and never looks into it.
ReplyTo = Hashable

NO_GENERATION = -1
NO_MEMBER_ID = ""


class GroupProtocol(NamedTuple):
    """An assignor that a member knows, and the member's subscription as that assignor reads it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """JoinGroup: `member_id` is empty for a member that has none yet."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # negative (version 0 has none): the session timeout
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    requires_known_member_id: bool = True  # version 4+, KIP-394
    supports_skip_assignment: bool = True  # version 9+, KIP-814

    @property
    def join_timeout_ms(self) -> int:
        if self.rebalance_timeout_ms < 0:
            return self.session_timeout_ms
        return self.rebalance_timeout_ms


class JoinedMember(NamedTuple):
    """One line of the list from which the leader makes the assignment."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()  # for the leader only


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """SyncGroup: `assignments` by member id, from the leader only."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None  # version 5+, where given they must match
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    member_id: str
    instance_id: str | None = None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    error: ErrorCode = ErrorCode.NONE


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or (an operator removes a static member) by instance id alone."""

    member_id: str
    instance_id: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """`members` answers one by one, in the order of the request; `error` is for all of them."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


Reply = JoinReply | SyncReply | HeartbeatReply | LeaveReply
