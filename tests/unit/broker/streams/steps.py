"""Steps of a streams group's story (KIP-1071): instances heartbeat, give up and take tasks.

`StreamsDriver` is a shell without a disk: it keeps the facts that were stored, and ticks whenever
the group asks for it. A `Thread` is a member that does what it is told, and owns only that.
"""

from typing import Any

from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog
from millstream.broker.streams.streams_facts import StreamsFact, StreamsFactKey
from millstream.broker.streams.streams_group import StreamsGroup, StreamsGroupLimits
from millstream.broker.streams.streams_messages import (
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from millstream.broker.streams.streams_records import (
    read_streams_fact,
    read_streams_fact_key,
    streams_fact_key,
    streams_fact_value,
)
from millstream.broker.streams.task import NO_TASKS, TaskId
from millstream.broker.streams.topology import InternalTopic, Subtopology, Topology
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.consumer_steps import topic

SESSION_MS = 45_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 5_000

# Reads `words`, and counts them by way of a repartition topic, with a store.
SPLIT = Subtopology(id="0", source_topics=("words",), repartition_sink_topics=("by-word",))
COUNT = Subtopology(
    id="1",
    repartition_source_topics=(
        InternalTopic(name="by-word", configs=(("cleanup.policy", "delete"),)),
    ),
    changelog_topics=(InternalTopic(name="counts", configs=(("cleanup.policy", "compact"),)),),
)
COUNTING = Topology(epoch=0, subtopologies=(SPLIT, COUNT))


def task(subtopology: int, partition: int) -> TaskId:
    return TaskId(str(subtopology), partition)


def all_tasks(partitions: int) -> set[TaskId]:
    return {task(part, number) for part in (0, 1) for number in range(partitions)}


class StreamsDriver:
    def __init__(self, partitions: int = 2, *, has_internal: bool = True, **limits: int) -> None:
        self.catalog = TopicCatalog([topic("words", partitions)])
        if has_internal:
            self.catalog.put(topic("by-word", partitions))
            self.catalog.put(topic("counts", partitions))
        self.limits = StreamsGroupLimits(**{"initial_rebalance_delay_ms": 0, **limits})
        self.now_ms = 1_000
        self.stored: dict[bytes, bytes] = {}
        self.group = self._new_group()

    def _new_group(self) -> StreamsGroup:
        return StreamsGroup("counting", catalog=self.catalog, limits=self.limits)

    def take(self, outcome: Outcome) -> Any:
        """Store the facts, as bytes; the reply, if it is one."""
        for key, fact in outcome.facts:
            assert isinstance(key, StreamsFactKey)
            name = streams_fact_key("counting", key)
            if fact is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = streams_fact_value(fact)  # type: ignore[arg-type]
        return outcome.replies[0][1] if outcome.replies else None

    def beat(self, member_id: str, epoch: int, **said: Any) -> StreamsHeartbeatReply:
        request = StreamsHeartbeat(member_id=member_id, epoch=epoch, **said)
        reply = self.take(
            self.group.streams_heartbeat(request, reply_to="client", now_ms=self.now_ms)
        )
        assert isinstance(reply, StreamsHeartbeatReply)
        return reply

    def join(
        self, member_id: str, process_id: str = "", topology: Topology = COUNTING, **said: Any
    ) -> StreamsHeartbeatReply:
        return self.beat(
            member_id,
            0,
            process_id=process_id or f"process of {member_id}",
            topology=topology,
            rebalance_timeout_ms=REBALANCE_MS,
            owned=NO_TASKS,
            **said,
        )

    def put_topic(self, one: CataloguedTopic) -> None:
        self.catalog.put(one)
        self.take(self.group.topic_changed(one.name))

    def remove_topic(self, name: str) -> None:
        self.catalog.remove(name)
        self.take(self.group.topic_changed(name))

    def wait(self, duration_ms: int, *alive: "Thread") -> None:
        """Let time pass, ticking on time; those in `alive` heartbeat every second."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + 1_000, end_ms)
            due_ms = self.group.deadline_ms
            if due_ms is not None and due_ms <= self.now_ms:
                self.take(self.group.tick(self.now_ms))
            for thread in alive:
                thread.beat()

    def restart(self) -> None:
        """The broker comes back with what was stored."""
        facts: dict[StreamsFactKey, StreamsFact] = {}
        for name, value in self.stored.items():
            _, key = read_streams_fact_key(name)
            facts[key] = read_streams_fact(key, value)
        self.group = self._new_group()
        self.group.restore(facts, now_ms=self.now_ms)


class Thread:
    """A member: a thread of a process of the application. Obeys at once unless it is slow."""

    def __init__(self, driver: StreamsDriver, name: str, process_id: str = "") -> None:
        self._driver = driver
        self.name, self.process_id = name, process_id
        self.epoch = 0
        self.owned = NO_TASKS
        self.told = NO_TASKS
        self.statuses: tuple[StatusCode, ...] = ()

    def join(self) -> "Thread":
        self.owned = self.told = NO_TASKS
        return self._hear(self._driver.join(self.name, self.process_id))

    def beat(self) -> "Thread":
        reply = self._driver.beat(self.name, self.epoch, owned=self.owned)
        if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            return self.join()
        return self._hear(reply)

    def leave(self) -> None:
        reply = self._driver.beat(self.name, -1)
        assert reply.error is ErrorCode.NONE
        self.owned = self.told = NO_TASKS

    def _hear(self, reply: StreamsHeartbeatReply) -> "Thread":
        assert reply.error is ErrorCode.NONE, reply
        self.epoch = reply.epoch
        self.statuses = tuple(one.code for one in reply.statuses)
        if reply.assigned is not None:
            self.told = reply.assigned
        self.obey()
        return self

    def obey(self) -> None:
        self.owned = self.told


def settle(*threads: Thread, rounds: int = 8) -> None:
    for _ in range(rounds):
        for thread in threads:
            thread.beat()
