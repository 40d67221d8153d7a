"""Puts records into topics, each durable when the call returns: librdkafka's idempotent producer.

Its callbacks are called by a thread of its own, so that any number of threads can put at once.
"""

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import Retryable
from millstream.base.record import Record

DELIVERY_MS_MAX = 60_000
POLL_SECONDS = 0.1
FULL_QUEUE_POLL_SECONDS = 0.01


class PutFailed(Retryable):
    """It may be in the queue or not: after an unanswered request nobody knows."""

    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: the job was not confirmed ({reason}); put it again")
        self.topic, self.reason = topic, reason


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a job was stored."""

    topic: str
    partition: int
    offset: int


class Outbox:
    """Thread-safe. `close` waits for what was put."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "linger.ms": 1,
                **config,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_MS_MAX,
            }
        )
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="millstream-outbox", daemon=True)
        self._thread.start()

    def put(self, topic: str, records: Iterable[Record]) -> list[Receipt]:
        """All are sent before the first is waited for."""
        return [future.result() for future in [self._send(topic, one) for one in records]]

    def _send(self, topic: str, record: Record) -> "Future[Receipt]":
        from confluent_kafka import KafkaException

        future: Future[Receipt] = Future()

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                future.set_exception(PutFailed(topic=topic, reason=error.str()))
            else:
                future.set_result(Receipt(topic, message.partition(), message.offset()))

        while True:
            try:
                self._producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=on_delivery,
                )
                return future
            except KafkaException as error:  # too large, for one
                raise PutFailed(topic=topic, reason=error.args[0].str()) from error
            except BufferError:  # librdkafka's queue is full: let it drain
                self._producer.poll(FULL_QUEUE_POLL_SECONDS)

    def _poll(self) -> None:
        while not self._is_closed.is_set():
            self._producer.poll(POLL_SECONDS)

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        self._producer.flush(DELIVERY_MS_MAX / 1000)
