"""One member of a share group: what it told us, and what it was given to read.

Values that are replaced, never changed. The two halves of a member are the two records that are
kept of it. There is nothing to revoke: partitions are shared, so a member has its target at once.
"""

from dataclasses import dataclass

from millstream.broker.groups.topic_catalog import TopicIdPartition

JOINING_EPOCH = 0
LEAVING_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberProfile:
    """What a member told us of itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberProgress:
    """Up to which epoch a member knows its assignment."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    assigned: frozenset[TopicIdPartition] = frozenset()

    def moved_to(self, epoch: int, assigned: frozenset[TopicIdPartition]) -> "ShareMemberProgress":
        if epoch == self.epoch:
            return self
        return ShareMemberProgress(epoch=epoch, previous_epoch=self.epoch, assigned=assigned)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    member_id: str
    profile: ShareMemberProfile
    progress: ShareMemberProgress

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    def knows(self, epoch: int) -> bool:
        """The epoch is the member's, or the one before: then the answer that said so was lost."""
        return epoch in (self.progress.epoch, self.progress.previous_epoch)


def new_member(member_id: str) -> ShareMember:
    return ShareMember(
        member_id=member_id, profile=ShareMemberProfile(), progress=ShareMemberProgress()
    )
