"""All events of one topic: append, decide, read, query, follow. The face of event sourcing.

    store = EventStore({"bootstrap.servers": "127.0.0.1:9092"}, "shop.events", partitions=4)
    store.append("Cart:7", [NewEvent(type="Added", data=b'{"sku":"tea"}')], expect=0)
    for event in store.read("Cart:7"): ...

A stream is in one partition, by its name or by its `scope`. To write to a partition takes it over
from whoever wrote there before; to read does not.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millstream.base.closing import Closing
from millstream.base.errors import Rejected
from millstream.base.log_clients import Client
from millstream.eventsourcing.chain_walk import ChainWalk, Finding
from millstream.eventsourcing.decision_queue import Along, Asked, Reply, StoreClosed
from millstream.eventsourcing.event_log import EventLog
from millstream.eventsourcing.event_partition import EventPartition
from millstream.eventsourcing.partition_state import (
    COMMAND_IDS_MAX,
    RECENT_BYTES_MAX,
    PartitionState,
)
from millstream.eventsourcing.partition_writer import PartitionWriter
from millstream.eventsourcing.placement import partition_of, stream_key
from millstream.eventsourcing.query import Condition, Query
from millstream.eventsourcing.staging import Decision, Wish
from millstream.eventsourcing.stored_event import Command, NewEvent, Receipt, StoredEvent
from millstream.eventsourcing.subscription import Place, Subscription, Token


def utc_now() -> datetime:
    return datetime.now(UTC)


class ScopeMissing(Rejected):
    def __init__(self, *, topic: str, partitions: int) -> None:
        super().__init__(
            f"{topic} has {partitions} partitions, and a query, a position or a condition is of "
            "one: events of the others would not be seen. Name it with scope=, and append with "
            "the same scope what belongs together"
        )
        self.topic, self.partitions = topic, partitions


class NoSuchPartition(Rejected):
    def __init__(self, *, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"{topic} has {partitions} partitions, from 0 on, and none is {partition}")
        self.topic, self.partition, self.partitions = topic, partition, partitions


class TimeWithoutZone(Rejected):
    def __init__(self, *, at: datetime) -> None:
        super().__init__(
            f"the time {at} has no zone, and events have one: say datetime(..., tzinfo=UTC)"
        )
        self.at = at


class StoreForked(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(
            f"the event store of {topic} was opened before this process was forked, and its "
            "connections are the parent's: open another one here"
        )
        self.topic = topic


class EventStore(Closing):
    """Thread-safe. Opens a partition's writer when something is first appended to it."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        partitions: int | None = None,
        index_dir: Path | None = None,
        command_ids_max: int = COMMAND_IDS_MAX,
        recent_bytes_max: int = RECENT_BYTES_MAX,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._log = EventLog(client, topic, partitions=partitions)
        self.topic, self.partitions = topic, self._log.partitions
        self._index_dir, self._now = index_dir, now
        self._command_ids_max, self._recent_bytes_max = command_ids_max, recent_bytes_max
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False
        self._known: dict[int, EventPartition] = {}
        self._writers: dict[int, PartitionWriter] = {}

    # --- write --------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        events: Sequence[NewEvent],
        *,
        expect: int | None = None,
        condition: Condition | None = None,
        command: Command | None = None,
        meta: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> Receipt:
        """All of them behind the stream's last event, or none: WrongVersion unless the stream is
        at `expect` (0: it is new), ConditionFailed if the condition does not hold."""
        wish = Wish(stream, lambda _head: events, expect, condition, command, meta)
        return self._decided(wish, scope)

    def decide(
        self,
        stream: str,
        decision: Decision,
        *,
        expect: int | None = None,
        condition: Condition | None = None,
        command: Command | None = None,
        meta: Mapping[str, Any] | None = None,
        scope: str | None = None,
    ) -> Receipt:
        """Append what the decision yields. It runs in the partition's writer, sees every event
        before its own, may run more than once, and must do nothing but decide."""
        return self._decided(Wish(stream, decision, expect, condition, command, meta), scope)

    def submit(
        self,
        stream: str,
        decision: Decision,
        *,
        expect: int | None = None,
        condition: Condition | None = None,
        command: Command | None = None,
        meta: Mapping[str, Any] | None = None,
        scope: str | None = None,
        along: Along | None = None,
    ) -> "Future[Receipt]":
        """As `decide`, and does not wait. Decisions of one thread run in the order in which they
        were submitted. `along` writes more into the same Kafka transaction, also for a refusal."""
        future: Future[Receipt] = Future()
        wish = Wish(stream, decision, expect, condition, command, meta)
        self._writer(self._place_of(wish, scope)).submit(Asked(wish, future, along))
        return future

    def _decided(self, wish: Wish, scope: str | None) -> Receipt:
        reply = Reply()
        self._writer(self._place_of(wish, scope)).submit(Asked(wish, reply))
        return reply.result()

    def _place_of(self, wish: Wish, scope: str | None) -> int:
        if wish.condition is not None and scope is None:
            self._scoped(None, None)
        return self.partition_of(wish.stream, scope)

    def refuse(self, partition: int, error: Exception, along: Along) -> "Future[Receipt]":
        """Have `along` tell, in its turn among the partition's decisions, what nobody can decide:
        the future raises `error` when that is committed."""

        def refused(_head: object) -> None:
            raise error

        future: Future[Receipt] = Future()
        self._writer(partition).submit(Asked(Wish("?", refused), future, along))
        return future

    # --- read ---------------------------------------------------------------------------------

    def partition_of(self, stream: str, scope: str | None = None) -> int:
        """Where a stream is. Streams of one scope are in one partition."""
        place = partition_of(stream if scope is None else scope, self.partitions)
        if scope is not None:
            stream_key(stream)
        return place

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        upto: int | None = None,
        at: datetime | None = None,
        position: int | None = None,
        scope: str | None = None,
    ) -> Iterator[StoredEvent]:
        """The stream's events in order, as of now: versions behind `after`, not above `upto`, not
        later than the time `at`, not behind the partition's event `position`."""
        if at is not None and at.tzinfo is None:
            raise TimeWithoutZone(at=at)
        partition = self._fresh(self.partition_of(stream, scope))
        with partition.lock:
            index = partition.state.index
            seqs = index.of_stream(stream, after=after, upto=upto, position=position)
        for event in partition.events(seqs):
            if at is not None and event.at > at:
                return  # time does not go back in a partition
            yield event

    def query(
        self,
        query: Query,
        *,
        after: int = 0,
        scope: str | None = None,
        partition: int | None = None,
    ) -> Iterator[StoredEvent]:
        """Events of the scope's partition that match, with `seq` above `after`, in order. Who
        has several partitions must name one."""
        found = self._fresh(self._scoped(scope, partition))
        with found.lock:
            state = found.state
            seqs = list(state.index.matching(query, after=after, upto=state.seq))
        yield from found.events(seqs)

    def version(self, stream: str, *, scope: str | None = None) -> int:
        """As of now; 0 of a stream that is not there."""
        return self._fresh(self.partition_of(stream, scope)).state.version(stream)

    def position(self, *, scope: str | None = None, partition: int | None = None) -> int:
        """The `seq` of the partition's last event, as of now."""
        return self._fresh(self._scoped(scope, partition)).state.seq

    def streams(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Names and versions, as of now."""
        for number in range(self.partitions):
            partition = self._fresh(number)
            with partition.lock:
                index = partition.state.index
                names = [name for name in index.streams if name.startswith(prefix)]
                found = [(name, index.version(name)) for name in names]
            yield from found

    # --- follow and check ---------------------------------------------------------------------

    def token(self) -> Token:
        """For a subscription to what comes from now on."""
        states = {number: self._fresh(number).state for number in range(self.partitions)}
        return Token({number: Place(one.seq, one.end) for number, one in states.items()})

    def subscribe(
        self,
        *,
        after: Token | None = None,
        where: Query | None = None,
        follow: bool = True,
        timeout: float | None = None,
    ) -> Subscription:
        """All events that match, and then those to come, unless `follow` is False."""
        self._partition(0)  # unless it is closed
        return Subscription(self._log, after=after, where=where, follow=follow, timeout=timeout)

    def token_behind(self, seq: int, *, partition: int = 0) -> Token:
        """To go on behind an event of a partition, for who has kept its number alone. It need
        not be there yet."""
        if seq <= 0:
            return Token()
        found = self._fresh(partition)
        with found.lock:
            known = min(seq, found.state.seq)
            offset = found.state.offset_behind(known)
        return Token({partition: Place(known, offset, behind=seq if seq > known else 0)})

    def verify(self, stream: str | None = None, *, scope: str | None = None) -> Iterator[Finding]:
        """Walk the chains of hashes, of one stream or of all, and tell what does not follow. Of
        all, also what has the key of another stream, and streams that are in two partitions."""
        if stream is None:
            homes: dict[str, int] = {}
            for number in range(self.partitions):
                yield from self._verify_all(number, homes)
            return
        partition = self._fresh(self.partition_of(stream, scope))
        with partition.lock:
            seqs = partition.state.index.of_stream(stream, after=0, upto=None, position=None)
        walk = ChainWalk(partition.number, is_cut=True, is_one_stream=True)
        for records in partition.records(seqs):
            yield from walk.take_all(records)

    def _verify_all(self, number: int, homes: dict[str, int]) -> Iterator[Finding]:
        self._partition(number)  # unless it is closed
        committed = self._log.committed(number)
        walk = ChainWalk(number, is_cut=committed.start > 0, homes=homes)
        for records, _ in self._log.scan(number, committed, with_keys=True):
            yield from walk.take_all(records)

    def _scoped(self, scope: str | None, partition: int | None) -> int:
        if scope is not None:
            return partition_of(scope, self.partitions)
        if partition is None and self.partitions > 1:
            raise ScopeMissing(topic=self.topic, partitions=self.partitions)
        number = partition or 0
        if not 0 <= number < self.partitions:
            raise NoSuchPartition(topic=self.topic, partition=number, partitions=self.partitions)
        return number

    # --- partitions ---------------------------------------------------------------------------

    def close(self) -> None:
        """What waits to be decided is decided first."""
        if os.getpid() != self._process:
            return  # all that it has is the parent's
        with self._lock:
            self._is_closed = True
            writers = list(self._writers.values())
            partitions = list(self._known.values())
        for writer in writers:
            writer.close()
        for partition in partitions:
            partition.close()
        self._log.close()

    def _fresh(self, number: int) -> EventPartition:
        partition = self._partition(number)
        partition.catch_up()
        return partition

    def _partition(self, number: int) -> EventPartition:
        if os.getpid() != self._process:
            raise StoreForked(topic=self.topic)
        found = self._known.get(number)
        if found is None or self._is_closed:
            with self._lock:
                if self._is_closed:
                    raise StoreClosed(topic=self.topic)
                found = self._known.setdefault(number, self._made(number))
        return found

    def _made(self, number: int) -> EventPartition:
        place, folder = self._log.place(number), self._index_dir
        limits = {
            "command_ids_max": self._command_ids_max,
            "recent_bytes_max": self._recent_bytes_max,
        }
        return EventPartition(
            self._log,
            number,
            lambda: PartitionState(place, **limits),
            index_path=None if folder is None else folder / f"{self.topic}-{number}.events",
        )

    def _writer(self, number: int) -> PartitionWriter:
        found = self._writers.get(number)
        if found is None or self._is_closed or os.getpid() != self._process:
            partition = self._partition(number)
            with self._lock:
                made = PartitionWriter(partition, now=self._now)
                found = self._writers.setdefault(number, made)
        return found
