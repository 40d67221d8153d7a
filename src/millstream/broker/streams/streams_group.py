"""The streams group of KIP-1071: members heartbeat, the broker hands out the tasks of a topology.

StreamsGroupHeartbeat 0 as Apache Kafka 4.3 answers it. No clock, socket or disk: see
`groups/outcome.py` for what the shell must do; besides, it makes the topics that a reply names.
The book is in `streams_book.py`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from millstream.broker.groups.consumer_member import JOINING_EPOCH, LEAVING_EPOCH, MemberState
from millstream.broker.groups.deadlines import Deadlines, Duty
from millstream.broker.groups.group_messages import (
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
from millstream.broker.groups.group_state import GroupKind, GroupState
from millstream.broker.groups.outcome import AnyReply, Outcome
from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.streams.streams_admission import check_heartbeat, refuse
from millstream.broker.streams.streams_book import StreamsBook
from millstream.broker.streams.streams_facts import StreamsFact, StreamsFactKey
from millstream.broker.streams.streams_member import StreamsMember, StreamsProfile
from millstream.broker.streams.streams_messages import (
    EndpointPartitions,
    Status,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from millstream.broker.streams.task import TaskId, Tasks, numbers_by_subtopology
from millstream.broker.wire.error_codes import ErrorCode

STREAMS_PROTOCOL_TYPE = "streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupLimits:
    """Kafka's defaults."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    # An empty group waits, so that members started together meet in its first assignment.
    initial_rebalance_delay_ms: int = 3_000
    standbys: int = 0


class StreamsGroup:
    """One group. Every call returns what to store and whom to answer, in that order."""

    kind = GroupKind.STREAMS
    protocol_type = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str, *, catalog: TopicCatalog, limits: StreamsGroupLimits) -> None:
        self.group_id = group_id
        self.book = StreamsBook(catalog)
        self.limits = limits
        self._deadlines = Deadlines()
        self._gathers_until_ms: int | None = None  # then the first assignment is made
        self._shut_down_by: str | None = None  # a member that stops the whole application
        self._endpoint_epoch = 0
        self._is_dead = False

    # Calls: what members say, what the shell reports.

    def streams_heartbeat(
        self, request: StreamsHeartbeat, *, reply_to: ReplyTo, now_ms: int
    ) -> Outcome:
        return self._outcome(reply_to, self._hear(request, now_ms))

    def tick(self, now_ms: int) -> Outcome:
        """Who has missed a deadline is out; who has gathered gets tasks."""
        late = [self.book.find(member_id) for member_id in self._deadlines.missed_by(now_ms)]
        self._remove(*(member for member in late if member is not None))
        if self._gathers_until_ms is not None and self._gathers_until_ms <= now_ms:
            self._gathers_until_ms = None
            self._assign_if_due(now_ms)
        return Outcome(facts=self.book.take_facts())

    @property
    def deadline_ms(self) -> int | None:
        """When the next `tick` is due; any call may change it."""
        due = (self._deadlines.first_ms, self._gathers_until_ms)
        return min((ms for ms in due if ms is not None), default=None)

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

    def restore(self, facts: Mapping[StreamsFactKey, StreamsFact], *, now_ms: int) -> None:
        """Become the group that was stored; nobody could heartbeat, so sessions start now."""
        self.book.restore(facts)
        for member in self.book:
            self._renew_session(member, now_ms)
            self._expect_revocation(member, now_ms)

    # What members of the classic protocol say: there are none.

    def join(self, request: JoinRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, JoinReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def sync(self, request: SyncRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, request: HeartbeatRequest, *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        return self._outcome(reply_to, HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def leave(self, leaving: Iterable[LeavingMember], *, reply_to: ReplyTo, now_ms: int) -> Outcome:
        unknown = tuple(LeftMember(*one, ErrorCode.UNKNOWN_MEMBER_ID) for one in leaving)
        return self._outcome(reply_to, LeaveReply(members=unknown))

    # Questions.

    @property
    def state(self) -> GroupState:
        return GroupState.DEAD if self._is_dead else self.book.phase

    @property
    def is_vacant(self) -> bool:
        return len(self.book) == 0

    # Joining and heartbeating.

    def _hear(self, request: StreamsHeartbeat, now_ms: int) -> StreamsHeartbeatReply:
        refusal = check_heartbeat(request)
        if refusal is not None:
            return refusal
        member = self._find_or_refuse(request)
        if isinstance(member, StreamsHeartbeatReply):
            return member
        if request.shuts_down:
            self._shut_down_by = self._shut_down_by or request.member_id
        if request.epoch == LEAVING_EPOCH:
            self._remove(member)
            return StreamsHeartbeatReply(member_id=request.member_id, epoch=LEAVING_EPOCH)
        return self._advance(member, request, now_ms)

    def _find_or_refuse(self, request: StreamsHeartbeat) -> StreamsMember | StreamsHeartbeatReply:
        member = self.book.find(request.member_id)
        is_join = request.epoch == JOINING_EPOCH
        if member is None and not is_join:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id}")
        if member is not None and not _is_timely(request, member):
            message = (
                f"member epoch {request.epoch} is not {member.epoch}; give up all tasks and join "
                "again"
            )
            return refuse(ErrorCode.FENCED_MEMBER_EPOCH, message)
        fault = self._fault_of_topology(request) or self._fault_of_tasks(request)
        if fault is not None:
            return refuse(ErrorCode.INVALID_REQUEST, fault)
        return member or StreamsMember(member_id=request.member_id)

    def _fault_of_topology(self, request: StreamsHeartbeat) -> str | None:
        """One that is older is stale, which is no fault; another cannot be taken, as in Kafka."""
        own, said = self.book.topology, request.topology
        if own is None or said is None or said.epoch < own.epoch or said.is_same_as(own):
            return None
        return (
            f"the topology is not the one that group {self.group_id} has; delete the group, or use "
            "another application.id"
        )

    def _fault_of_tasks(self, request: StreamsHeartbeat) -> str | None:
        resolved = self.book.resolved
        if request.owned is None or not resolved.is_ready or self.book.topology is None:
            return None
        if request.epoch == LEAVING_EPOCH:  # whatever it owned: it gives all of it up
            return None
        for task in (*request.owned.active, *request.owned.standby):
            if not resolved.has_task(task):
                return f"there is no task {task.partition} of subtopology {task.subtopology}"
        return None

    def _advance(
        self, member: StreamsMember, request: StreamsHeartbeat, now_ms: int
    ) -> StreamsHeartbeatReply:
        was_vacant = self.is_vacant
        epoch_before = self.book.epoch
        member = replace(member, profile=_updated(member.profile, request))
        self.book.put(member)
        if self.book.topology is None and request.topology is not None:
            self.book.start_topology(request.topology)
        self.book.follow_standbys(self.limits.standbys)
        delay_ms = self.limits.initial_rebalance_delay_ms
        if was_vacant and self.book.epoch > epoch_before and delay_ms > 0:
            self._gathers_until_ms = self._gathers_until_ms or now_ms + delay_ms
        self._assign_if_due(now_ms)
        updated = self.book.advance(member, request.owned)
        self._renew_session(updated, now_ms)
        if updated.progress != member.progress:
            self._expect_revocation(updated, now_ms)
        return self._reply(member, updated, request)

    def _assign_if_due(self, now_ms: int) -> None:
        if self._gathers_until_ms is None and self.book.epoch > self.book.target_epoch:
            self.book.assign(now_ms=now_ms)

    def _renew_session(self, member: StreamsMember, now_ms: int) -> None:
        due_ms = now_ms + self.limits.session_timeout_ms
        self._deadlines.put(member.member_id, Duty.HEARTBEAT, due_ms)

    def _expect_revocation(self, member: StreamsMember, now_ms: int) -> None:
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            due_ms = now_ms + member.profile.rebalance_timeout_ms
            self._deadlines.put(member.member_id, Duty.REVOKE, due_ms)
        else:
            self._deadlines.clear(member.member_id, Duty.REVOKE)

    # The answer.

    def _reply(
        self, before: StreamsMember, member: StreamsMember, request: StreamsHeartbeat
    ) -> StreamsHeartbeatReply:
        assigned = member.progress.assigned
        has_changed = assigned != before.progress.assigned
        if has_changed and member.profile.endpoint is not None:
            self._endpoint_epoch += 1
        # A member that says what it has, and has something else, has lost an answer.
        is_unaware = request.owned is not None and request.owned != assigned
        must_say = request.epoch == JOINING_EPOCH or has_changed or is_unaware
        knows_endpoints = request.endpoint_epoch == self._endpoint_epoch
        return StreamsHeartbeatReply(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            assigned=assigned if must_say else None,
            statuses=tuple(self._statuses(member)),
            endpoint_epoch=self._endpoint_epoch,
            endpoints=None if knows_endpoints else tuple(self._endpoints()),
            to_create=self.book.resolved.to_create,
        )

    def _statuses(self, member: StreamsMember) -> Iterator[Status]:
        topology = self.book.topology
        if topology is not None and member.profile.topology_epoch < topology.epoch:
            detail = (
                f"the member's topology has epoch {member.profile.topology_epoch}, the group's "
                f"has {topology.epoch}"
            )
            yield Status(code=StatusCode.STALE_TOPOLOGY, detail=detail)
        if self._gathers_until_ms is not None:
            detail = "the first tasks are handed out after streams.initial.rebalance.delay.ms"
            yield Status(code=StatusCode.ASSIGNMENT_DELAYED, detail=detail)
        if self.book.resolved.fault is not None:
            yield self.book.resolved.fault
        if self._shut_down_by is not None:
            detail = f"member {self._shut_down_by} has asked that the whole application stops"
            yield Status(code=StatusCode.SHUTDOWN_APPLICATION, detail=detail)

    def _endpoints(self) -> Iterator[EndpointPartitions]:
        for member in self.book:
            if member.profile.endpoint is not None:
                assigned: Tasks = member.progress.assigned
                yield EndpointPartitions(
                    endpoint=member.profile.endpoint,
                    active=self._partitions(assigned.active),
                    standby=self._partitions(assigned.standby),
                )

    def _partitions(self, tasks: Iterable[TaskId]) -> Mapping[str, list[int]]:
        """What the tasks read, by topic; several subtopologies may read the same."""
        found: dict[str, set[int]] = {}
        own = numbers_by_subtopology(tasks)
        for part in self.book.topology.subtopologies if self.book.topology else ():
            numbers = own.get(part.id, [])
            for name in {*part.read_topics} if numbers else ():
                topic = self.book.catalog.named(name)
                count = topic.partition_count if topic else 0
                found.setdefault(name, set()).update(numbers[: bisect_left(numbers, count)])
        return {name: sorted(numbers) for name, numbers in sorted(found.items()) if numbers}

    # Leaving, by word or by silence.

    def _remove(self, *members: StreamsMember) -> None:
        for member in members:
            self._deadlines.forget(member.member_id)
        self.book.remove(*members)
        if self.is_vacant:
            self._gathers_until_ms = self._shut_down_by = None

    def _outcome(self, reply_to: ReplyTo, reply: AnyReply) -> Outcome:
        return Outcome(replies=((reply_to, reply),), facts=self.book.take_facts())


def _is_timely(request: StreamsHeartbeat, member: StreamsMember) -> bool:
    """The epoch is the member's, or the one before it: then the answer that said so was lost.

    Who joins again has forgotten what it was told, and who leaves need not know it.
    """
    if request.epoch in (JOINING_EPOCH, LEAVING_EPOCH, member.epoch):
        return True
    owned, progress = request.owned, member.progress
    if request.epoch > member.epoch or request.epoch != progress.previous_epoch or owned is None:
        return False
    return owned.active <= progress.active.keys() and owned.standby <= progress.standby


def _updated(profile: StreamsProfile, request: StreamsHeartbeat) -> StreamsProfile:
    """What the request does not say stays as it was."""
    timeout_ms = request.rebalance_timeout_ms
    tags = request.client_tags
    return StreamsProfile(
        rack_id=request.rack_id or profile.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=profile.topology_epoch
        if request.topology is None
        else request.topology.epoch,
        process_id=profile.process_id if request.process_id is None else request.process_id,
        endpoint=request.endpoint or profile.endpoint,
        client_tags=profile.client_tags if tags is None else tags,
    )
