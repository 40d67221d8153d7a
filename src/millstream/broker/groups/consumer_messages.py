"""What a member says to a consumer group (KIP-848), and what the group answers: one call for all.

Values only, as in `group_messages.py`. A field that is None says: as before.
"""

from collections.abc import Set
from dataclasses import dataclass

from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.subscription_patterns import Sees, sees_all
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat: joins with epoch 0, leaves with -1 or, for a while, with -2."""

    member_id: str = NO_MEMBER_ID
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1  # negative: as before
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Set[TopicIdPartition] | None = None
    requires_member_id: bool = True  # version 1+: the client makes its id
    sees: Sees = sees_all  # which topics the member may know of

    @property
    def is_full(self) -> bool:
        """Says everything, as a client does that has lost an answer."""
        says_topics = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    """`assigned` is None where it has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: frozenset[TopicIdPartition] | None = None
