"""Writes a capture's records and notes in Kafka transactions: all of one, or nothing of it.

One transactional id for a capture: to open it ends what an older run left open and fences that run.
So what is committed in `_captures.<name>` from then on is ours. Records are sent as they come; a
commit waits for all of them. After an error the writer is of no use: close it and open another,
which finds out what became of a commit that was not answered.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.base.errors import Rejected
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    LogRefused,
    Topics,
    client_config,
    error_from,
    translated,
    unhidden,
)
from millstream.base.quantity import MIB
from millstream.capture.captures_topic import make_captures_topic, make_run_topic
from millstream.capture.position_record import Note, run_topic

# One transaction of the database is one of the log, however long it takes to send. Brokers allow
# 15 minutes.
TRANSACTION_TIMEOUT_MS = 900_000
COMMIT_ATTEMPTS_MAX = 5
FAILURES_MAX = 10
CLOSE_SECONDS = 5.0
ROOM_SECONDS = 0.01
# A row that is larger stops its capture: what waits to be sent must fit into memory.
RECORD_BYTES_MAX = 8 * MIB
# What waits to be sent: half a second of a fast source, and the larger part of a capture's memory.
QUEUE_KBYTES_MAX = 8 << 10
QUEUE_RECORDS_MAX = 500_000
PRODUCER = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "linger.ms": 2,  # a commit does not wait for it
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # Kafka's own: all clients agree where a key is
    "delivery.report.only.error": True,  # a record that fails makes the commit fail
    "queue.buffering.max.kbytes": QUEUE_KBYTES_MAX,
    "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
    "batch.num.messages": 10_000,
    "message.max.bytes": 1_000_000_000,  # the broker has its own limit
}
# By which the broker says that it will never take the record.
REFUSALS = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "POLICY_VIOLATION")
ANY_PARTITION = -1
CONFIG = {"max.message.bytes": str(RECORD_BYTES_MAX + MIB)}
COMPACTED = {"cleanup.policy": "compact"}


class RecordTooLarge(Rejected):
    def __init__(self, *, capture: str, topic: str, key: bytes | None, size_bytes: int) -> None:
        super().__init__(
            f"{topic}: the row {(key or b'without a key').decode()} has {size_bytes:,} bytes as "
            f"JSON, and a record at most {RECORD_BYTES_MAX:,}. Make it smaller, then `millstream "
            f"capture reload {capture}`, as the database's log has the large one; or do not "
            "capture its table"
        )
        self.topic, self.key, self.size_bytes = topic, key, size_bytes


def transactional_id(capture: str) -> str:
    return f"millstream-capture-{capture}"


class LogWriter:
    """Of one run of a capture; used by one thread."""

    def __init__(self, client: Client, capture: str) -> None:
        self.client, self.capture = client, capture
        self._run_topic = run_topic(capture)
        self._topics = Topics(client)
        self._is_begun = False
        self._failures: list[tuple[str, KafkaError]] = []
        self._producer: Any = Producer(
            client_config(client)
            | PRODUCER
            | {
                "transactional.id": transactional_id(capture),
                "on_delivery": self._note_failure,
            }
        )

    def open(self) -> None:
        """Fence older runs. What they committed, and only that, can be read from now on."""
        make_captures_topic(self._topics)
        make_run_topic(self._topics, self.capture)
        with self._translated("open a transaction"):
            # A producer that is not connected yet looks for its coordinator again in 500 ms.
            self._producer.list_topics(timeout=PATIENCE_SECONDS)
            self._producer.init_transactions(PATIENCE_SECONDS)

    def make_topic(
        self, name: str, *, is_compacted: bool = False, partitions: int | None = None
    ) -> None:
        """Unless it is there."""
        config = CONFIG | COMPACTED if is_compacted else CONFIG
        holds = f"rows that capture {self.capture} has written"
        self._topics.ensure(name, partitions=partitions, config=config, holds=holds)

    def has_topic(self, name: str) -> bool:
        return name in self._topics.partitions()

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int = ANY_PARTITION,
        headers: Any = None,
    ) -> None:
        """Into the partition of its key, unless another is given."""
        if value is not None and len(value) > RECORD_BYTES_MAX:
            raise self._too_large(topic, key, len(value))
        if not self._is_begun:
            self._begin()
        while True:
            try:
                if headers is None:
                    self._producer.produce(topic, value, key, partition)
                else:
                    self._producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                self._make_room(topic)
            except KafkaException as error:
                raise self._error(error, f"write to {topic}") from None

    def _too_large(self, topic: str, key: bytes | None, size_bytes: int) -> RecordTooLarge:
        return RecordTooLarge(capture=self.capture, topic=topic, key=key, size_bytes=size_bytes)

    def put_everywhere(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Into every partition: who reads one of them must know it too."""
        for partition in range(self._topics.ensure(topic, partitions=None, config={})):
            self.put(topic, key, value, partition)

    def note(self, notes: Iterable[Note]) -> None:
        """Into the topic of the capture's runs."""
        for key, value in notes:
            self.put(self._run_topic, key, value)

    @property
    def is_begun(self) -> bool:
        """Whether something was put that is not committed."""
        return self._is_begun

    def flush(self) -> None:
        """Wait until all that was put is in the log, though not committed."""
        with self._translated("write"):
            left = self._producer.flush(PATIENCE_SECONDS)
        if left:
            brokers, reason = str(self.client["bootstrap.servers"]), f"{left} records wait"
            raise LogNotReached(brokers=brokers, doing="write", reason=reason)

    def commit(self) -> None:
        """All that was put since the last commit can be read, or nothing of it."""
        if self._is_begun:
            self._commit()
            self._is_begun = False

    def abort(self) -> None:
        """Best effort: what stays open is ended by the next run, or by the broker in time."""
        if self._is_begun:
            with contextlib.suppress(KafkaException, SystemError):
                self._producer.purge()
                self._producer.abort_transaction(PATIENCE_SECONDS)
            self._is_begun = False

    def close(self) -> None:
        """What was not committed does not count. It tells now what it has still to tell: it must
        not while it is thrown away."""
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.flush(CLOSE_SECONDS)

    def _make_room(self, topic: str) -> None:
        with self._translated(f"write to {topic}"):
            self._producer.poll(ROOM_SECONDS)

    def _begin(self) -> None:
        with self._translated("begin a transaction"):
            self._producer.begin_transaction()
        self._is_begun = True

    def _commit(self) -> None:
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                with unhidden():
                    self._producer.commit_transaction(PATIENCE_SECONDS)
                return
            except KafkaException as error:
                # A commit that was not answered is asked again: it is the same commit.
                if not error.args[0].retriable() or attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise self._refusal() or self._error(error, "commit") from None

    def _note_failure(self, error: KafkaError | None, message: Message) -> None:
        """The first ones say why; those that are purged behind them do not."""
        if error is not None and len(self._failures) < FAILURES_MAX:
            self._failures.append((message.topic() or "", error))

    def _refusal(self) -> Exception | None:
        """The record that the broker did not take for good, if that is why."""
        with contextlib.suppress(KafkaException, SystemError):  # it raises again what is known
            self._producer.poll(0)
        for topic, error in self._failures:
            if error.name() in REFUSALS or error.name().endswith("_AUTHORIZATION_FAILED"):
                reason = f"{error.str()} ({error.name()})"
                return LogRefused(doing=f"write to {topic} (capture {self.capture})", reason=reason)
        return None

    def _translated(self, doing: str) -> Any:
        return translated(self.client, doing=f"{doing} (capture {self.capture})")

    def _error(self, error: KafkaException, doing: str) -> Exception:
        return error_from(error.args[0], self.client, doing=f"{doing} (capture {self.capture})")
