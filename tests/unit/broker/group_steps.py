"""What members and operators of a group ask, in short words."""

import struct
from dataclasses import dataclass

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.heartbeat import HeartbeatRequest
from millstream.broker.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from millstream.broker.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.served_node import ServedNode

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
JOIN_AT_ONCE = 3  # the last version in which a new member need not come twice (KIP-394)


def subscription(*topics: str) -> bytes:
    """What a consumer's assignor writes: version 0, topics, no user data."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join_request(
    member_id: str = "",
    *,
    group: str = GROUP,
    instance_id: str | None = None,
    session_timeout_ms: int = SESSION_MS,
    topics: tuple[str, ...] = ("orders",),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))],
    )


def sync_request(
    member_id: str, generation: int, *, group: str = GROUP, **assignments: bytes
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=part)
            for part in assignments.values()
        ],
    )


@dataclass(frozen=True)
class Joined:
    """The only member of a stable group."""

    member_id: str
    generation: int


def join_alone(served: ServedNode, *, group: str = GROUP) -> Joined:
    """Join and sync: the group is stable when this returns."""
    joined: JoinGroupResponse = served.ask(join_request(group=group), JOIN_AT_ONCE)
    assert joined.error_code == ErrorCode.NONE
    me = Joined(joined.member_id, joined.generation_id)
    request = sync_request(me.member_id, me.generation, group=group, all=b"everything")
    assert served.ask(request).error_code == ErrorCode.NONE
    return me


def heartbeat(served: ServedNode, me: Joined, *, group: str = GROUP) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=me.generation, member_id=me.member_id)
    code: int = served.ask(request).error_code
    return code


def leave(served: ServedNode, me: Joined, *, group: str = GROUP) -> None:
    who = MemberIdentity(member_id=me.member_id)
    answer = served.ask(LeaveGroupRequest(group_id=group, members=[who]))
    assert answer.members[0].error_code == ErrorCode.NONE


def commit_request(
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    group: str = GROUP,
    member: Joined | None = None,
    metadata: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    place = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation if member else -1,
        member_id=member.member_id if member else "",
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )


def commit(served: ServedNode, offset: int, *, version: int = 9, **more: object) -> int:
    """The error code of one committed offset."""
    answer = served.ask(commit_request(offset, **more), version)  # type: ignore[arg-type] # passed on
    code: int = answer.topics[0].partitions[0].error_code
    return code


def committed(
    served: ServedNode, *, topic: str = "orders", partition: int = 0, group: str = GROUP
) -> int:
    """The committed offset, -1 if there is none."""
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
    answer = served.ask(OffsetFetchRequest(group_id=group, topics=[wanted]), 7)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset
