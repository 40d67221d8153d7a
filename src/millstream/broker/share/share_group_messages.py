"""What a member says to a share group, what the group answers, and what the shell does then.

Values only. A field of a heartbeat that is None says: as before.
"""

from dataclasses import dataclass

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_group_facts import ShareFacts
from millstream.broker.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat: joins with epoch 0, leaves with -1. The client makes its member id."""

    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatReply:
    """`assigned` is None where it has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: frozenset[TopicIdPartition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOutcome:
    """First store `facts`, then reply.

    `ended` are partitions that the group will not come back to: what it has done there is
    forgotten. The share sessions of members that leave go on.
    """

    reply: ShareHeartbeatReply | None = None
    facts: ShareFacts = ()
    ended: frozenset[TopicIdPartition] = frozenset()

    @property
    def must_persist(self) -> bool:
        return bool(self.facts)
