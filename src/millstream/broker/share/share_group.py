"""The share group of KIP-932: members heartbeat, the broker tells them which partitions to read.

ShareGroupHeartbeat 1 as Apache Kafka 4.3 answers it. No clock, socket or disk: see
`share_group_messages.py` for what the shell must do. The book is in `share_group_book.py`; which
records a member gets is none of its business.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from millstream.base.errors import Rejected, Retryable
from millstream.broker.groups.group_state import GroupKind, GroupState
from millstream.broker.groups.said_text import fault_of_length
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.share.share_group_book import ShareGroupBook
from millstream.broker.share.share_group_facts import ShareFact, ShareFactKey
from millstream.broker.share.share_group_messages import (
    ShareGroupOutcome,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from millstream.broker.share.share_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ShareMember,
    ShareMemberProfile,
    new_member,
)
from millstream.broker.wire.error_codes import ErrorCode

SHARE_PROTOCOL_TYPE = "share"


class NoShareGroup(Rejected):
    def __init__(self, *, group_id: str, kind: GroupKind | None = None) -> None:
        what = "there is no such group" if kind is None else f"it is a {kind.value} group"
        super().__init__(f"{group_id} is not a share group: {what}")
        self.group_id, self.kind = group_id, kind


class NotShared(Retryable):
    """It would leave a state that belongs to no group, and that nobody could delete."""

    def __init__(self, *, group_id: str, place: TopicIdPartition) -> None:
        super().__init__(
            f"share group {group_id} does not share partition {place.partition} of topic id "
            f"{place.topic_id.hex()}; join it with a subscription to that topic first"
        )
        self.group_id, self.place = group_id, place


class ShareGroupNotEmpty(Rejected):
    def __init__(self, *, group_id: str, members: int) -> None:
        super().__init__(f"share group {group_id} has {members} members; stop them all first")
        self.group_id, self.members = group_id, members


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupLimits:
    """Kafka's defaults."""

    group_size_max: int = 200  # group.share.max.size
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


class ShareGroup:
    """One group. Every call returns what to store, what to do and what to answer, in this order."""

    kind = GroupKind.SHARE
    protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str, *, catalog: TopicCatalog, limits: ShareGroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.book = ShareGroupBook(catalog)
        self._due_ms: dict[str, int] = {}  # by member id: until then it must heartbeat

    # Calls: what members say, what the shell reports.

    def heartbeat(self, request: ShareHeartbeat, *, now_ms: int) -> ShareGroupOutcome:
        fault = check_heartbeat(request)
        if fault is not None:
            return ShareGroupOutcome(reply=_refuse(ErrorCode.INVALID_REQUEST, fault))
        member = self._find_or_refuse(request)
        if isinstance(member, ShareHeartbeatReply):
            return ShareGroupOutcome(reply=member)
        if request.epoch == LEAVING_EPOCH:
            reply = ShareHeartbeatReply(member_id=request.member_id, epoch=LEAVING_EPOCH)
            return replace(self._remove([member]), reply=reply)
        return self._outcome(lambda: self._advance(member, request, now_ms))

    def tick(self, now_ms: int) -> ShareGroupOutcome:
        """Who has not been heard of for too long is out."""
        late = [member for member in self.book if self._due_ms[member.member_id] <= now_ms]
        return self._remove(late)

    @property
    def deadline_ms(self) -> int | None:
        """When the next `tick` is due; any call may change it."""
        return min(self._due_ms.values(), default=None)

    def topics_changed(self) -> ShareGroupOutcome:
        """Topics came, went or grew; members hear of it with their next heartbeat."""
        return self._outcome(self.book.follow_topics)

    def share(self, partitions: Iterable[TopicIdPartition]) -> ShareGroupOutcome:
        """AlterShareGroupOffsets: it has a state of them now, whoever subscribes or not."""
        self.check_vacant()
        return self._outcome(lambda: self.book.share(partitions))

    def forget_topics(self, topic_ids: Iterable[bytes]) -> ShareGroupOutcome:
        """DeleteShareGroupOffsets, of a group without members."""
        self.check_vacant()
        return self._outcome(lambda: self.book.unshare(topic_ids))

    def check_vacant(self) -> None:
        """DeleteGroups asks, too: then the shell removes the group's facts and its states."""
        if not self.is_vacant:
            raise ShareGroupNotEmpty(group_id=self.group_id, members=len(self.book))

    def restore(self, facts: Mapping[ShareFactKey, ShareFact], *, now_ms: int) -> None:
        """Become the group that was stored; nobody could heartbeat, so sessions start now.

        Then call `topics_changed`: they may have, meanwhile.
        """
        self.book.restore(facts)
        for member in self.book:
            self._renew_session(member, now_ms)

    # Questions.

    @property
    def state(self) -> GroupState:
        return GroupState.EMPTY if self.is_vacant else GroupState.STABLE

    @property
    def is_vacant(self) -> bool:
        return len(self.book) == 0

    # Joining and heartbeating.

    def _find_or_refuse(self, request: ShareHeartbeat) -> ShareMember | ShareHeartbeatReply:
        member = self.book.find(request.member_id)
        is_leaving = request.epoch == LEAVING_EPOCH
        if member is None and not is_leaving and len(self.book) >= self.limits.group_size_max:
            message = f"the group has {len(self.book)} members, which is its limit"
            return _refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        if member is None and request.epoch != JOINING_EPOCH:
            return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id}")
        if member is None:
            return new_member(request.member_id)
        is_joining = request.epoch == JOINING_EPOCH  # again: it has forgotten what it was told
        if not is_leaving and not is_joining and not member.knows(request.epoch):
            message = f"member epoch {request.epoch} is not {member.epoch}; join again"
            return _refuse(ErrorCode.FENCED_MEMBER_EPOCH, message)
        return member

    def _advance(
        self, member: ShareMember, request: ShareHeartbeat, now_ms: int
    ) -> ShareHeartbeatReply:
        updated = self.book.advance(member, _updated(member.profile, request), now_ms=now_ms)
        self._renew_session(updated, now_ms)
        has_changed = updated.progress.assigned != member.progress.assigned
        is_full = request.epoch == JOINING_EPOCH or request.topics is not None
        return ShareHeartbeatReply(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            assigned=updated.progress.assigned if is_full or has_changed else None,
        )

    def _renew_session(self, member: ShareMember, now_ms: int) -> None:
        self._due_ms[member.member_id] = now_ms + self.limits.session_timeout_ms

    def _remove(self, members: Iterable[ShareMember]) -> ShareGroupOutcome:
        members = [*members]
        for member in members:
            self._due_ms.pop(member.member_id, None)
        self.book.remove(*members)
        return ShareGroupOutcome(facts=self.book.take_facts())

    def _outcome(self, step: Callable[[], ShareHeartbeatReply | None]) -> ShareGroupOutcome:
        before: frozenset[TopicIdPartition] = self.book.shared
        reply = step()
        ended = before - self.book.shared
        return ShareGroupOutcome(reply=reply, facts=self.book.take_facts(), ended=ended)


def check_heartbeat(request: ShareHeartbeat) -> str | None:
    """What is wrong with it, whatever the group is like: asked before a group is made for it."""
    if request.member_id == "":
        return "the member id is empty"
    if request.rack_id == "":
        return "the rack id is empty"
    if request.epoch < LEAVING_EPOCH:
        return f"there is no member epoch {request.epoch}"
    if request.epoch == JOINING_EPOCH and not request.topics:
        return "who joins says which topics it subscribes to"
    return fault_of_length("the topics", request.topics or ())


def _refuse(error: ErrorCode, message: str) -> ShareHeartbeatReply:
    return ShareHeartbeatReply(error=error, message=message)


def _updated(profile: ShareMemberProfile, request: ShareHeartbeat) -> ShareMemberProfile:
    """What the request does not say stays as it was."""
    return ShareMemberProfile(
        rack_id=request.rack_id or profile.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=profile.topics if request.topics is None else request.topics,
    )
