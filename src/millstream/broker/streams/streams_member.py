"""One member of a streams group (KIP-1071): what it told us, and how far it has come.

Values that are replaced, never changed: a call that is refused half-way leaves no trace. The two
halves of a member are the two records that are kept of it. (A thread of an application is a
member; those of one process share its state directory.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from millstream.broker.groups.consumer_member import JOINING_EPOCH, MemberState
from millstream.broker.streams.streams_messages import UserEndpoint
from millstream.broker.streams.task import HeldTasks, TaskId, Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsProfile:
    """What a member told us of itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsProgress:
    """Where a member is on its way to the target assignment.

    It owns what it has, and what it is revoking until it has confirmed that it gave that up.
    """

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    active: HeldTasks = field(default_factory=dict)
    standby: frozenset[TaskId] = frozenset()
    revoking_active: HeldTasks = field(default_factory=dict)
    revoking_standby: frozenset[TaskId] = frozenset()

    @property
    def assigned(self) -> Tasks:
        return Tasks(active=frozenset(self.active), standby=self.standby)

    def owned_active(self) -> Iterator[TaskId]:
        yield from self.active
        yield from self.revoking_active

    def owned_standby(self) -> Iterator[TaskId]:
        yield from self.standby
        yield from self.revoking_standby

    def moved_to(self, epoch: int) -> "StreamsProgress":
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def is_settled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def granted_epoch(self, task: TaskId) -> int | None:
        """Since which epoch it owns the active task, if it does."""
        epoch = self.active.get(task)
        return self.revoking_active.get(task) if epoch is None else epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    member_id: str
    profile: StreamsProfile = StreamsProfile()
    progress: StreamsProgress = field(default_factory=StreamsProgress)

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def process_id(self) -> str:
        return self.profile.process_id
