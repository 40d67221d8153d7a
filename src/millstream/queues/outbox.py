"""Puts records into topics, each durable when the call returns: librdkafka's idempotent producer.

Its callbacks are called by a thread of its own, so that any number of threads can put at once.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.record import Record
from millstream.queues.client_trouble import ClientTrouble

logger = logging.getLogger(__name__)

DELIVERY_MS_MAX = 60_000
POLL_SECONDS = 0.1
FULL_QUEUE_POLL_SECONDS = 0.01
# A refused login may be one of a moment: the broker holds off an address that failed often.
TROUBLE_SECONDS_MAX = 5.0
# librdkafka's names of what does not change by putting it again, beside *_AUTHORIZATION_FAILED.
REFUSALS = (
    "MSG_SIZE_TOO_LARGE",
    "INVALID_MSG",
    "INVALID_RECORD",
    "POLICY_VIOLATION",
    "UNSUPPORTED_VERSION",
)


class PutFailed(Retryable):
    """It may be in the queue or not: after an unanswered request nobody knows."""

    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: the job was not confirmed ({reason}); put it again")
        self.topic, self.reason = topic, reason


class NotInTime(PutFailed):
    """The caller's time was up first: the record is still on its way, and may arrive later."""


class PutRefused(Rejected):
    """It is not in the queue, and will not be if it is put again."""

    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: the job was refused ({reason})")
        self.topic, self.reason = topic, reason


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a job was stored."""

    topic: str
    partition: int
    offset: int


class Outbox:
    """Thread-safe. `close` waits for what was put. `user` and `records` are for what is said of it:
    "queue mails" puts jobs."""

    def __init__(self, user: str, config: Mapping[str, Any], *, records: str = "jobs") -> None:
        from confluent_kafka import Producer

        self._records = records
        self._trouble = ClientTrouble(user, config, when_told=self._warn)
        self._producer = Producer(
            {
                "linger.ms": 1,
                **self._trouble.config,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_MS_MAX,
            }
        )
        self._is_closed = threading.Event()
        self._broken_by: Any = None
        self._thread = threading.Thread(target=self._poll, name="millstream-outbox", daemon=True)
        self._thread.start()

    @property
    def is_broken(self) -> bool:
        """Nothing can be put by it any more; another may do."""
        return self._broken_by is not None

    def put(
        self, topic: str, records: Iterable[Record], *, deadline: float | None = None
    ) -> list[Receipt]:
        """All are sent before the first is waited for. `deadline`, by the monotonic clock: until
        when, if that is before the client gives up by itself."""
        futures = [self._send(topic, one, deadline) for one in records]
        return [self._confirmed(topic, future, deadline) for future in futures]

    def _confirmed(self, topic: str, future: "Future[Receipt]", deadline: float | None) -> Receipt:
        patience_ends = time.monotonic() + TROUBLE_SECONDS_MAX
        while True:
            try:
                return future.result(self._pause(deadline))
            except TimeoutError:
                cause = self._trouble.cause()
                if cause is not None and time.monotonic() > patience_ends:
                    self._producer.purge(in_flight=False)  # it shall not be put later, unseen
                    raise cause from None
                if not self._thread.is_alive():
                    raise PutFailed(topic=topic, reason="it was closed meanwhile") from None
                self._require_time(topic, deadline)

    @staticmethod
    def _pause(deadline: float | None) -> float:
        if deadline is None:
            return POLL_SECONDS
        return max(0.0, min(POLL_SECONDS, deadline - time.monotonic()))

    def _require_time(self, topic: str, deadline: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline:
            nobody = f"no broker answers at {self._trouble.brokers}"
            reason = nobody if self._trouble.is_there else "the broker has not confirmed it yet"
            raise NotInTime(topic=topic, reason=reason) from None

    def _send(self, topic: str, record: Record, deadline: float | None) -> "Future[Receipt]":
        from confluent_kafka import KafkaException

        future: Future[Receipt] = Future()

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                future.set_exception(self._failure(topic, error))
            else:
                self._trouble.passed()
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
                raise self._failure(topic, error.args[0]) from error
            except BufferError:  # librdkafka's queue is full: let it drain
                self._serve_callbacks(FULL_QUEUE_POLL_SECONDS)
                self._require_time(topic, deadline)

    def _failure(self, topic: str, error: Any) -> MillstreamError:
        if error.name() == "_FATAL" and self._broken_by is not None:
            error = self._broken_by
        name = error.name()
        if name.endswith("_AUTHORIZATION_FAILED"):  # librdkafka remembers that for minutes
            self._broken_by = error
        if name.endswith("_AUTHORIZATION_FAILED") or name in REFUSALS:
            return PutRefused(topic=topic, reason=error.str())
        if name == "_MSG_TIMED_OUT":
            said = f"no broker answers at {self._trouble.brokers}"
            reason = said if self._trouble.is_there else "no answer"
            return PutFailed(topic=topic, reason=f"{reason}, for {DELIVERY_MS_MAX // 1000} s")
        return self._trouble.cause() or PutFailed(topic=topic, reason=error.str())

    def _warn(self, error: Any) -> None:
        """Whoever puts now waits: say so, once for each time that all brokers are lost."""
        if error.name() == "_ALL_BROKERS_DOWN":
            logger.warning(
                "%s: no broker at %s can be used; %s wait up to %d s to be written",
                self._trouble.user,
                self._trouble.brokers,
                self._records,
                DELIVERY_MS_MAX // 1000,
            )

    def _poll(self) -> None:
        """Until it is closed, and everybody who waits has been told."""
        while not self._is_closed.is_set() or len(self._producer) > 0:
            self._serve_callbacks(POLL_SECONDS)

    def _serve_callbacks(self, seconds: float) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.poll(seconds)
        except KafkaException as error:  # a fatal one: nothing can be put by it any more
            self._broken_by = error.args[0]

    def end(self) -> None:
        """Without waiting; what was sent is still confirmed. A finalizer may call this."""
        self._is_closed.set()

    def close(self) -> None:
        self.end()
        self._thread.join()
