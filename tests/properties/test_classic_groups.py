"""Random members, a slow disk and restarts against one classic group; promises that must hold.

The machine plays the clients (who know only what they were told), the clock, and the shell with
its disk: metadata is synced later, fails, or is lost in a restart, while calls go on.
"""

from collections import deque
from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_messages import ConsumerHeartbeatReply
from millstream.broker.groups.group_messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    GroupProtocol,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    Reply,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.group_state import GroupLimits, GroupState
from millstream.broker.groups.outcome import Outbox, Outcome, Replies
from millstream.broker.streams.streams_messages import StreamsHeartbeatReply
from millstream.broker.wire.error_codes import ErrorCode

LIMITS = GroupLimits(
    group_size_max=4,
    session_timeout_ms_min=1,
    initial_rebalance_delay_ms=50,
    new_member_join_timeout_ms=3_000,
)
TIMEOUT_MS_MAX = 1_000
# A new member may wait 3 s, then a join phase, a sync phase and a session may each run out, and
# once more for those that had only then rejoined.
SILENCE_MS_MAX = 3_000 + 6 * TIMEOUT_MS_MAX

PROTOCOLS = st.sampled_from(
    [
        (GroupProtocol("range", b"x"),),
        (GroupProtocol("range", b"y"),),
        (GroupProtocol("sticky", b"x"), GroupProtocol("range", b"x")),
        (GroupProtocol("range", b"x"), GroupProtocol("sticky", b"x")),
    ]
)
TIMEOUTS_MS = st.sampled_from([0, 100, TIMEOUT_MS_MAX])
SESSIONS_MS = st.sampled_from([100, TIMEOUT_MS_MAX])
PICKS = st.integers(min_value=0, max_value=9)


@dataclass
class Client:
    """What a client remembers: only what reached it."""

    instance_id: str | None
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    members: tuple[str, ...] = ()  # whom to assign, if it leads


def share_of(generation: int, member_id: str) -> bytes:
    return f"{generation}:{member_id}".encode()


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.tokens = count(1)
        self.suffixes = count(1)
        self.clients = [Client(None), Client(None), Client(None), Client("pod-1"), Client("pod-2")]
        # A second process with the same instance id: each fences the other.
        self.clients.append(Client("pod-2"))
        self.durable: GroupMetadata | None = None
        self.group = self.new_group()
        self.start_incarnation()

    def new_group(self) -> ClassicGroup:
        def new_suffix() -> str:
            return str(next(self.suffixes))

        return ClassicGroup("g", limits=LIMITS, new_suffix=new_suffix, now_ms=self.now_ms)

    def start_incarnation(self) -> None:
        self.outbox = Outbox()
        self.unsynced: deque[GroupMetadata] = deque()
        self.open: dict[int, tuple[Client, object]] = {}  # token -> who asked, and what
        self.decided: set[int] = set()  # answered by the group, on their way or delivered
        self.assigners: dict[int, str] = {}  # generation -> who was told to assign
        self.generation_seen: dict[str, int] = {}  # member id -> the latest it was told
        self.generation_before = self.group.generation
        self.appended = self.durable  # the group as the log has it, on disk or on its way there
        self.is_appended = True  # ... if no write failed since

    # The shell.

    def ask(self, client: Client, request: object) -> int:
        token = next(self.tokens)
        self.open[token] = (client, request)
        return token

    def take(self, outcome: Outcome) -> None:
        for token, _ in outcome.replies:
            assert isinstance(token, int)
            assert token not in self.decided, "answered twice"
            self.decided.add(token)
        if outcome.metadata is not None:
            self.unsynced.append(outcome.metadata)
            self.appended, self.is_appended = outcome.metadata, True
        self.deliver(self.outbox.push(outcome))

    def deliver(self, replies: Replies) -> None:
        for token, reply in replies:
            assert isinstance(token, int)
            assert not isinstance(reply, ConsumerHeartbeatReply | StreamsHeartbeatReply)
            client, request = self.open.pop(token)
            self.hear(client, request, reply)

    # The clients.

    def hear(self, client: Client, request: object, reply: Reply) -> None:
        match request, reply:
            case JoinRequest(), JoinReply(error=ErrorCode.NONE):
                self.hear_of_generation(client, reply)
            case JoinRequest(), JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = reply.member_id
            case SyncRequest(), SyncReply(error=ErrorCode.NONE):
                self.hear_of_assignment(request, reply)
            case _ if reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id, client.generation = NO_MEMBER_ID, NO_GENERATION

    def hear_of_generation(self, client: Client, reply: JoinReply) -> None:
        seen = self.generation_seen.get(reply.member_id, 0)
        assert reply.generation >= seen, "an older generation after a newer one"
        self.generation_seen[reply.member_id] = reply.generation
        if reply.members and not reply.skip_assignment:
            assert reply.leader == reply.member_id
            leader = self.assigners.setdefault(reply.generation, reply.member_id)
            assert leader == reply.member_id, "two leaders of one generation"
        client.member_id, client.generation = reply.member_id, reply.generation
        client.members = tuple(member.instance_id or member.member_id for member in reply.members)

    def hear_of_assignment(self, request: SyncRequest, reply: SyncReply) -> None:
        assert self.generation_seen.get(request.member_id, 0) <= request.generation
        assert self.durable is not None, "told before it was on disk"
        assert self.durable.generation >= request.generation, "told before it was on disk"
        name = request.instance_id or request.member_id
        assert reply.assignment == share_of(request.generation, name)

    def assignments_of(self, client: Client) -> tuple[tuple[str, bytes], ...]:
        shares = {m.instance_id or m.member_id: m.member_id for m in self.group.roster}
        return tuple(
            (shares[name], share_of(client.generation, name))
            for name in client.members
            if name in shares
        )

    # Rules.

    @rule(
        pick=PICKS,
        protocols=PROTOCOLS,
        session_ms=SESSIONS_MS,
        rebalance_ms=TIMEOUTS_MS,
        is_new_client=st.booleans(),
    )
    def join(
        self,
        pick: int,
        protocols: tuple[GroupProtocol, ...],
        session_ms: int,
        rebalance_ms: int,
        is_new_client: bool,
    ) -> None:
        client = self.clients[pick % len(self.clients)]
        request = JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="c",
            client_host="h",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type="consumer",
            protocols=protocols,
            requires_known_member_id=is_new_client,
            supports_skip_assignment=is_new_client,
        )
        token = self.ask(client, request)
        self.take(self.group.join(request, reply_to=token, now_ms=self.now_ms))

    @rule(pick=PICKS)
    def forget_member_id(self, pick: int) -> None:
        """The client's process restarts."""
        client = self.clients[pick % len(self.clients)]
        client.member_id, client.generation = NO_MEMBER_ID, NO_GENERATION

    @rule(pick=PICKS)
    def sync(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        request = SyncRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
            assignments=self.assignments_of(client),
        )
        token = self.ask(client, request)
        self.take(self.group.sync(request, reply_to=token, now_ms=self.now_ms))

    @rule(picks=st.lists(PICKS, min_size=1, max_size=4), protocols=PROTOCOLS)
    def settle(self, picks: list[int], protocols: tuple[GroupProtocol, ...]) -> None:
        """Clients that behave: join until it works, sync, and let the disk follow."""
        for _ in range(3):
            for pick in picks:
                self.join(pick, protocols, TIMEOUT_MS_MAX, TIMEOUT_MS_MAX, True)
            self.wait(LIMITS.initial_rebalance_delay_ms, False)
        self.sync_all(picks)
        while self.unsynced:
            self.disk_syncs()

    @rule(picks=st.lists(PICKS, min_size=2, max_size=6))
    def sync_all(self, picks: list[int]) -> None:
        for pick in picks:
            self.sync(pick)

    @rule()
    def heartbeat_all(self) -> None:
        for pick in range(len(self.clients)):
            self.heartbeat(pick)

    @rule(pick=PICKS)
    def heartbeat(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        request = HeartbeatRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
        )
        token = self.ask(client, request)
        self.take(self.group.heartbeat(request, reply_to=token, now_ms=self.now_ms))

    @rule(picks=st.lists(PICKS, min_size=1, max_size=3), by_instance=st.booleans())
    def leave(self, picks: list[int], by_instance: bool) -> None:
        clients = [self.clients[pick % len(self.clients)] for pick in picks]
        leaving = [
            LeavingMember(
                NO_MEMBER_ID if by_instance and client.instance_id else client.member_id,
                client.instance_id,
            )
            for client in clients
        ]
        token = self.ask(clients[0], leaving)
        self.take(self.group.leave(leaving, reply_to=token, now_ms=self.now_ms))

    @rule(duration_ms=st.sampled_from([1, 50, 99, 100, 300, 1_000]), is_late=st.booleans())
    def wait(self, duration_ms: int, is_late: bool) -> None:
        end_ms = self.now_ms + duration_ms
        while not is_late and (due_ms := self.group.deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms
        self.take(self.group.tick(self.now_ms))
        due_ms = self.group.deadline_ms
        assert due_ms is None or due_ms > self.now_ms, "a tick leaves nothing that is due"

    @precondition(lambda self: self.unsynced)
    @rule()
    def disk_syncs(self) -> None:
        self.durable = self.unsynced.popleft()
        self.deliver(self.outbox.persisted())

    @precondition(lambda self: self.unsynced)
    @rule()
    def disk_fails(self) -> None:
        self.unsynced.popleft()
        self.is_appended = False
        self.deliver(self.outbox.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.take(self.group.persist_failed(now_ms=self.now_ms))

    @rule(survivors=st.integers(min_value=0, max_value=3))
    def restart(self, survivors: int) -> None:
        """Connections break, so open questions stay open; unsynced metadata may survive."""
        for metadata in list(self.unsynced)[:survivors]:
            self.durable = metadata
        self.group = self.new_group()
        if self.durable is not None:
            self.group.restore(self.durable, now_ms=self.now_ms)
        self.start_incarnation()

    @precondition(lambda self: self.group.state is GroupState.EMPTY and not self.unsynced)
    @rule()
    def delete(self) -> None:
        assert self.group.delete() is ErrorCode.NONE
        assert self.group.deadline_ms is None
        self.durable = None
        self.group = self.new_group()
        self.start_incarnation()

    # Promises.

    @invariant()
    def the_generation_never_decreases(self) -> None:
        assert self.group.generation >= self.generation_before
        self.generation_before = self.group.generation

    @invariant()
    def one_member_leads(self) -> None:
        roster = self.group.roster
        assert (roster.leader is None) == (len(roster) == 0)
        assert roster.leader is None or roster.leader in roster

    @invariant()
    def no_two_members_share_an_instance_id(self) -> None:
        instances = [m.instance_id for m in self.group.roster if m.instance_id is not None]
        assert len(instances) == len(set(instances))

    @invariant()
    def a_group_within_its_limit_stays_there(self) -> None:
        if self.group.state is not GroupState.PREPARING_REBALANCE:
            assert len(self.group.roster) <= LIMITS.group_size_max

    @invariant()
    def an_empty_group_has_no_members_and_a_running_one_has(self) -> None:
        if self.group.state is not GroupState.PREPARING_REBALANCE:
            assert (self.group.state is GroupState.EMPTY) == (len(self.group.roster) == 0)

    @invariant()
    def no_question_is_forgotten(self) -> None:
        owed = {m.join_reply_to for m in self.group.roster}
        owed |= {m.sync_reply_to for m in self.group.roster}
        assert {token for token in self.open if token not in self.decided} == owed - {None}

    @invariant()
    def members_wait_only_where_an_answer_is_coming(self) -> None:
        for member in self.group.roster:
            if member.join_reply_to is not None:
                assert self.group.state is GroupState.PREPARING_REBALANCE
            if member.sync_reply_to is not None:
                assert self.group.state is GroupState.COMPLETING_REBALANCE

    @invariant()
    def a_stable_group_has_its_leaders_assignment(self) -> None:
        if self.group.state is GroupState.STABLE:
            for member in self.group.roster:
                name = member.instance_id or member.member_id
                assert member.assignment == share_of(self.group.generation, name)

    @invariant()
    def a_group_at_rest_is_in_the_log(self) -> None:
        is_at_rest = self.group.state in (GroupState.EMPTY, GroupState.STABLE)
        if is_at_rest and self.is_appended and self.group.generation > 0:
            assert self.appended == self.group.metadata()

    def teardown(self) -> None:
        """When nobody speaks any more, all are answered, and all members vanish."""
        end_ms = self.now_ms + SILENCE_MS_MAX
        while (due_ms := self.group.deadline_ms) is not None:
            assert due_ms <= end_ms
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(self.now_ms))
        assert self.group.state is GroupState.EMPTY
        while self.unsynced:
            self.disk_syncs()
        assert not self.open


TestClassicGroups = ClassicGroupMachine.TestCase
TestClassicGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
