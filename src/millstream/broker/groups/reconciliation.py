"""One step of a member towards its target assignment, as Kafka's coordinator takes it.

    STABLE ──new target──> UNREVOKED_PARTITIONS ──member gave them up──> UNRELEASED_PARTITIONS
      ^                                                                      │
      └───────────────── the former owners gave theirs up ───────────────────┘

A member moves to the target's epoch only when it has given up what it must, and gets a partition
only when nobody else owns it: so no partition is owned twice.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from millstream.broker.groups.consumer_member import Holdings, MemberProgress, MemberState
from millstream.broker.groups.topic_catalog import TopicIdPartition

Owned = Set[TopicIdPartition] | None  # as the member reports it; None: it did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a member shall have. `is_owned` asks whether anybody has a partition now."""

    epoch: int
    partitions: Set[TopicIdPartition]
    subscribed_ids: Set[bytes]
    is_owned: Callable[[TopicIdPartition], bool]

    @property
    def wanted(self) -> Set[TopicIdPartition]:
        """Without the topics that the member has unsubscribed from since."""
        return {part for part in self.partitions if part.topic_id in self.subscribed_ids}


def reconcile(
    progress: MemberProgress, target: Target, owned: Owned, *, is_subscription_new: bool
) -> MemberProgress:
    """The member's next progress; the same object if there is nothing to do yet."""
    if progress.state is MemberState.STABLE and progress.epoch == target.epoch:
        return _drop_unsubscribed(progress, target, owned) if is_subscription_new else progress
    if progress.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, progress.revoking):
        return _drop_unsubscribed(progress, target, owned) if is_subscription_new else progress
    return _advance(progress, target, owned)


def is_waiting(progress: MemberProgress, target: Target) -> bool:
    """Is a partition of its target still another's?"""
    return any(
        part not in progress.assigned and target.is_owned(part) for part in target.partitions
    )


def _advance(progress: MemberProgress, target: Target, owned: Owned) -> MemberProgress:
    wanted = target.wanted
    kept = {part: epoch for part, epoch in progress.assigned.items() if part in wanted}
    given_up = {part: epoch for part, epoch in progress.assigned.items() if part not in wanted}
    if given_up and _holds(owned, given_up):
        return replace(
            progress,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=given_up,
        )
    missing = wanted - kept.keys()
    # What it was asked to revoke and is to have again is nobody else's: one owner at a time.
    free = {p for p in missing if p in progress.revoking or not target.is_owned(p)}
    is_complete = len(free) == len(missing)
    return replace(
        progress.moved_to(target.epoch),
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | dict.fromkeys(sorted(free), target.epoch),
        revoking={},
    )


def _drop_unsubscribed(progress: MemberProgress, target: Target, owned: Owned) -> MemberProgress:
    """It has unsubscribed from topics: their partitions go at once, before a new target."""
    ids = target.subscribed_ids
    dropped = {p: epoch for p, epoch in progress.assigned.items() if p.topic_id not in ids}
    if not dropped:
        return progress
    kept = {p: epoch for p, epoch in progress.assigned.items() if p.topic_id in ids}
    revoking = {**progress.revoking, **dropped}
    if not _holds(owned, revoking):
        return replace(progress, assigned=kept)
    return replace(
        progress, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
    )


def _holds(owned: Owned, partitions: Holdings) -> bool:
    """Has it any of these, for all we know?"""
    return owned is None or any(part in partitions for part in owned)
