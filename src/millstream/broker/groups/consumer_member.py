"""One member of a consumer group (KIP-848): what it told us, and how far it has come.

Values that are replaced, never changed: a call that is refused half-way leaves no trace. The two
halves of a member are the two records that are kept of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from millstream.broker.groups.group_messages import GroupProtocol
from millstream.broker.groups.topic_catalog import TopicIdPartition

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# A static member goes away for a moment: its partitions wait for it until its session ends.
LEAVING_STATIC_EPOCH = -2

# Each partition with the epoch in which the member got it (KIP-1251).
Holdings = Mapping[TopicIdPartition, int]


class MemberState(IntEnum):
    """Kafka's numbers: they are stored."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocols:
    """Of a member that speaks JoinGroup and SyncGroup: what it offered with its join."""

    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProfile:
    """What a member told us of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    pattern: str | None = None  # an empty one matches nothing
    assignor: str | None = None
    classic: ClassicProtocols | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """Where a member is on its way to the target assignment.

    It owns `assigned`, and `revoking` until it has confirmed that it gave them up.
    """

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Holdings = field(default_factory=dict)
    revoking: Holdings = field(default_factory=dict)

    def moved_to(self, epoch: int) -> "MemberProgress":
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def is_settled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def granted_epoch(self, partition: TopicIdPartition) -> int | None:
        """Since which epoch it owns the partition, if it does."""
        epoch = self.assigned.get(partition)
        return self.revoking.get(partition) if epoch is None else epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    profile: MemberProfile = MemberProfile()
    progress: MemberProgress = field(default_factory=MemberProgress)

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def instance_id(self) -> str | None:
        return self.profile.instance_id

    @property
    def is_classic(self) -> bool:
        return self.profile.is_classic
