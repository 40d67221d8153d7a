"""Random members of both protocols, a slow disk, lost answers and restarts against one group.

The machine plays the clients (group_clients.py), the clock, and the shell with its disk: what a
call changes is synced later, fails, or is lost in a restart, while calls go on. The group turns
from one kind into the other whenever its members ask for it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.consumer_records import read_fact
from millstream.broker.groups.conversion import (
    AnyGroup,
    to_classic_group,
    to_consumer_group,
    vacated,
)
from millstream.broker.groups.group_messages import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from millstream.broker.groups.group_records import changes_of, read_group_value, read_key
from millstream.broker.groups.group_state import ConsumerGroupLimits, GroupLimits, GroupState
from millstream.broker.groups.outcome import AnyFact, AnyFactKey, AnyReply, Outbox, Outcome, Replies
from millstream.broker.groups.stored_facts import Fact, FactKey
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog
from millstream.broker.wire.error_codes import ErrorCode
from tests.properties.group_clients import (
    SESSION_MS,
    TOPIC,
    TOPIC_ID,
    AnyClient,
    ClassicClient,
    NewClient,
    Request,
)

LIMITS = GroupLimits(session_timeout_ms_min=1, initial_rebalance_delay_ms=50)
CONSUMER_LIMITS = ConsumerGroupLimits(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=100)
PICKS = st.integers(min_value=0, max_value=9)
# Of an answer. Most are heard.
FATES = st.sampled_from(["heard", "heard", "heard", "lost", "delayed"])
PARTITIONS_MAX = 12

Stored = list[tuple[bytes, bytes | None]]


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(new=st.integers(1, 3), classic=st.integers(0, 3), is_eager=st.booleans())
    def start(self, new: int, classic: int, is_eager: bool) -> None:
        """Classic members that meet in one group have one assignor in common."""
        self.clients: list[AnyClient] = [NewClient(f"new{n}") for n in range(new)]
        self.clients += [ClassicClient(f"old{n}", is_eager) for n in range(classic)]

    def __init__(self) -> None:
        super().__init__()
        self.clients = []
        self.now_ms = 0
        self.tokens = count(1)
        self.ids = count(1)
        self.catalog = TopicCatalog([CataloguedTopic(TOPIC, TOPIC_ID, 4)])
        self.durable: dict[bytes, bytes] = {}
        self.is_disk_full = False
        self.group: AnyGroup = self.new_classic()
        self.start_incarnation()

    def new_classic(self) -> ClassicGroup:
        return ClassicGroup("g", limits=LIMITS, new_suffix=self.new_id, now_ms=self.now_ms)

    def new_consumer(self) -> ConsumerGroup:
        return ConsumerGroup(
            "g",
            catalog=self.catalog,
            limits=CONSUMER_LIMITS,
            classic_limits=LIMITS,
            new_member_id=self.new_id,
        )

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    def start_incarnation(self) -> None:
        self.outbox = Outbox()
        self.unsynced: deque[Stored | None] = deque()  # None: could not be appended
        self.unstored: dict[AnyFactKey, AnyFact | None] = {}
        self.open: dict[int, tuple[AnyClient, Request]] = {}
        for client in self.clients:
            if client.waits:
                client.waits = False
                client.lose()

    # The shell.

    def take(self, outcome: Outcome) -> None:
        if self.unstored:
            facts, self.unstored = {**self.unstored, **dict(outcome.facts)}, {}
            outcome = replace(outcome, facts=tuple(facts.items()))
        replies = self.outbox.push(outcome)
        if outcome.must_persist:
            self.append(outcome)
        self.deliver(replies)
        self.fail_refused()
        if isinstance(self.group, ConsumerGroup) and self.group.must_become_classic:
            self.become_classic(self.group)

    def append(self, outcome: Outcome) -> None:
        if self.is_disk_full:
            self.unstored |= dict(outcome.facts)
            self.unsynced.append(None)
        else:
            self.unsynced.append(changes_of("g", outcome, now_ms=self.now_ms))

    def fail_refused(self) -> None:
        while self.unsynced and self.unsynced[0] is None:
            self.unsynced.popleft()
            self.deliver(self.outbox.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            outcome = self.group.persist_failed(now_ms=self.now_ms)
            if outcome != Outcome():
                self.take(outcome)

    def become_classic(self, old: ConsumerGroup) -> None:
        new = self.new_classic()
        self.group = new
        self.take(to_classic_group(old, new, now_ms=self.now_ms))

    def be_vacated(self, old: ConsumerGroup) -> None:
        self.group = self.new_classic()
        self.take(vacated(old))

    def become_consumer(self, old: ClassicGroup, join: ConsumerHeartbeat, token: int) -> None:
        new = self.new_consumer()
        outcome = to_consumer_group(old, new, join, reply_to=token, now_ms=self.now_ms)
        assert outcome.must_persist
        self.group = new
        self.take(outcome)

    def deliver(self, replies: Replies) -> None:
        for token, reply in replies:
            assert isinstance(token, int)
            client, request = self.open.pop(token)
            if client.waits and client.asked == token:  # else nobody is there to hear it
                client.waits = False
                self.hear(client, request, reply)

    def hear(self, client: AnyClient, request: Request, reply: AnyReply) -> None:
        """What comes after its session must be over a client does not act upon."""
        is_late = self.now_ms - client.heard_ms >= SESSION_MS
        if is_late and not isinstance(reply, JoinReply):
            client.lose()
            return
        client.hear(request, reply)
        if isinstance(client, ClassicClient) and isinstance(reply, JoinReply):
            topic = self.catalog.named(TOPIC)
            client.partition_count = topic.partition_count if topic else 0
        self.no_partition_is_owned_twice()

    def send(self, client: AnyClient) -> None:
        """Its session starts again when it asks: so it does at the broker, or later."""
        request = client.next_request()
        token = next(self.tokens)
        self.open[token] = (client, request)
        client.waits, client.asked = True, token
        client.heard_ms = self.now_ms
        match request:
            case ConsumerHeartbeat():
                self.receive_consumer(request, token)
            case JoinRequest():
                if isinstance(self.group, ConsumerGroup) and self.group.is_vacant:
                    self.be_vacated(self.group)
                self.take(self.group.join(request, reply_to=token, now_ms=self.now_ms))
            case SyncRequest():
                self.take(self.group.sync(request, reply_to=token, now_ms=self.now_ms))
            case HeartbeatRequest():
                self.take(self.group.heartbeat(request, reply_to=token, now_ms=self.now_ms))

    def receive_consumer(self, request: ConsumerHeartbeat, token: int) -> None:
        if isinstance(self.group, ConsumerGroup):
            self.take(self.group.consumer_heartbeat(request, reply_to=token, now_ms=self.now_ms))
        elif request.epoch == 0 and isinstance(self.group, ClassicGroup):
            self.become_consumer(self.group, request, token)
        else:
            refusal = ConsumerHeartbeatReply(error=ErrorCode.GROUP_ID_NOT_FOUND)
            self.deliver(((token, refusal),))

    # Rules.

    @rule(steps=st.lists(st.tuples(PICKS, FATES), min_size=1, max_size=10))
    def act(self, steps: list[tuple[int, str]]) -> None:
        """Clients ask, one after another; the disk follows at once, or later."""
        for pick, fate in steps:
            client = self.clients[pick % len(self.clients)]
            if not client.waits:
                self.send(client)
            if fate == "lost":
                self.lose_answer(pick)
            if fate != "delayed":
                self.sync_all()

    @rule(rounds=st.integers(1, 4))
    def behave(self, rounds: int) -> None:
        """Everybody acts, and the disk follows."""
        for _ in range(rounds):
            self.act([(pick, "heard") for pick in range(len(self.clients))])
            self.wait(50)

    @rule(pick=PICKS)
    def lose_answer(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.waits:
            client.waits = False
            client.lose()

    @rule(pick=PICKS)
    def crash(self, pick: int) -> None:
        """The client's process starts again: it owns nothing, and its old self stays silent."""
        client = self.clients[pick % len(self.clients)]
        client.waits = False
        client.restart()

    @rule(pick=PICKS)
    def leave(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        if client.waits or client.member_id == "":
            return
        client.owned = frozenset()
        token = next(self.tokens)
        self.open[token] = (client, client.next_request())
        if isinstance(client, NewClient) and isinstance(self.group, ConsumerGroup):
            request = ConsumerHeartbeat(member_id=client.member_id, epoch=-1)
            self.take(self.group.consumer_heartbeat(request, reply_to=token, now_ms=self.now_ms))
        elif isinstance(client, ClassicClient):
            leaving = [LeavingMember(client.member_id)]
            self.take(self.group.leave(leaving, reply_to=token, now_ms=self.now_ms))
        client.restart()

    @rule(duration_ms=st.sampled_from([1, 50, 300, 999, 1_000, 5_000]))
    def wait(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.group.deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.end_sessions()
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms
        self.end_sessions()

    def end_sessions(self) -> None:
        """Who has not asked for so long knows that it must be out.

        Who waits for the others in a join cannot ask, and has given up what it must by then.
        """
        for client in self.clients:
            is_joining = isinstance(client, ClassicClient) and client.waits
            if self.now_ms - client.heard_ms >= SESSION_MS and not is_joining:
                client.owned = frozenset()

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full: bool) -> None:
        self.is_disk_full = is_full

    @precondition(lambda self: self.unsynced)
    @rule()
    def disk_syncs(self) -> None:
        stored = self.unsynced.popleft()
        assert stored is not None
        self.make_durable(stored)
        self.deliver(self.outbox.persisted())
        self.fail_refused()

    def sync_all(self) -> None:
        while self.unsynced:
            self.disk_syncs()

    def make_durable(self, stored: Stored) -> None:
        for key, value in stored:
            if value is None:
                self.durable.pop(key, None)
            else:
                self.durable[key] = value

    @rule(survivors=st.integers(0, 3))
    def restart(self, survivors: int) -> None:
        """Connections break; of what was not synced a beginning may have got to the disk."""
        for stored in [stored for stored in self.unsynced if stored is not None][:survivors]:
            self.make_durable(stored)
        self.group = self.new_classic()
        self.start_incarnation()
        facts: dict[FactKey, Fact] = {}
        for key, value in self.durable.items():
            _, what = read_key(key)
            if isinstance(what, FactKey):
                facts[what] = read_fact(what, value)
            elif isinstance(self.group, ClassicGroup):
                self.group.restore(read_group_value(value), now_ms=self.now_ms)
        if facts:
            self.group = self.new_consumer()
            self.group.restore(facts, now_ms=self.now_ms)

    @rule()
    def grow(self) -> None:
        topic = self.catalog.named(TOPIC)
        assert topic is not None
        if topic.partition_count < PARTITIONS_MAX:
            grown = topic._replace(partition_count=topic.partition_count + 1)
            self.catalog.put(grown)
            if isinstance(self.group, ConsumerGroup):
                self.take(self.group.topic_changed(TOPIC))

    # Promises.

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        owners = Counter(number for client in self.clients for number in client.owned)
        doubled = [number for number, times in owners.items() if times > 1]
        assert not doubled, f"{doubled} of {[(c.name, c.owned) for c in self.clients]}"

    @invariant()
    def a_restart_would_find_one_kind_of_group(self) -> None:
        kinds = {int.from_bytes(key[:2], "big") == 2 for key in self.durable}
        assert len(kinds) <= 1

    def teardown(self) -> None:
        """When all behave, everything is read, evenly, and nothing moves any more."""
        if not self.clients:
            return
        self.is_disk_full = False
        self.wait(SESSION_MS)
        for _ in range(30):
            self.behave(1)
        topic = self.catalog.named(TOPIC)
        assert topic is not None
        everything = set(range(topic.partition_count))
        assert set().union(*(client.owned for client in self.clients)) == everything
        assert self.group.state is GroupState.STABLE
        if isinstance(self.group, ConsumerGroup):
            loads = [len(client.owned) for client in self.clients]
            assert max(loads) - min(loads) <= 1
            self.check_that_nothing_moves()

    def check_that_nothing_moves(self) -> None:
        before = [client.owned for client in self.clients]
        self.behave(3)
        assert before == [client.owned for client in self.clients]


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(20, 60))]
)
def test_in_long_histories_no_partition_is_owned_twice(seed: int) -> None:
    """Longer ones than Hypothesis makes, in phases: now these clients are up, now those."""
    random = Random(seed)
    machine = ConsumerGroupMachine()
    machine.start(new=random.randint(1, 3), classic=random.randint(0, 3), is_eager=seed % 2 == 0)
    for _ in range(12):
        play_phase(machine, random)
    machine.teardown()


def play_phase(machine: ConsumerGroupMachine, random: Random) -> None:
    everyone = range(len(machine.clients))
    awake = random.sample(everyone, random.randint(1, len(everyone)))
    for pick in everyone:
        if pick not in awake:
            random.choice([machine.leave, machine.crash])(pick)
    for _ in range(40):
        pick, chance = random.choice(awake), random.random()
        fate = random.choices(["heard", "lost", "delayed"], [8, 1, 1])[0]
        if chance < 0.85:
            machine.act([(pick, fate)])
        elif chance < 0.95:
            machine.wait(random.choice([10, 50, 200]))
        else:
            disturb(machine, random, pick)
        machine.no_partition_is_owned_twice()
        machine.a_restart_would_find_one_kind_of_group()


def disturb(machine: ConsumerGroupMachine, random: Random, pick: int) -> None:
    disturbances: list[Callable[[], None]] = [
        lambda: machine.crash(pick),
        lambda: machine.leave(pick),
        lambda: machine.restart(random.randint(0, 3)),
        lambda: machine.fill_disk(not machine.is_disk_full),
        lambda: machine.wait(SESSION_MS),
        machine.grow,
    ]
    random.choice(disturbances)()


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
