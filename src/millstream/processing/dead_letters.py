"""Dead letters of a read: values that could not be decoded, kept with why and where they were.

The record goes to `<topic>.dead` as it came, key, value and headers, with the headers of KIP-1191
behind its own. It is on disk there before the batch that lacks it can be used. A batch that Spark
repeats writes its letters again: the origin in their headers says that they are one.
"""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    TopicNotFound,
    client_config,
    error_from,
    make_topic,
)
from millstream.processing.range_reader import RangeReader
from millstream.processing.stream_planner import batch_ranges
from millstream.processing.topic_offsets import DEAD_SUFFIX
from millstream.processing.topic_read import TopicRead
from millstream.values.decoder import Bad

Header = tuple[str, str | bytes | None]
PREFIX = "__dlq.errors."
REASON_LENGTH_MAX = 4_000


def letter_headers(record: Message, *, reason: str, job: str) -> list[Header]:
    """The record's own headers, then where it was and why nobody could read it."""
    _, time_ms = record.timestamp()
    facts = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "group": job,
        "message": reason[:REASON_LENGTH_MAX],
        "timestamp": time_ms,
    }
    own: Any = record.headers() or ()
    return [*own, *((f"{PREFIX}{name}", str(fact).encode()) for name, fact in facts.items())]


def origin_of(letter: Message) -> tuple[bytes, ...] | None:
    """The place that a letter came from; None for what is no letter.

    One that was put back and died again tells all its past: its last headers are of its last death.
    """
    facts = dict(letter.headers() or ())
    origin = tuple(facts.get(f"{PREFIX}{name}") for name in ("topic", "partition", "offset"))
    return None if None in origin else origin  # type: ignore[return-value]  # none of them is None


def count_letters(read: TopicRead, topic: str) -> int:
    """How many records of `topic` have become dead letters; one that was written twice is one."""
    letters = TopicRead(brokers=read.brokers, topics=(f"{topic}{DEAD_SUFFIX}",), client=read.client)
    try:
        ranges = batch_ranges(letters)
    except TopicNotFound:
        return 0
    reader = RangeReader(letters)
    origins = {
        origin_of(record)
        for part, within in ranges
        for records in reader.read(part, within)
        for record in records
    }
    return len(origins - {None})


def send_letters(read: TopicRead, records: Sequence[Message], bad: Sequence[Bad]) -> None:
    """Return when every letter is acknowledged."""
    office = DeadLetterOffice(read)
    for letter in bad:
        office.send(records[letter.row], letter.reason)
    office.close()


class DeadLetterOffice:
    """A producer for the letters of one batch; `close` waits until all are on disk."""

    def __init__(self, read: TopicRead) -> None:
        self._read = read
        self._failed: list[KafkaError] = []
        self._made: set[str] = set()
        self._producer = Producer(
            client_config(read.brokers, read.client)
            | {"enable.idempotence": True, "message.timeout.ms": int(PATIENCE_SECONDS * 1000)}
        )

    def send(self, record: Message, reason: str) -> None:
        topic = f"{record.topic()}{DEAD_SUFFIX}"
        self._make_topic(topic)
        while True:
            try:
                return self._producer.produce(
                    topic,
                    key=record.key(),
                    value=record.value(),
                    headers=letter_headers(record, reason=reason, job=self._read.job),
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)

    def close(self) -> None:
        left = self._producer.flush(PATIENCE_SECONDS)
        doing = "write dead letters"
        if self._failed:
            raise error_from(self._failed[0], doing=doing, brokers=self._read.brokers)
        if left:
            raise BrokerNotReached(brokers=self._read.brokers, doing=doing)

    def _make_topic(self, topic: str) -> None:
        if topic not in self._made:
            forever = {"retention.ms": "-1"}
            make_topic(self._read.brokers, self._read.client, topic, partitions=1, config=forever)
            self._made.add(topic)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)
