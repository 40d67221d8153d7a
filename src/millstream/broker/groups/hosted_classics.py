"""Members of a consumer group (KIP-848) that still speak the classic protocol.

They join, sync and heartbeat as in a classic group, and each alone: nobody waits for the others,
nobody leads, the broker assigns. A member epoch is their generation. That they must join again
they learn from their heartbeat, as ever; clients that give up everything first (eager) and those
that keep what they may (cooperative) take the same steps (`reconciliation.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from millstream.broker.groups.consumer_member import (
    ClassicProtocols,
    ConsumerMember,
    MemberProfile,
    MemberState,
)
from millstream.broker.groups.consumer_state import ConsumerState
from millstream.broker.groups.consumer_subscription import CONSUMER_PROTOCOL_TYPE
from millstream.broker.groups.deadlines import Deadlines, Duty
from millstream.broker.groups.embedded_protocol import (
    partitions_of,
    read_subscription,
    write_assignment,
)
from millstream.broker.groups.group_messages import (
    NO_MEMBER_ID,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.group_state import GroupLimits
from millstream.broker.groups.reconciliation import is_waiting
from millstream.broker.wire.error_codes import ErrorCode


class HostedClassics:
    """The classic protocol's side of one consumer group; the book belongs to that group."""

    def __init__(
        self,
        book: ConsumerState,
        deadlines: Deadlines,
        *,
        limits: GroupLimits,
        group_size_max: int,
        new_member_id: Callable[[], str],
    ) -> None:
        self._book = book
        self._deadlines = deadlines
        self._limits = limits
        self._group_size_max = group_size_max
        self._new_member_id = new_member_id

    def join(self, request: JoinRequest, now_ms: int) -> JoinReply:
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            return JoinReply(error=error, member_id=request.member_id)
        is_unknown = request.member_id == NO_MEMBER_ID
        if is_unknown and request.instance_id is None and request.requires_known_member_id:
            return JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=self._new_member_id())
        member = self._find_or_make(request)
        subscription = read_subscription(request.protocols[0].metadata)
        assert subscription is not None, "a join that was let in can be read"
        owned = partitions_of(subscription, self._book.catalog)
        topics, rack_id = frozenset(subscription.topics), subscription.rack_id
        profile = _updated(member.profile, request, topics=topics, rack_id=rack_id)
        updated = self._book.advance(member, profile, owned)
        self._expect_sync(updated, now_ms)
        return JoinReply(
            member_id=updated.member_id,
            generation=updated.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )

    def sync(self, request: SyncRequest, now_ms: int) -> SyncReply:
        member, error = self._find(request.member_id, request.instance_id, request.generation)
        if member is None:
            return SyncReply(error=error)
        protocol = _protocols(member).protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            return SyncReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, protocol.name):
            return SyncReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._is_behind(member):
            self._expect_join(member, now_ms)
            return SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.clear(member.member_id, Duty.SYNC)
        self._renew_session(member, now_ms)
        return SyncReply(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocol.name,
            assignment=write_assignment(
                member.progress.assigned, self._book.catalog, subscription=protocol.metadata
            ),
        )

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatReply:
        member, error = self._find(request.member_id, request.instance_id, request.generation)
        if member is None:
            return HeartbeatReply(error=error)
        self._renew_session(member, now_ms)
        if self._must_rejoin(member):
            self._expect_join(member, now_ms)
            return HeartbeatReply(error=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatReply()

    def leave(self, leaving: Iterable[LeavingMember]) -> LeaveReply:
        found = [(who, *self._find_leaving(who)) for who in leaving]
        gone = {member.member_id: member for _, member, _ in found if member is not None}
        for member_id in gone:
            self._deadlines.forget(member_id)
        self._book.remove(*gone.values())
        return LeaveReply(members=tuple(LeftMember(*who, error) for who, _, error in found))

    # Joining.

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        limits, timeout_ms = self._limits, request.session_timeout_ms
        if not limits.session_timeout_ms_min <= timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        is_full = len(self._book) >= self._group_size_max
        if is_full and self._book.find(request.member_id) is None:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._is_consistent(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.instance_id is not None and request.member_id != NO_MEMBER_ID:
            return self._check_static(request.member_id, request.instance_id)
        return ErrorCode.NONE

    def _is_consistent(self, request: JoinRequest) -> bool:
        """All classic members must know one protocol: the group may become theirs again."""
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
            return False
        known = [
            {protocol.name for protocol in _protocols(member).protocols}
            for member in self._book
            if member.is_classic
        ]
        is_shared = any(all(offer.name in names for names in known) for offer in request.protocols)
        return is_shared and read_subscription(request.protocols[0].metadata) is not None

    def _check_static(self, member_id: str, instance_id: str) -> ErrorCode:
        holder = self._book.find_static(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_holder = holder.member_id == member_id
        return ErrorCode.NONE if is_holder else ErrorCode.FENCED_INSTANCE_ID

    def _find_or_make(self, request: JoinRequest) -> ConsumerMember:
        predecessor = self._book.find_static(request.instance_id)
        if predecessor is not None and request.member_id == NO_MEMBER_ID:
            self._deadlines.forget(predecessor.member_id)
            return self._book.succeed(predecessor, self._new_member_id())
        member_id = request.member_id or self._new_member_id()
        return self._book.find(member_id) or ConsumerMember(member_id=member_id)

    # Deadlines.

    def _expect_sync(self, member: ConsumerMember, now_ms: int) -> None:
        member_id = member.member_id
        self._deadlines.clear(member_id, Duty.JOIN)
        self._deadlines.clear(member_id, Duty.REVOKE)
        self._deadlines.put(member_id, Duty.SYNC, now_ms + member.profile.rebalance_timeout_ms)
        self._renew_session(member, now_ms)

    def _expect_join(self, member: ConsumerMember, now_ms: int) -> None:
        due_ms = now_ms + member.profile.rebalance_timeout_ms
        self._deadlines.put_if_absent(member.member_id, Duty.JOIN, due_ms)

    def _renew_session(self, member: ConsumerMember, now_ms: int) -> None:
        due_ms = now_ms + _protocols(member).session_timeout_ms
        self._deadlines.put(member.member_id, Duty.HEARTBEAT, due_ms)

    # Questions.

    def _is_behind(self, member: ConsumerMember) -> bool:
        """The group has gone on. Who is still revoking has rejoined already, and rejoins after."""
        is_revoking = member.progress.state is MemberState.UNREVOKED_PARTITIONS
        return self._book.epoch > member.epoch and not is_revoking

    def _must_rejoin(self, member: ConsumerMember) -> bool:
        if self._book.epoch > member.epoch:
            return True
        if member.progress.state is MemberState.UNRELEASED_PARTITIONS:
            return not is_waiting(member.progress, self._book.target_of(member))
        return member.progress.state is MemberState.UNREVOKED_PARTITIONS

    def _find(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember | None, ErrorCode]:
        """The classic member that may speak for this generation, or why there is none."""
        if instance_id is not None:
            error = self._check_static(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return None, error
        member = self._book.find(member_id)
        if member is None or not member.is_classic:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch != generation:
            return None, ErrorCode.ILLEGAL_GENERATION
        return member, ErrorCode.NONE

    def _find_leaving(self, who: LeavingMember) -> tuple[ConsumerMember | None, ErrorCode]:
        """By member id, or by an operator who knows the instance id alone; of either protocol."""
        if who.instance_id is None:
            member = self._book.find(who.member_id)
            return member, ErrorCode.NONE if member else ErrorCode.UNKNOWN_MEMBER_ID
        member = self._book.find_static(who.instance_id)
        if member is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if who.member_id not in (NO_MEMBER_ID, member.member_id):
            return None, ErrorCode.FENCED_INSTANCE_ID
        return member, ErrorCode.NONE


def _protocols(member: ConsumerMember) -> ClassicProtocols:
    assert member.profile.classic is not None
    return member.profile.classic


def _updated(
    profile: MemberProfile, request: JoinRequest, *, topics: frozenset[str], rack_id: str | None
) -> MemberProfile:
    return replace(
        profile,
        instance_id=request.instance_id or profile.instance_id,
        rack_id=rack_id or profile.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.join_timeout_ms,
        topics=topics,
        pattern=None,
        assignor=None,
        classic=ClassicProtocols(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )
