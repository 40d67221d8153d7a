"""Producers and a group member that work all the time, while a test hurts their broker.

Each remembers what it was promised. `SteadyProducer.check` then holds the log against it: every
acknowledged record where the broker said it is, each sent record once, in the order of sending.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

# A client that finds its broker again at once, and never gives a record up.
PATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}
PRODUCER = {
    **PATIENT,
    "enable.idempotence": True,
    "message.timeout.ms": 300_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "linger.ms": 2,
    "batch.num.messages": 50,
}
# About 500 records of 100 to 300 bytes per second and producer, in bursts.
BURST_RECORDS = 10
BURST_SECONDS = 0.02
FLUSH_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a reader finds it."""

    partition: int
    offset: int
    value: bytes


class SteadyProducer:
    """An idempotent producer in a thread: numbers its records, spreads them over the partitions."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        name: str,
        partitions: int,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._errors: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "error_cb": self._on_error,
                **PRODUCER,
                **(config or {}),
            }
        )
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._thread = threading.Thread(target=self._run, name=f"producer {name}")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(BURST_RECORDS):
                self._send(number)
                number += 1
            self._producer.poll(0)
            self._stop.wait(BURST_SECONDS)

    def _send(self, number: int) -> None:
        partition = number % self._partitions
        value = b"%s %d " % (self._name.encode(), number) + b"." * (100 + number % 200)
        self.sent[partition].append(value)
        self._producer.produce(
            self._topic, value, partition=partition, on_delivery=self._on_delivery
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(f"{message.value()!r} was not delivered: {error}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition, offset] = value

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._errors.append(f"fatal: {error}")

    def stop(self) -> None:
        """Send no more, and wait until everything that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        assert left == 0, f"{left} records of producer {self._name} were never acknowledged"

    def check(self, stored: Iterable[Stored]) -> None:
        """Nothing lost, nothing duplicated, order kept."""
        assert self._errors == []
        mine: dict[int, list[bytes]] = defaultdict(list)
        places: dict[tuple[int, int], bytes] = {}
        for record in stored:
            if record.value.startswith(self._name.encode() + b" "):
                mine[record.partition].append(record.value)
                places[record.partition, record.offset] = record.value
        lost = {place for place, value in self.acknowledged.items() if places.get(place) != value}
        assert not lost, f"acknowledged at these places, but not found there: {sorted(lost)[:10]}"
        for partition, sent in self.sent.items():
            assert mine[partition] == sent, f"partition {partition}: {_difference(mine, sent)}"


def _difference(mine: dict[int, list[bytes]], sent: list[bytes]) -> str:
    stored = [value for values in mine.values() for value in values]
    missing = len(set(sent) - set(stored))
    repeated = len(stored) - len(set(stored))
    return f"{missing} missing, {repeated} duplicated, or out of order"


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Stored]:
    """Every record of the topic, in the order of each partition."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**PATIENT, **config})
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    stored: list[Stored] = []
    open_partitions = set(range(partitions))
    deadline = time.monotonic() + FLUSH_SECONDS_MAX
    try:
        while open_partitions:
            assert time.monotonic() < deadline, f"partitions {open_partitions} have no end"
            for message in consumer.consume(1_000, timeout=0.2):
                partition = message.partition()
                assert partition is not None
                error = message.error()
                if error is None:
                    stored.append(_stored(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return stored


def _stored(message: Message) -> Stored:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return Stored(partition, offset, value)


class SteadyMember:
    """A group member in a thread: reads, and commits after every handful of records."""

    def __init__(self, bootstrap: str, topic: str, *, group: str) -> None:
        self.received: list[Stored] = []
        # What the broker has confirmed, by partition: the offset to be read next.
        self.committed: dict[int, int] = {}
        self.assignments: list[list[int]] = []
        self.revocations = 0
        self._topic = topic
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 30_000,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        self._thread = threading.Thread(target=self._run, name="group member")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            taken = [
                _stored(message)
                for message in self._consumer.consume(5_000, timeout=0.05)
                if message.error() is None
            ]
            if taken:
                self.received += taken
                self._commit({record.partition: record.offset + 1 for record in taken})

    def _commit(self, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(self._topic, *position) for position in positions.items()]
        try:
            confirmed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # the broker is away: the next commit covers this one
        for position in confirmed or ():
            if position.error is None:
                self.committed[position.partition] = position.offset

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.assignments.append(sorted(one.partition for one in partitions))

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.revocations += 1

    def wait_for(self, count: int, *, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while len(self.received) < count:
            seen = len(self.received)
            assert time.monotonic() < deadline, f"the member has read {seen} of {count} records"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
