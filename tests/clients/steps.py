"""Steps that the librdkafka tests share: make a topic, send records, read them back.

Every wait polls a condition against a deadline; nothing sleeps for a fixed time and hopes.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewTopic,
)

WITHIN_S = 20.0
# The shortest that Kafka allows (group.min.session.timeout.ms), so that a crash is noticed soon.
SESSION_TIMEOUT_MS = 6_000

_numbers = itertools.count(1)
_run = f"{time.time_ns() // 1_000_000:x}"

Config = Mapping[str, Any]


def unique_name(prefix: str) -> str:
    """A name that is new in this run and in a broker that earlier runs have used."""
    return f"{prefix}-{_run}-{next(_numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to send. `partition` -1 leaves the choice to the partitioner."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int = -1


def values_of(messages: Iterable[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def offsets_of(messages: Iterable[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def numbered(count: int, *, start: int = 0) -> list[Sent]:
    return [Sent(value=b"%d" % number) for number in range(start, start + count)]


def eventually(condition: Callable[[], bool], *, within_s: float = WITHIN_S, what: str) -> None:
    """Poll until `condition` holds; fail with `what` was expected when the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def create_topic(
    admin: AdminClient,
    topic: str,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until clients are told of all its partitions."""
    new = NewTopic(topic, partitions, 1, config=dict(config or {}))
    admin.create_topics([new])[topic].result(WITHIN_S)
    wait_for_partitions(admin, topic, partitions)


def wait_for_partitions(admin: AdminClient, topic: str, partitions: int) -> None:
    def are_all_led() -> bool:
        known = admin.list_topics(timeout=WITHIN_S).topics.get(topic)
        if known is None or len(known.partitions) != partitions:
            return False
        return all(partition.leader >= 0 for partition in known.partitions.values())

    eventually(are_all_led, what=f"{topic} with {partitions} partitions")


def produce(
    bootstrap: str, topic: str, records: Sequence[Sent], config: Config | None = None
) -> list[Message]:
    """Send the records and return their delivery reports; an undelivered record raises."""
    reports: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        reports.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **(config or {})})
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=record.partition,
            on_delivery=on_delivery,
        )
    left = producer.flush(WITHIN_S)
    assert left == 0, f"{left} records of {topic} were not delivered"
    return reports


def open_consumer(bootstrap: str, group: str, config: Config | None = None) -> Consumer:
    """A consumer for tests: from the beginning, commits only when told, notices a crash soon."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1_000,
            **(config or {}),
        }
    )


def take(consumer: Consumer, count: int, *, within_s: float = WITHIN_S) -> list[Message]:
    """The next `count` messages; fewer in time, or an error among them, fails the test."""
    taken: list[Message] = []
    deadline = time.monotonic() + within_s
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} messages in {within_s} s"
        for message in consumer.consume(count - len(taken), timeout=0.2):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            taken.append(message)
    return taken


def read(
    bootstrap: str, topic: str, count: int, *, partitions: int = 1, config: Config | None = None
) -> list[Message]:
    """Read `count` messages from the start of every partition, without a group."""
    consumer = open_consumer(bootstrap, unique_name("reader"), config)
    try:
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        return take(consumer, count)
    finally:
        consumer.close()


def end_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The offset that the next record of the partition will get."""
    consumer = open_consumer(bootstrap, unique_name("reader"))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), WITHIN_S)[1]
    finally:
        consumer.close()
