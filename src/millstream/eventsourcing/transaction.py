"""A producer that only the writer of a partition has: to open it fences whoever had it before.

One transaction at a time. After an error it is of no use: close it and open another, then look in
the log what became of the transaction.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    client_config,
    translated,
)
from millstream.eventsourcing.event_log import LAST_HEADER

# A writer that hangs is waited for no longer by who only reads; who writes fences it at once.
TRANSACTION_TIMEOUT_MS = 60_000
COMMIT_ATTEMPTS_MAX = 5
CLOSE_SECONDS = 5.0
ROOM_SECONDS = 0.01
LAST = [(LAST_HEADER, b"")]
PRODUCER = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "linger.ms": 0,  # a group is sent at once, and whole
    "compression.type": "none",
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
    "batch.num.messages": 10_000,
    "message.max.bytes": 1_040_000,  # less than what a broker takes (1,048,588)
}
ANY_PARTITION = -1


def transactional_id(topic: str, partition: int) -> str:
    return f"millstream-events-{topic}-{partition}"


class FencedProducer:
    """Used by one thread."""

    def __init__(self, client: Client, topic: str, partition: int) -> None:
        self._client, self._topic, self._partition = client, topic, partition
        self._first = self._last = -1
        self._producer: Any = Producer(
            client_config(client)
            | PRODUCER
            | {"transactional.id": transactional_id(topic, partition)}
        )

    def open(self) -> None:
        """Fence who was before. What is committed now, and only that, comes before our events."""
        with self._translated("open a transaction"):
            # A producer that is not connected yet looks for its coordinator again in 500 ms.
            self._producer.list_topics(timeout=PATIENCE_SECONDS)
            self._producer.init_transactions(PATIENCE_SECONDS)

    def begin(self) -> None:
        self._first = self._last = -1
        with self._translated("begin a transaction"):
            self._producer.begin_transaction()

    def put_events(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Streams and values. The first and the last tell where they are: if there are as many
        offsets between them as records, all are."""
        if not records:
            return
        produce, topic, partition = self._producer.produce, self._topic, self._partition
        *others, (stream, value) = records
        if others:
            self.put(topic, others[0][0].encode(), others[0][1], partition, told=self._note_first)
        with self._translated(f"write to {topic}"):
            for other, its_value in others[1:]:
                try:
                    produce(topic, its_value, other, partition)
                except BufferError:
                    self.put(topic, other.encode(), its_value, partition)
        self.put(topic, stream.encode(), value, partition, headers=LAST, told=self._note_last)

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int = ANY_PARTITION,
        *,
        headers: Any = None,
        told: Any = None,
    ) -> None:
        """Into the open transaction."""
        more: dict[str, Any] = {} if headers is None else {"headers": headers}
        if told is not None:
            more["on_delivery"] = told
        with self._translated(f"write to {topic}"):
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, **more)
                    return
                except BufferError:
                    self._producer.poll(ROOM_SECONDS)

    def flush(self) -> None:
        """Wait until all that was put is in the log, though not committed."""
        with self._translated("write"):
            left = self._producer.flush(PATIENCE_SECONDS)
        if left:
            brokers, reason = str(self._client["bootstrap.servers"]), f"{left} records wait"
            raise LogNotReached(brokers=brokers, doing=f"write to {self._topic}", reason=reason)

    @property
    def last_offset(self) -> int:
        """Of the events that were put and are in the log."""
        return self._last

    def move(self, offsets: Sequence[TopicPartition], group: Any) -> None:
        """How far a consumer group has read, as part of the open transaction."""
        with self._translated("write positions"):
            self._producer.send_offsets_to_transaction(list(offsets), group, PATIENCE_SECONDS)

    def commit(self) -> None:
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                with self._translated("commit"):
                    self._producer.commit_transaction(PATIENCE_SECONDS)
                return
            except LogNotReached:  # asked again, it is the same commit, if it is one still
                if attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise

    def offset_of_first(self, count: int) -> int | None:
        """Of so many events that were put; None if something else is between them."""
        first = self._last if count == 1 else self._first
        return first if first >= 0 and self._last - first == count - 1 else None

    def close(self) -> None:
        """What is not committed does not count."""
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.flush(CLOSE_SECONDS)

    def _note_first(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._first = message.offset() or 0

    def _note_last(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last = message.offset() or 0

    def _translated(self, doing: str) -> Any:
        place = f"{self._topic}[{self._partition}]"
        return translated(self._client, doing=f"{doing} ({place})")
