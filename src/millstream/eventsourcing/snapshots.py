"""Snapshots on their compacted topic, found by stream: the shell around `snapshot_record.py`.

Only a map of streams to offsets is in memory. Nothing here is needed: a snapshot that is missing,
damaged or of another fold is told and passed over, and the state is made of events. So a broker
that does not answer is no error either.
"""

import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.base.errors import MillstreamError, Retryable
from millstream.base.log_clients import Client, Topics, client_config, error_from, translated
from millstream.eventsourcing.placement import partition_of

logger = logging.getLogger(__name__)

TOPIC_CONFIG: Final = {"cleanup.policy": "compact"}
POLL_SECONDS = 0.2
MESSAGES_MAX = 1_000
# Snapshots of other processes are looked for no more often.
CATCH_UP_SECONDS = 1.0
# To wait longer for one than the events take would be of no use.
PATIENCE_SECONDS = 10.0
CLOSE_SECONDS = 5.0
CONSUMER: Final = {
    "group.id": "millstream-snapshots",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 5,
}
PRODUCER: Final = {"linger.ms": 20, "compression.type": "lz4", "acks": "all"}


class SnapshotTopic:
    """Thread-safe. `lost`: how many could not be written."""

    def __init__(self, client: Client, name: str, *, partitions: int) -> None:
        self.client, self.name = client, name
        self.lost = 0
        topics = Topics(client)
        self._partitions = topics.ensure(
            name, partitions=partitions, config=TOPIC_CONFIG, is_needed=False
        )
        self._lock = threading.Lock()
        self._offsets: dict[str, int] = {}
        self._read_to = dict.fromkeys(range(self._partitions), 0)
        self._looked_at = float("-inf")
        self._consumer: Any = None
        self._producer: Any = None

    def find(self, stream: str) -> bytes | None:
        """The newest snapshot of the stream, as it was written."""
        with self._lock:
            try:
                self._catch_up()
                offset = self._offsets.get(stream)
                return None if offset is None else self._fetch(stream, offset)
            except Retryable as error:
                logger.warning("snapshots are not used now: %s", error)
                return None

    def put(self, stream: str, value: bytes) -> None:
        """Later, and without a promise."""
        with self._lock:
            if self._producer is None:
                self._producer = Producer(client_config(self.client) | PRODUCER)
            partition = partition_of(stream, self._partitions)
            try:
                self._producer.produce(
                    self.name, value, stream.encode(), partition, on_delivery=self._told
                )
                self._producer.poll(0)
            except (BufferError, KafkaException) as error:
                self._lose(error)

    def close(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
            consumer, self._consumer = self._consumer, None
        if producer is not None and (left := producer.flush(CLOSE_SECONDS)):
            self._lose(f"{left} were not written when it was closed")
        if consumer is not None:
            consumer.close()

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._lose(error)

    def _lose(self, reason: object) -> None:
        self.lost += 1
        logger.warning("a snapshot was not written to %s: %s", self.name, reason)

    # --- reading ------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Learn of all that is there as of now, unless that was done just before."""
        now = time.monotonic()
        if now - self._looked_at < CATCH_UP_SECONDS:
            return
        self._assign(self._read_to)
        waiting = set(self._read_to)
        until = now + PATIENCE_SECONDS
        while waiting and time.monotonic() < until:
            for message in self._messages():
                self._learn(message, waiting)
        self._looked_at = time.monotonic()

    def _learn(self, message: Message, waiting: set[int]) -> None:
        partition, offset = message.partition(), message.offset() or 0
        if message.error() is not None:
            self._require_passing(message)
            if message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]
                waiting.discard(partition or 0)
            return
        key: Any = message.key()
        self._read_to[partition or 0] = offset + 1
        if key is not None:
            self._offsets[key.decode(errors="replace")] = offset

    def _fetch(self, stream: str, offset: int) -> bytes | None:
        self._assign({partition_of(stream, self._partitions): offset})
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            for message in self._messages(1):
                if message.error() is None:
                    return self._fetched(message, stream)
                self._require_passing(message)
                if message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]
                    return None
        return None

    def _fetched(self, message: Message, stream: str) -> bytes | None:
        """Compaction may have taken it since: then another record comes, and a newer one is known
        after the next look."""
        key: Any = message.key()
        value: Any = message.value()
        if key != stream.encode():
            self._offsets.pop(stream, None)
            return None
        return value if value is None else bytes(value)

    def _assign(self, offsets: dict[int, int]) -> None:
        if self._consumer is None:
            self._consumer = Consumer(client_config(self.client) | CONSUMER)
        places = [TopicPartition(self.name, number, at) for number, at in offsets.items()]
        with translated(self.client, doing=f"read {self.name}"):
            self._consumer.assign(places)

    def _messages(self, most: int = MESSAGES_MAX) -> list[Message]:
        """One, and what has come with it."""
        with translated(self.client, doing=f"read {self.name}"):
            found: list[Message] = self._consumer.consume(1, POLL_SECONDS)
            if found and most > 1:
                found += self._consumer.consume(most, 0)
        return found

    def _require_passing(self, message: Message) -> None:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        found: MillstreamError = error_from(error, self.client, doing=f"read {self.name}")
        if not isinstance(found, Retryable):
            raise found
