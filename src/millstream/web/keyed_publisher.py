"""Publishes rows under an idempotency key: once, whatever the client, this process or the broker
do meanwhile. A thin shell around `key_journal.py`.

Rows and key are one Kafka transaction. The transactional id is the application's: who opens it ends
what another server left open, and fences that server; then it reads the keys, of which none can
be added behind its back. So the last committed key says all. Two servers of one application take
the id from one another, which is slow, and as exact.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.base.errors import Rejected, Retryable
from millstream.base.quantity import HOUR_MS
from millstream.base.record import Record
from millstream.base.tracing import published, span, traced
from millstream.processing.kafka_clients import FENCED, client_config, code_of, make_topic
from millstream.queues.outbox import REFUSALS, Receipt
from millstream.web.key_journal import (
    DamagedKeyRecord,
    KeyBook,
    KeyUse,
    require_same,
    use_from,
)

BOOTSTRAP = "bootstrap.servers"
# A client of HTTP waits for it.
PATIENCE_SECONDS = 20.0
POLL_SECONDS = 0.2
# It is worth a moment; a broker that is away ends it after the transaction's own timeout.
ABORT_SECONDS = 5.0
# Another server takes the transactional id away as often as it publishes itself.
ATTEMPTS_MAX = 5


class PublishInDoubt(Retryable):
    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(
            f"{topic}: whether the rows were written is not known ({reason}). Send them again "
            "under the same Idempotency-Key: they are written once"
        )
        self.topic, self.reason = topic, reason


class RowsRefused(Rejected):
    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: the broker refuses the rows ({reason}). None was written")
        self.topic, self.reason = topic, reason


class ProducerLost(Exception):
    """Another server of the application has opened the transactional id: a new producer finds out
    what there is, and tries again."""


def keys_topic(app: str) -> str:
    return f"_http_keys.{app}"


class KeyedPublisher:
    """Thread-safe: one transaction at a time."""

    def __init__(
        self,
        app: str,
        config: Callable[[], Mapping[str, Any]],
        *,
        keep_ms: int,
        bytes_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._topic, self._id = keys_topic(app), f"{app}/http"
        self._config, self._now_ms = config, now_ms
        self._keep_ms, self._bytes_max = keep_ms, bytes_max
        self._book = KeyBook(keep_ms=keep_ms, bytes_max=bytes_max)
        self._producer: Producer | None = None
        self._left: Producer | None = None
        self._lock = threading.Lock()

    def publish(
        self, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> list[Receipt]:
        """Where the records are: written now, or under this key before."""
        with span(f"publish {topic}", published(topic, len(records))), self._lock:
            records = traced(records)
            for _ in range(ATTEMPTS_MAX):
                try:
                    return self._publish(key, request, topic, records)
                except ProducerLost:
                    self._producer = None
            reason = "another server of this application publishes all the time"
            raise PublishInDoubt(topic=topic, reason=reason)

    def close(self) -> None:
        with self._lock:
            self._producer = None

    def _publish(
        self, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> list[Receipt]:
        producer = self._producer or self._open(topic)
        self._book.forget_before(self._now_ms())
        known = self._book.find(key)
        if known is not None:
            require_same(key, known, topic=topic, request=request)
            return list(known.receipts)
        self._book.require_room()
        use = self._write(producer, key, request, topic, records)
        self._book.add(key, use.to_value(), at_ms=self._now_ms())
        return list(use.receipts)

    # --- one transaction ----------------------------------------------------------------------

    def _write(
        self, producer: Producer, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> KeyUse:
        """Whatever fails, the producer is left, its transaction ended if it can be: readers of
        committed records wait for that. The next producer ends it else, and finds out what has
        become of it."""
        self._producer = None
        try:
            producer.begin_transaction()
            use = KeyUse(topic, request, _sent(producer, topic, records))
            _sent(producer, self._topic, [Record(key=key.encode(), value=use.to_value())])
            _commit(producer)
        except (KafkaException, SystemError, PublishInDoubt, RowsRefused) as error:
            self._left = producer  # until another is left: not while this error is on its way
            _drain(producer)
            _abort(producer)
            raise _error(error, topic) from None
        self._producer = producer
        return use

    # --- the start ----------------------------------------------------------------------------

    def _open(self, topic: str) -> Producer:
        config = dict(self._config())
        brokers = str(config.pop(BOOTSTRAP))
        make_topic(
            brokers,
            config,
            self._topic,
            partitions=1,
            config=self._topic_config(),
            is_needed=False,
        )
        common = client_config(brokers, config)
        producer = Producer(common | {"transactional.id": self._id, "linger.ms": 0})
        try:
            producer.init_transactions(PATIENCE_SECONDS)
            self._book = self._read_book(common)
        except KafkaException as error:
            self._left = producer
            raise _error(error, topic) from None
        self._producer = producer
        return producer

    def _topic_config(self) -> dict[str, str]:
        """Whole segments end: with some to a retention, not much more than it is kept."""
        segment_ms = max(HOUR_MS, self._keep_ms // 4)
        return {"retention.ms": f"{self._keep_ms}", "segment.ms": f"{segment_ms}"}

    def _read_book(self, config: dict[str, Any]) -> KeyBook:
        book = KeyBook(keep_ms=self._keep_ms, bytes_max=self._bytes_max)
        consumer = Consumer(
            config
            | {
                "group.id": "millstream-http-keys",  # asked for by the client; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,  # the end is told when a fetch finds no more
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            self._read_to_end(consumer, book)
        finally:
            consumer.close()
        return book

    def _read_to_end(self, consumer: Consumer, book: KeyBook) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        while monotonic() < deadline:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._note(message, book)
                deadline = monotonic() + PATIENCE_SECONDS
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif not error.retriable():
                raise KafkaException(error)
        raise PublishInDoubt(topic=self._topic, reason="its keys could not be read in time")

    def _note(self, message: Message, book: KeyBook) -> None:
        key, value = message.key() or b"", message.value() or b""
        try:
            use_from(value)
            book.add(key.decode(), value, at_ms=message.timestamp()[1])
        except (ValueError, KeyError, TypeError):
            offset = message.offset() or 0
            raise DamagedKeyRecord(topic=self._topic, offset=offset) from None


def _sent(producer: Producer, topic: str, records: Sequence[Record]) -> tuple[Receipt, ...]:
    """Send them in the open transaction; where they are, once it commits."""
    places: list[Receipt | None] = [None] * len(records)
    failed: list[KafkaError] = []
    for place, record in enumerate(records):
        _send(producer, topic, record, _noting(topic, places, place, failed))
    producer.flush(PATIENCE_SECONDS)
    if failed:
        raise _refusal(failed[0], topic)
    found = tuple(one for one in places if one is not None)
    if len(found) < len(records):
        raise PublishInDoubt(topic=topic, reason="no answer in time")
    return found


def _noting(
    topic: str, places: list[Receipt | None], place: int, failed: list[KafkaError]
) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            places[place] = Receipt(topic, message.partition() or 0, message.offset() or 0)

    return note


def _send(producer: Producer, topic: str, record: Record, note: Any) -> None:
    while True:
        try:
            return producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=note,
            )
        except BufferError:
            producer.poll(POLL_SECONDS)
        except KafkaException as error:
            raise _refusal(error.args[0], topic) from None


def _commit(producer: Producer) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return producer.commit_transaction(PATIENCE_SECONDS)
        except KafkaException as error:
            # A commit that was not answered is asked again: it is the same commit.
            if not error.args[0].retriable() or monotonic() > deadline:
                raise


def _refusal(error: KafkaError, topic: str) -> Exception:
    if error.name() in REFUSALS or error.name().endswith("_AUTHORIZATION_FAILED"):
        return RowsRefused(topic=topic, reason=error.str())
    return KafkaException(error)


def _drain(producer: Producer) -> None:
    """Let it tell now what it has still to tell: it must not while it is thrown away."""
    producer.purge()
    with contextlib.suppress(KafkaException, SystemError):
        producer.flush(PATIENCE_SECONDS)


def _abort(producer: Producer) -> None:
    """As far as it goes: not after a fence, nor where a commit is on its way."""
    with contextlib.suppress(KafkaException, SystemError):
        producer.abort_transaction(ABORT_SECONDS)


def _error(error: Exception, topic: str) -> Exception:
    if isinstance(error, SystemError):  # confluent_kafka calls back with a fatal error on its way
        return ProducerLost()
    if not isinstance(error, KafkaException):
        return error
    if code_of(error) in FENCED:
        return ProducerLost()
    return PublishInDoubt(topic=topic, reason=error.args[0].str())
