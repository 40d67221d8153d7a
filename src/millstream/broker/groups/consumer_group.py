"""The consumer group of KIP-848: members heartbeat, the broker assigns, each moves at its pace.

ConsumerGroupHeartbeat 0-1 as Apache Kafka 4.3 answers it, with static members. Members that speak
the classic protocol are served beside them (`hosted_classics.py`). No clock, socket or disk: see
`outcome.py` for what the shell must do. The book is in `consumer_state.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from millstream.broker.groups.consumer_admission import check_heartbeat, refuse
from millstream.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    MemberProfile,
    MemberState,
)
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.consumer_state import ASSIGNORS, ConsumerState
from millstream.broker.groups.consumer_subscription import CONSUMER_PROTOCOL_TYPE
from millstream.broker.groups.deadlines import Deadlines, Duty
from millstream.broker.groups.group_messages import (
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    ReplyTo,
    SyncRequest,
)
from millstream.broker.groups.group_state import (
    ConsumerGroupLimits,
    GroupKind,
    GroupLimits,
    GroupState,
)
from millstream.broker.groups.hosted_classics import HostedClassics
from millstream.broker.groups.outcome import AnyReply, Outcome
from millstream.broker.groups.stored_facts import Fact, FactKey
from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.wire.error_codes import ErrorCode


class ConsumerGroup:
    """One group. Every call returns what to store and whom to answer, in that order.

    Each call is answered by itself, at once. `new_member_id` makes a unique one.
    """

    kind = GroupKind.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(
        self,
        group_id: str,
        *,
        catalog: TopicCatalog,
        limits: ConsumerGroupLimits,
        classic_limits: GroupLimits,
        new_member_id: Callable[[], str],
    ) -> None:
        self.group_id = group_id
        self.book = ConsumerState(catalog)
        self.limits = limits
        self._deadlines = Deadlines()
        self._new_member_id = new_member_id
        self._is_dead = False
        self._hosted = HostedClassics(
            self.book,
            self._deadlines,
            limits=classic_limits,
            group_size_max=limits.group_size_max,
            new_member_id=new_member_id,
        )

    # Calls: what members say, what the shell reports.

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, *, reply_to: ReplyTo, now_ms: int
    ) -> Outcome:
        return self._outcome(reply_to, self._hear(request, now_ms))

    def join(self, request: JoinRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, self._hosted.join(request, now_ms))

    def sync(self, request: SyncRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, self._hosted.sync(request, now_ms))

    def heartbeat(self, request: HeartbeatRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, self._hosted.heartbeat(request, now_ms))

    def leave(self, leaving: Iterable[LeavingMember], *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, self._hosted.leave(leaving))

    def tick(self, now_ms: int) -> Outcome:
        """Who has missed a deadline is out."""
        late = [self.book.find(member_id) for member_id in self._deadlines.missed_by(now_ms)]
        self._remove(*(member for member in late if member is not None))
        return Outcome(facts=self.book.take_facts())

    @property
    def deadline_ms(self) -> int | None:
        """When the next `tick` is due; any call may change it."""
        return self._deadlines.first_ms

    def topic_changed(self, name: str) -> Outcome:
        """The topic came, went or grew; members hear of it with their next heartbeat."""
        self.book.follow_topic(name)
        return Outcome(facts=self.book.take_facts())

    def persist_failed(self, *, now_ms: int) -> Outcome:
        """What was decided still holds: the shell stores it before it answers anybody again."""
        return Outcome()

    def delete(self) -> ErrorCode:
        """DeleteGroups: on NONE the group is DEAD, and the shell stores its tombstones."""
        if self._is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if len(self.book) > 0:
            return ErrorCode.NON_EMPTY_GROUP
        self._is_dead = True
        return ErrorCode.NONE

    def restore(self, facts: Mapping[FactKey, Fact], *, now_ms: int) -> None:
        """Become the group that was stored; nobody could heartbeat, so sessions start now."""
        self.book.restore(facts)
        self.start_deadlines(now_ms)

    def start_deadlines(self, now_ms: int) -> None:
        for member in self.book:
            self._renew_session(member, now_ms)
            if member.progress.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                self._expect_revocation(member, now_ms)

    # Questions.

    @property
    def state(self) -> GroupState:
        return GroupState.DEAD if self._is_dead else self.book.phase

    @property
    def is_vacant(self) -> bool:
        return len(self.book) == 0

    @property
    def must_become_classic(self) -> bool:
        """The last member that speaks the new protocol has gone, and others are left."""
        return len(self.book) > 0 and all(member.is_classic for member in self.book)

    # Joining and heartbeating.

    def _hear(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        refusal = check_heartbeat(request, ASSIGNORS)
        if refusal is not None:
            return refusal
        if request.epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
            return self._hear_leave(request)
        is_joining = request.epoch == JOINING_EPOCH
        is_full = len(self.book) >= self.limits.group_size_max
        if is_joining and is_full and self.book.find(request.member_id) is None:
            message = f"the group has {len(self.book)} members, which is its limit"
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        found = self._find_or_refuse(request)
        if isinstance(found, ConsumerHeartbeatReply):
            return found
        return self._advance(found, request, now_ms)

    def _find_or_refuse(
        self, request: ConsumerHeartbeat
    ) -> ConsumerMember | ConsumerHeartbeatReply:
        if request.instance_id is not None and request.epoch == JOINING_EPOCH:
            return self._find_joining_static(request)
        known = self._find_known(request)
        if known is None:
            return ConsumerMember(member_id=request.member_id or self._new_member_id())
        if isinstance(known, ConsumerMember) and not _is_timely(request, known):
            message = (
                f"member epoch {request.epoch} is not {known.epoch}; give up all partitions "
                "and join again"
            )
            return refuse(ErrorCode.FENCED_MEMBER_EPOCH, message)
        return known

    def _find_known(
        self, request: ConsumerHeartbeat
    ) -> ConsumerMember | ConsumerHeartbeatReply | None:
        """None: a member that is new, and may be."""
        if request.instance_id is not None:
            return self._find_static(request)
        member = self.book.find(request.member_id)
        if member is None and request.epoch != JOINING_EPOCH:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id}")
        return member

    def _find_static(self, request: ConsumerHeartbeat) -> ConsumerMember | ConsumerHeartbeatReply:
        holder = self.book.find_static(request.instance_id)
        if holder is None:
            message = f"instance id {request.instance_id} is not known"
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if holder.member_id != request.member_id:
            message = f"instance id {request.instance_id} belongs to {holder.member_id} now"
            return refuse(ErrorCode.FENCED_INSTANCE_ID, message)
        return holder

    def _find_joining_static(
        self, request: ConsumerHeartbeat
    ) -> ConsumerMember | ConsumerHeartbeatReply:
        """It takes over from a predecessor that said it was leaving, or spoke the old protocol."""
        holder = self.book.find_static(request.instance_id)
        member_id = request.member_id or self._new_member_id()
        if holder is None:
            return ConsumerMember(member_id=member_id)
        if not holder.is_classic and holder.epoch != LEAVING_STATIC_EPOCH:
            message = f"instance id {request.instance_id} is still held by {holder.member_id}"
            return refuse(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        self._deadlines.forget(holder.member_id)
        return self.book.succeed(holder, member_id)

    def _advance(
        self, member: ConsumerMember, request: ConsumerHeartbeat, now_ms: int
    ) -> ConsumerHeartbeatReply:
        profile = _updated(member.profile, request)
        updated = self.book.advance(member, profile, request.owned, request.sees)
        self._renew_session(updated, now_ms)
        if updated.progress != member.progress:
            self._expect_revocation(updated, now_ms)
        has_changed = updated.progress.assigned.keys() != member.progress.assigned.keys()
        must_say = request.epoch == JOINING_EPOCH or request.is_full or has_changed
        return ConsumerHeartbeatReply(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            assigned=frozenset(updated.progress.assigned) if must_say else None,
        )

    def _renew_session(self, member: ConsumerMember, now_ms: int) -> None:
        classic = member.profile.classic
        timeout_ms = classic.session_timeout_ms if classic else self.limits.session_timeout_ms
        self._deadlines.put(member.member_id, Duty.HEARTBEAT, now_ms + timeout_ms)

    def _expect_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            due_ms = now_ms + member.profile.rebalance_timeout_ms
            self._deadlines.put(member.member_id, Duty.REVOKE, due_ms)
        else:
            self._deadlines.clear(member.member_id, Duty.REVOKE)

    # Leaving, by word or by silence.

    def _hear_leave(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        member = self._find_known(request)
        if isinstance(member, ConsumerHeartbeatReply):
            return member
        assert member is not None, "only a join makes a member"
        if request.epoch == LEAVING_STATIC_EPOCH:
            self.book.park(member, LEAVING_STATIC_EPOCH)
            self._deadlines.clear(member.member_id, Duty.REVOKE)
        else:
            self._remove(member)
        return ConsumerHeartbeatReply(member_id=request.member_id, epoch=request.epoch)

    def _remove(self, *members: ConsumerMember) -> None:
        for member in members:
            self._deadlines.forget(member.member_id)
        self.book.remove(*members)

    def _outcome(self, reply_to: ReplyTo, reply: AnyReply) -> Outcome:
        return Outcome(replies=((reply_to, reply),), facts=self.book.take_facts())


def _is_timely(request: ConsumerHeartbeat, member: ConsumerMember) -> bool:
    """The epoch is the member's, or the one before it: then the answer that said so was lost."""
    if request.epoch == member.epoch:
        return True
    is_previous = request.epoch < member.epoch and request.epoch == member.progress.previous_epoch
    owned = request.owned
    return is_previous and owned is not None and owned <= member.progress.assigned.keys()


def _updated(profile: MemberProfile, request: ConsumerHeartbeat) -> MemberProfile:
    """What the request does not say stays as it was."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        profile,
        instance_id=request.instance_id or profile.instance_id,
        rack_id=request.rack_id or profile.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=profile.topics if request.topics is None else request.topics,
        pattern=profile.pattern if request.pattern is None else request.pattern,
        assignor=request.assignor or profile.assignor,
        classic=None,
    )
