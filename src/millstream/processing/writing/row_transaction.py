"""Writes rows and their receipt in one Kafka transaction: all of it, or nothing.

Opening it ends what an earlier attempt of the same task left open, and fences that attempt.
"""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.base.errors import MillstreamError, Retryable
from millstream.processing.kafka_clients import (
    FENCED,
    PATIENCE_SECONDS,
    client_config,
    code_of,
    error_from,
)
from millstream.processing.writing.topic_write import TopicWrite

# A batch may take long to compute while its first rows are sent. Brokers allow 15 minutes.
TRANSACTION_TIMEOUT_MS = 600_000
COMMIT_ATTEMPTS_MAX = 5

Row = tuple[str, bytes | None, bytes | None, Any, int, int]


class AttemptFenced(Retryable):
    def __init__(self, *, transactional_id: str) -> None:
        super().__init__(
            f"{transactional_id}: another attempt of this task has begun. Nothing of this one was "
            "written"
        )
        self.transactional_id = transactional_id


class RowTransaction:
    """One transaction of one transactional id: open, send, then commit or abort."""

    def __init__(self, write: TopicWrite, transactional_id: str) -> None:
        self._write = write
        self._id = transactional_id
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            client_config(write.brokers, write.client)
            | {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.max.bytes": 1_000_000_000,  # the broker has its own limit
            }
        )

    def open(self) -> None:
        """Fence earlier attempts. What they committed, and only that, can be read from now on."""
        self._call(lambda: self._producer.init_transactions(PATIENCE_SECONDS), "open a transaction")

    def begin(self) -> None:
        self._call(self._producer.begin_transaction, "begin a transaction")

    def send(self, rows: Iterable[Row]) -> int:
        count = 0
        for row in rows:
            self._produce(*row)
            count += 1
        self._producer.poll(0)
        return count

    def commit(self) -> None:
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                self._producer.commit_transaction(PATIENCE_SECONDS)
                return
            except KafkaException as error:
                # A commit that was not answered is asked again: it is the same commit.
                if not error.args[0].retriable() or attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise self._error(error, "commit") from None

    def abort(self) -> None:
        """Best effort: what stays open is ended by the next attempt, or by the broker in time."""
        try:
            self._producer.abort_transaction(PATIENCE_SECONDS)
        except KafkaException:
            self._producer.purge()

    def _produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        partition: int,
        timestamp_ms: int,
    ) -> None:
        while True:
            if self._failed:
                raise error_from(self._failed[0], doing="write", brokers=self._write.brokers)
            try:
                return self._producer.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=headers,
                    partition=partition,
                    timestamp=timestamp_ms,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._error(error, f"write to {topic}") from None

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _call(self, call: Any, doing: str) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._error(error, doing) from None

    def _error(self, error: KafkaException, doing: str) -> MillstreamError:
        if code_of(error) in FENCED:
            return AttemptFenced(transactional_id=self._id)
        return error_from(error.args[0], doing=doing, brokers=self._write.brokers)
