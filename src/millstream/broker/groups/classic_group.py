"""The classic consumer group: members join, their leader assigns, all sync, all heartbeat.

    EMPTY ──join──> PREPARING_REBALANCE ──all joined, or time is up──> COMPLETING_REBALANCE
      ^                │     ^                                                │
      └── nobody left ─┘     └── a member comes, goes or changes ── STABLE <──┘ leader's sync

JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5 as Apache Kafka 4 answers them, with
static members (KIP-345). No clock, socket or disk: see `outcome.py` for what the shell must do.
Committed offsets are beside it, in `group_offsets.py` and `classic_offset_rules.py`.
"""

from collections.abc import Callable, Iterable, Mapping

from millstream.broker.groups import admission
from millstream.broker.groups.answers import Answers
from millstream.broker.groups.group_messages import (
    NO_MEMBER_ID,
    GroupProtocol,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    LeftMember,
    ReplyTo,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.group_state import GroupKind, GroupLimits, GroupState
from millstream.broker.groups.join_phase import JoinPhase
from millstream.broker.groups.member import Member
from millstream.broker.groups.outcome import Outcome, Replies
from millstream.broker.groups.roster import Roster
from millstream.broker.wire.error_codes import ErrorCode


class ClassicGroup:
    """One group. Every call returns what to store and whom to answer, in that order.

    A token given as `reply_to` is answered once: by this call or by a later one, at the latest
    by a `tick` after the rebalance timeout. `new_suffix` makes the unique end of a member id.
    """

    kind = GroupKind.CLASSIC

    def __init__(
        self, group_id: str, *, limits: GroupLimits, new_suffix: Callable[[], str], now_ms: int
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self._limits = limits
        self._new_suffix = new_suffix
        self._answers = Answers()
        self._must_persist = False
        self._join_phase: JoinPhase | None = None  # in PREPARING_REBALANCE, and only there
        self._sync_end_ms = 0  # counts while a member must sync

    # Calls: what members say, what the shell reports.

    def join(self, request: JoinRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        error = self._check_join(request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._turn_away(request, now_ms)
            self._answers.give(reply_to, JoinReply(error=error))
        elif error is not ErrorCode.NONE:
            self._answers.give(reply_to, JoinReply(error=error, member_id=request.member_id))
        elif request.member_id == NO_MEMBER_ID:
            self._join_unknown(request, reply_to, now_ms)
        elif request.member_id in self.roster.pending:
            self._add(request, request.member_id, reply_to, now_ms)
        else:
            self._join_known(request, reply_to, now_ms)
        return self._outcome()

    def sync(self, request: SyncRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        error = self._check_sync(request)
        if error is not ErrorCode.NONE:
            self._answers.give(reply_to, SyncReply(error=error))
            return self._outcome()
        member = self.roster[request.member_id]
        member.must_sync = False
        self._answers.owe_sync(member, reply_to)
        if self.state is GroupState.STABLE:
            self._answers.give_sync(member, self._sync_reply(member), now_ms=now_ms)
        elif member.member_id == self.roster.leader:
            self._assign(dict(request.assignments), now_ms)
        return self._outcome()

    def heartbeat(self, request: HeartbeatRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is ErrorCode.NONE:
            self.renew_session(request.member_id, now_ms=now_ms)
            if self.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._answers.give(reply_to, HeartbeatReply(error=error))
        return self._outcome()

    def leave(self, leaving: Iterable[LeavingMember], *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        if self.state is GroupState.DEAD:
            reply = LeaveReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            size_before = len(self.roster)
            reply = LeaveReply(members=tuple(self._let_go(who) for who in leaving))
            if len(self.roster) < size_before:
                self._rebalance(now_ms)
            self._complete_join_if_all_joined(now_ms)
        self._answers.give(reply_to, reply)
        return self._outcome()

    def tick(self, now_ms: int) -> Outcome:
        """Do everything that was due by `now_ms`, in the order in which it was due."""
        while (due_ms := self.deadline_ms) is not None and due_ms <= now_ms:
            self._expire(due_ms, now_ms)
        return self._outcome()

    @property
    def deadline_ms(self) -> int | None:
        """When the next `tick` is due; any call may change it."""
        deadlines = [member.expires_ms for member in self.roster if member.can_expire]
        deadlines += self.roster.pending.values()
        if self._join_phase is not None:
            deadlines.append(self._join_phase.deadline_ms)
        if any(member.must_sync for member in self.roster):
            deadlines.append(self._sync_end_ms)
        return min(deadlines, default=None)

    def persist_failed(self, *, now_ms: int) -> Outcome:
        """The metadata of an outcome is lost: what it assigned must be assigned anew."""
        if self.state is GroupState.STABLE:
            self._prepare_rebalance(now_ms)
        return self._outcome()

    def dissolve(self) -> Replies:
        """The group goes on as another kind: who waits here must ask again there."""
        for member in self.roster:
            self._answers.dismiss(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.roster = Roster()
        self.state = GroupState.DEAD
        self._join_phase = None
        return self._answers.take()

    def adopt(
        self,
        metadata: GroupMetadata,
        protocols: Mapping[str, tuple[GroupProtocol, ...]],
        *,
        now_ms: int,
    ) -> Outcome:
        """Go on with the members of another kind of group, with all that each can do."""
        self.restore(metadata, now_ms=now_ms)
        for member in self.roster:
            member.protocols = protocols[member.member_id]
        self._must_persist = True
        self._prepare_rebalance(now_ms)
        return self._outcome()

    def delete(self) -> ErrorCode:
        """DeleteGroups: on NONE the group is DEAD, and the shell stores its tombstone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self.roster = Roster()
        self.state = GroupState.DEAD
        return ErrorCode.NONE

    def renew_session(self, member_id: str, *, now_ms: int) -> None:
        self.roster[member_id].renew_session(now_ms)

    # Questions, and the way to disk and back.

    @property
    def is_vacant(self) -> bool:
        """Nobody is in it, nobody is about to come."""
        return self.state is GroupState.EMPTY and not self.roster.pending

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """May this member speak for this generation?"""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.check(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.roster.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(member.metadata(self.protocol_name) for member in self.roster),
        )

    def restore(self, metadata: GroupMetadata, *, now_ms: int) -> None:
        """Become the group that was stored; nobody could heartbeat, so sessions start now."""
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type
        self.protocol_name = metadata.protocol_name
        self.roster = Roster.from_metadata(metadata, now_ms=now_ms)
        self.state = GroupState.STABLE if metadata.members else GroupState.EMPTY
        self.state_timestamp_ms = metadata.state_timestamp_ms
        if len(self.roster) > self._limits.group_size_max:
            self._prepare_rebalance(now_ms)  # the limit was lowered: the last to rejoin must go

    # Joining.

    def _check_join(self, request: JoinRequest) -> ErrorCode:
        return admission.check_join(
            request,
            roster=self.roster,
            state=self.state,
            protocol_type=self.protocol_type,
            limits=self._limits,
        )

    def _turn_away(self, request: JoinRequest, now_ms: int) -> None:
        self.roster.pending.pop(request.member_id, None)
        if self.roster.check(request.member_id, request.instance_id) is ErrorCode.NONE:
            self._remove(self.roster[request.member_id])
        self._complete_join_if_all_joined(now_ms)

    def _join_unknown(self, request: JoinRequest, reply_to: ReplyTo, now_ms: int) -> None:
        member_id = f"{request.instance_id or request.client_id}-{self._new_suffix()}"
        predecessor = self.roster.find_static(request.instance_id)
        if predecessor is not None:
            self._succeed(predecessor, request, member_id, reply_to, now_ms)
        elif request.instance_id is None and request.requires_known_member_id:
            self.roster.pending[member_id] = now_ms + request.session_timeout_ms
            error = ErrorCode.MEMBER_ID_REQUIRED
            self._answers.give(reply_to, JoinReply(error=error, member_id=member_id))
        else:
            self._add(request, member_id, reply_to, now_ms)

    def _add(self, request: JoinRequest, member_id: str, reply_to: ReplyTo, now_ms: int) -> None:
        if len(self.roster) == 0:
            self.protocol_type = request.protocol_type
        expires_ms = now_ms + self._limits.new_member_join_timeout_ms
        member = Member.from_join(request, member_id=member_id, expires_ms=expires_ms)
        self.roster.add(member)
        self._answers.owe_join(member, reply_to)
        if self._join_phase is not None:
            self._join_phase.has_newcomers = True
        self._rebalance(now_ms)

    def _succeed(
        self, member: Member, request: JoinRequest, member_id: str, reply_to: ReplyTo, now_ms: int
    ) -> None:
        """A static member is back under a new id; whoever still holds the old one is fenced."""
        leader_before = self.roster.leader
        self._answers.dismiss(member, ErrorCode.FENCED_INSTANCE_ID)
        self.roster.rename(member, member_id)
        member.update(request)
        member.is_new = member.must_sync = False
        member.renew_session(now_ms)
        self._answers.owe_join(member, reply_to)
        # Only the protocol counts: what an assignor writes into it differs after every restart.
        is_same_protocol = self.roster.elect_protocol() == self.protocol_name
        if self.state is GroupState.STABLE and is_same_protocol:
            # An older client must not assign now: its own id is not the leader that it is told.
            can_skip = request.supports_skip_assignment
            leader = self.roster.leader if can_skip else leader_before
            skips = can_skip and member_id == leader
            reply = self._join_reply(member, leader=leader, skip_assignment=skips)
            self._answers.give_join(member, reply)
            self._must_persist = True
        else:
            self._rebalance(now_ms)

    def _join_known(self, request: JoinRequest, reply_to: ReplyTo, now_ms: int) -> None:
        member = self.roster[request.member_id]
        self._answers.owe_join(member, reply_to)
        if self._must_rebalance_for(member) or member.protocols != request.protocols:
            member.update(request)
            self._rebalance(now_ms)
        else:
            reply = self._join_reply(member, leader=self.roster.leader)
            self._answers.give_join(member, reply)

    def _must_rebalance_for(self, member: Member) -> bool:
        """A leader that joins again has seen something that its members do not say: partitions."""
        if self.state is GroupState.STABLE:
            return member.member_id == self.roster.leader
        return self.state is GroupState.PREPARING_REBALANCE

    def _join_reply(
        self, member: Member, *, leader: str | None, skip_assignment: bool = False
    ) -> JoinReply:
        is_leader = member.member_id == leader
        return JoinReply(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or NO_MEMBER_ID,
            skip_assignment=skip_assignment,
            members=self.roster.joined(self.protocol_name) if is_leader else (),
        )

    # Rebalancing.

    def _rebalance(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        for member in self.roster:
            member.must_sync = False
            refusal = SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS)
            self._answers.give_sync(member, refusal, now_ms=now_ms)
        timeout_ms = self.roster.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            delay_ms = self._limits.initial_rebalance_delay_ms
            phase = JoinPhase.initial(now_ms=now_ms, delay_ms=delay_ms, timeout_ms=timeout_ms)
        else:
            phase = JoinPhase.regular(now_ms=now_ms, timeout_ms=timeout_ms)
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        self._join_phase = phase
        self._complete_join_if_all_joined(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        phase = self._join_phase
        if phase is not None and not phase.must_wait and self.roster.have_all_joined:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Who has not rejoined is out, unless it is static: then only its session can end it."""
        for member in self.roster:
            if not member.is_joining and not member.is_static:
                self._remove(member)
        if len(self.roster) > 0 and not self.roster.elect_leader():
            # At least 1 ms ahead, so that a timeout of 0 does not make this tick endless.
            timeout_ms = max(self.roster.rebalance_timeout_ms, 1)
            self._join_phase = JoinPhase.regular(now_ms=now_ms, timeout_ms=timeout_ms)
        else:
            self._start_generation(now_ms)

    def _start_generation(self, now_ms: int) -> None:
        self.generation += 1
        self._join_phase = None
        if len(self.roster) == 0:
            self.protocol_name = None
            self._must_persist = True
            self._enter(GroupState.EMPTY, now_ms)
            return
        self.protocol_name = self.roster.elect_protocol()
        self._sync_end_ms = now_ms + self.roster.rebalance_timeout_ms
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in self.roster:
            member.start_generation(now_ms)
            self._answers.give_join(member, self._join_reply(member, leader=self.roster.leader))

    # Syncing.

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        self._must_persist = True
        self._enter(GroupState.STABLE, now_ms)
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            self._answers.give_sync(member, self._sync_reply(member), now_ms=now_ms)

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # Leaving, by word or by silence.

    def _let_go(self, who: LeavingMember) -> LeftMember:
        if who.instance_id is None and self.roster.pending.pop(who.member_id, None) is not None:
            return LeftMember(*who, ErrorCode.NONE)
        member_id = who.member_id
        static = self.roster.find_static(who.instance_id)
        if member_id == NO_MEMBER_ID and static is not None:
            member_id = static.member_id
        error = self.roster.check(member_id, who.instance_id)
        if error is ErrorCode.NONE:
            self._remove(self.roster[member_id])
        return LeftMember(*who, error)

    def _expire(self, due_ms: int, now_ms: int) -> None:
        """Whatever is due at `due_ms`; several things may be."""
        self.roster.drop_pending(due_ms)
        is_sync_over = self._sync_end_ms <= due_ms
        silent = [
            member
            for member in self.roster
            if (member.can_expire and member.expires_ms <= due_ms)
            or (member.must_sync and is_sync_over)
        ]
        for member in silent:
            self._remove(member)
        if silent:
            self._rebalance(now_ms)
        self._complete_join_if_all_joined(now_ms)
        phase = self._join_phase
        if phase is not None and phase.deadline_ms <= due_ms and not phase.extend():
            self._complete_join(now_ms)

    def _remove(self, member: Member) -> None:
        self._answers.dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member)

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = now_ms

    def _outcome(self) -> Outcome:
        metadata = self.metadata() if self._must_persist else None
        self._must_persist = False
        return Outcome(replies=self._answers.take(), metadata=metadata)
