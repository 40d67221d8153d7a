"""What of a classic group outlives the broker: the value of its record in the offsets topic.

A picture at one moment, made by `ClassicGroup.metadata()` and turned back by
`ClassicGroup.restore()`. Here are no bytes: the record's layout belongs to the wire.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member, with its subscription for the group's protocol only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """One group; without members it is EMPTY since `state_timestamp_ms`."""

    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...] = ()
