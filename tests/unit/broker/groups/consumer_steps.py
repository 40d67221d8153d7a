"""Steps of a consumer group's story (KIP-848): clients heartbeat, revoke, and obey; time passes.

`ConsumerDriver` is a shell without a disk: it keeps the answers, the facts that were stored, and
ticks whenever the group asks for it. A `Client` is a consumer that does what it is told, and owns
only what it was told.
"""

from collections.abc import Set
from itertools import count
from typing import Any, cast

from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.group_state import ConsumerGroupLimits, GroupLimits
from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.stored_facts import Fact, FactKey
from millstream.broker.groups.subscription_patterns import Sees, sees_all
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog, TopicIdPartition
from millstream.broker.wire.error_codes import ErrorCode

SESSION_MS = 45_000
REBALANCE_MS = 60_000


def topic(name: str, partitions: int) -> CataloguedTopic:
    return CataloguedTopic(name, id_of(name), partitions)


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def parts(name: str, *numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(id_of(name), number) for number in numbers)


class ConsumerDriver:
    def __init__(self, *topics: CataloguedTopic, group_size_max: int = 100) -> None:
        self.catalog = TopicCatalog(topics)
        self.limits = ConsumerGroupLimits(
            group_size_max=group_size_max, session_timeout_ms=SESSION_MS
        )
        self.now_ms = 1_000
        self.stored: dict[FactKey, Fact] = {}
        self.last = Outcome()
        self._ids = count(1)
        self.group = self._new_group()

    def _new_group(self) -> ConsumerGroup:
        return ConsumerGroup(
            "readers",
            catalog=self.catalog,
            limits=self.limits,
            classic_limits=GroupLimits(),
            new_member_id=lambda: f"made-{next(self._ids)}",
        )

    def take(self, outcome: Outcome) -> Any:
        """Store the facts; the reply, if it is one."""
        self.last = outcome
        for key, fact in outcome.facts:
            if fact is None:
                self.stored.pop(cast(FactKey, key), None)
            else:
                self.stored[cast(FactKey, key)] = cast(Fact, fact)
        return outcome.replies[0][1] if outcome.replies else None

    def beat(self, member_id: str, epoch: int, **said: Any) -> ConsumerHeartbeatReply:
        request = ConsumerHeartbeat(member_id=member_id, epoch=epoch, **said)
        reply = self.take(
            self.group.consumer_heartbeat(request, reply_to="client", now_ms=self.now_ms)
        )
        assert isinstance(reply, ConsumerHeartbeatReply)
        return reply

    def wait(self, duration_ms: int, *alive: "Client") -> None:
        """Let time pass, ticking on time; those in `alive` heartbeat every five seconds."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + 5_000, end_ms)
            for client in alive:
                client.beat()
            due_ms = self.group.deadline_ms
            if due_ms is not None and due_ms <= self.now_ms:
                self.take(self.group.tick(self.now_ms))

    def change_topic(self, changed: CataloguedTopic) -> None:
        self.catalog.put(changed)
        self.take(self.group.topic_changed(changed.name))

    def remove_topic(self, name: str) -> None:
        self.catalog.remove(name)
        self.take(self.group.topic_changed(name))

    def restart(self) -> None:
        """The broker stops and starts again: only what was stored is left."""
        self.group = self._new_group()
        self.group.restore(self.stored, now_ms=self.now_ms)

    def settle(self, *clients: "Client") -> None:
        """Everybody heartbeats until nothing changes any more."""
        for _ in range(20):
            before = [(client.epoch, client.owned) for client in clients]
            for client in clients:
                client.beat()
            if before == [(client.epoch, client.owned) for client in clients]:
                return
        raise AssertionError("it does not settle")


class Client:
    """A consumer that behaves. `owned` is what it reads from now."""

    def __init__(
        self,
        driver: ConsumerDriver,
        member_id: str,
        *topics: str,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        sees: Sees = sees_all,
    ) -> None:
        self._driver = driver
        self.member_id = member_id
        self.epoch = 0
        self.owned: Set[TopicIdPartition] = frozenset()
        self._said: dict[str, Any] = {
            "topics": frozenset(topics),
            "pattern": pattern,
            "instance_id": instance_id,
            "assignor": assignor,
            "rebalance_timeout_ms": REBALANCE_MS,
            "sees": sees,
        }
        self._sees = sees
        self._instance_id = instance_id

    def join(self) -> ConsumerHeartbeatReply:
        self.epoch, self.owned = 0, frozenset()
        return self._hear(self._driver.beat(self.member_id, 0, owned=frozenset(), **self._said))

    def beat(self) -> ConsumerHeartbeatReply:
        """Says what it owns; what it is told to have, it has from now on, and nothing else."""
        return self._hear(
            self._driver.beat(
                self.member_id,
                self.epoch,
                owned=self.owned,
                instance_id=self._instance_id,
                sees=self._sees,
            )
        )

    def subscribe(self, *topics: str) -> ConsumerHeartbeatReply:
        self._said["topics"] = frozenset(topics)
        return self._hear(
            self._driver.beat(
                self.member_id, self.epoch, owned=self.owned, topics=self._said["topics"]
            )
        )

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatReply:
        reply = self._driver.beat(self.member_id, epoch, instance_id=self._instance_id)
        self.owned = frozenset()
        return reply

    def _hear(self, reply: ConsumerHeartbeatReply) -> ConsumerHeartbeatReply:
        if reply.error is ErrorCode.NONE:
            self.epoch = reply.epoch
            if reply.assigned is not None:
                self.owned = reply.assigned
        return reply


def joined(
    driver: ConsumerDriver, *member_ids: str, topics: tuple[str, ...] = ("orders",)
) -> list[Client]:
    """Members that have joined, one after another, and have settled."""
    clients = []
    for member_id in member_ids:
        clients.append(Client(driver, member_id, *topics))
        clients[-1].join()
        driver.settle(*clients)
    return clients
