"""Clients of a group as the properties play them: they know only what reached them.

What a client owns is what it would read from now. It gives up everything when it is fenced, and
when its session must be over for all it knows. One question is under way at a time; an answer
that is lost is asked for again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.broker.groups.consumer_messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.broker.groups.embedded_protocol import read_subscription
from millstream.broker.groups.group_messages import (
    GroupProtocol,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.wire import decode_versioned, encode_versioned
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from millstream.broker.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from millstream.broker.wire.messages.consumer_protocol_subscription import (
    TopicPartition as OwnedTopic,
)

TOPIC = "orders"
TOPIC_ID = b"orders".ljust(16, b"\0")
SESSION_MS = 1_000
REBALANCE_MS = 10_000  # longer than a session: who is late is silent first
FENCED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
}

Request = ConsumerHeartbeat | JoinRequest | SyncRequest | HeartbeatRequest


@dataclass(eq=False)
class NewClient:
    """Speaks KIP-848."""

    name: str
    incarnation: int = 0
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    waits: bool = False
    asked: int = 0  # the token of its last question
    must_say_all: bool = True
    heard_ms: int = 0

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def next_request(self) -> Request:
        says_all = self.must_say_all or self.epoch == 0
        return ConsumerHeartbeat(
            member_id=self.member_id,
            epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            topics=frozenset({TOPIC}) if says_all else None,
            owned=frozenset(TopicIdPartition(TOPIC_ID, n) for n in self.owned),
        )

    def hear(self, request: Request, reply: Any) -> None:
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.must_say_all = reply.error is not ErrorCode.NONE
        if reply.error in FENCED:
            self.forget()
        if reply.error is ErrorCode.NONE:
            assert reply.epoch >= self.epoch, "an older epoch after a newer one"
            self.epoch = reply.epoch
            if reply.assigned is not None:
                self.owned = frozenset(part.partition for part in reply.assigned)

    def lose(self) -> None:
        self.must_say_all = True

    def forget(self) -> None:
        self.epoch, self.owned, self.must_say_all = 0, frozenset(), True

    def restart(self) -> None:
        self.incarnation += 1
        self.forget()


@dataclass(eq=False)
class ClassicClient:
    """Speaks the classic protocol: gives up everything before a join (eager), or what it must."""

    name: str
    is_eager: bool
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    waits: bool = False
    asked: int = 0  # the token of its last question
    heard_ms: int = 0
    step: str = "join"
    led: dict[str, frozenset[int]] = field(default_factory=dict)
    partition_count: int = 0

    def next_request(self) -> Request:
        if self.step == "join":
            return self._join()
        if self.step == "sync":
            return self._sync()
        return HeartbeatRequest(member_id=self.member_id, generation=self.generation)

    def _join(self) -> JoinRequest:
        if self.is_eager:
            self.owned = frozenset()
        own = [OwnedTopic(topic=TOPIC, partitions=sorted(self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=own)
        return JoinRequest(
            member_id=self.member_id,
            client_id=self.name,
            client_host="h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(GroupProtocol("own", encode_versioned(subscription, 1)),),
        )

    def _sync(self) -> SyncRequest:
        shares = share_out(self.led, self.partition_count, is_eager=self.is_eager)
        return SyncRequest(
            member_id=self.member_id,
            generation=self.generation,
            assignments=tuple((member, write_share(own)) for member, own in shares.items()),
        )

    def hear(self, request: Request, reply: Any) -> None:
        if reply.error in FENCED:
            self.forget()
        elif reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.step = "join"
        elif reply.error is ErrorCode.NONE:
            self._hear_good(reply)

    def _hear_good(self, reply: Any) -> None:
        match reply:
            case JoinReply():
                self.member_id, self.generation = reply.member_id, reply.generation
                self.led = {m.member_id: read_owned(m.metadata) for m in reply.members}
                self.step = "sync"
            case SyncReply():
                assigned = read_share(reply.assignment)
                must_rejoin = not self.is_eager and bool(self.owned - assigned)
                self.owned = assigned
                self.step = "join" if must_rejoin else "beat"
            case HeartbeatReply():
                pass

    def lose(self) -> None:
        self.step = "join"

    def forget(self) -> None:
        self.member_id, self.generation, self.owned, self.step = "", -1, frozenset(), "join"

    def restart(self) -> None:
        self.forget()


AnyClient = NewClient | ClassicClient


def share_out(
    led: dict[str, frozenset[int]], partition_count: int, *, is_eager: bool
) -> dict[str, frozenset[int]]:
    """What a leader assigns: in turn; a cooperative one leaves out what another still owns."""
    members = sorted(led)
    shares: dict[str, set[int]] = {member: set() for member in members}
    for number in range(partition_count if members else 0):
        member = members[number % len(members)]
        owners = [other for other, owned in led.items() if number in owned and other != member]
        if is_eager or not owners:
            shares[member].add(number)
    return {member: frozenset(own) for member, own in shares.items()}


def write_share(own: Iterable[int]) -> bytes:
    assigned = [AssignedTopic(topic=TOPIC, partitions=sorted(own))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def read_share(assignment: bytes) -> frozenset[int]:
    if not assignment:
        return frozenset()
    _, message = decode_versioned(ConsumerProtocolAssignment, assignment)
    return frozenset(n for one in message.assigned_partitions for n in one.partitions)


def read_owned(metadata: bytes) -> frozenset[int]:
    subscription = read_subscription(metadata)
    assert subscription is not None
    return frozenset(n for one in subscription.owned_partitions for n in one.partitions)
