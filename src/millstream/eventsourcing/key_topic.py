"""Reads the topic of keys to its end, and changes it in Kafka transactions. The shell around
`key_book.py`.

To change it is to be its only writer: whoever opens the transactional id fences the one before,
then reads what is committed, decides by that, and commits. A writer that was fenced, or whose
commit was not answered, opens it again and decides anew: decisions are made so that a change which
is there already asks for nothing. Used by one thread at a time.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    Topics,
    WriterFenced,
    client_config,
    error_from,
    translated,
)
from millstream.base.quantity import MIB
from millstream.eventsourcing.key_book import KeyBook, Note

POLL_SECONDS: Final = 0.5
MARKER: Final = 1
MESSAGES_MAX: Final = 5_000
CLOSE_SECONDS: Final = 5.0
# Each lost try is one that another process has won, or a broker that is away.
TRIES_MAX: Final = 30
CHANGE_SECONDS_MAX: Final = 2 * PATIENCE_SECONDS
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 1.0
CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * MIB)}
PRODUCER: Final = {
    "linger.ms": 2,  # a commit does not wait for it
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "transaction.timeout.ms": 60_000,
}

Decide = Callable[[KeyBook], Sequence[Note]]


class UnfitKeyTopic(Rejected):
    def __init__(self, *, topic: str, partitions: int) -> None:
        super().__init__(
            f"topic {topic} has {partitions} partitions: keys need one with a single partition and "
            "cleanup.policy=compact. Was it made by something else?"
        )
        self.topic, self.partitions = topic, partitions


class KeysContended(Retryable):
    def __init__(self, *, topic: str, tries: int, reason: str) -> None:
        super().__init__(
            f"cannot change {topic}: {tries} tries have failed, the last one because: {reason}. "
            "Nothing is lost: try again"
        )
        self.topic, self.tries, self.reason = topic, tries, reason


class KeyTopic:
    """`book` is what was read of it."""

    def __init__(
        self, client: Client, name: str, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.client, self.name, self._pause = client, name, pause
        self.book = KeyBook()
        self._made_topics: Topics | None = None
        self._consumer: Any = None
        self._producer: Any = None
        self._read_to = 0

    @property
    def _topics(self) -> Topics:
        """Connects when it is first used."""
        if self._made_topics is None:
            self._made_topics = Topics(self.client)
        return self._made_topics

    def refresh(self) -> None:
        """Read all that is committed as of now."""
        if self._consumer is None:
            self._open_consumer()
        # The last offset is that of a marker, as all is written in transactions: the client tells
        # that it is past it only when it has waited for more.
        end = self._topics.committed_ends(self.name, [0])[0] - MARKER
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read_to < end:
            found = self._consumed()
            for message in found:
                self._take(message)
            if found:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise self._not_reached("its end was not reached in time")

    def _consumed(self) -> list[Message]:
        """What is there; if nothing is, what comes next."""
        with translated(self.client, doing=f"read {self.name}"):
            found: list[Message] = self._consumer.consume(MESSAGES_MAX, 0)
            if not found and (one := self._consumer.poll(POLL_SECONDS)) is not None:
                found = [one]
        return found

    def change(self, decide: Decide) -> None:
        """Commit what is decided by what is committed; nothing if it is nothing."""
        reason: Exception | None = None
        deadline = time.monotonic() + CHANGE_SECONDS_MAX
        tries = 0
        while tries < TRIES_MAX and time.monotonic() < deadline:
            try:
                self._change(decide)
                return
            except (WriterFenced, LogNotReached) as error:
                reason, tries = error, tries + 1
                self._drop_producer()
                ceiling = min(PAUSE_SECONDS_MIN * 2**tries, PAUSE_SECONDS_MAX)
                self._pause(random.uniform(0, ceiling))
        raise KeysContended(topic=self.name, tries=tries, reason=str(reason)) from reason

    def close(self) -> None:
        self._drop_producer()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _change(self, decide: Decide) -> None:
        if self._producer is None:
            self._open_producer()
            self.refresh()
        notes = self._decided(decide)
        if notes:
            self._settle(notes, self._commit(notes))

    def _decided(self, decide: Decide) -> Sequence[Note]:
        """One that is refused by what is old news is tried again by the newest."""
        while True:
            try:
                return decide(self.book)
            except MillstreamError:
                before = self._read_to
                self.refresh()
                if self._read_to == before:
                    raise

    def _commit(self, notes: Sequence[Note]) -> int:
        """The offset of the last one."""
        written: list[int] = []

        def note_offset(error: KafkaError | None, message: Message) -> None:
            if error is None and (offset := message.offset()) is not None:
                written.append(offset)

        with translated(self.client, doing=f"write to {self.name}"):
            self._producer.begin_transaction()
            for key, value in notes[:-1]:
                self._put(key, value)
            self._put(*notes[-1], on_delivery=note_offset)
            self._producer.commit_transaction(PATIENCE_SECONDS)
            self._producer.poll(0)
        if not written:
            raise self._not_reached("it was committed, and not said where")
        return written[-1]

    def _settle(self, notes: Sequence[Note], offset: int) -> None:
        """They count, as nobody else has written since we read. `offset` is the last one's. Kafka
        answers a commit before others can read it: a moment, and they can."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._topics.committed_ends(self.name, [0])[0] <= offset:
            if time.monotonic() > deadline:
                raise self._not_reached("what was committed cannot be read yet")
            self._pause(PAUSE_SECONDS_MIN)
        for key, value in notes:
            self.book.apply(key, value, place=f"{self.name}[0]")
        self._read_to = offset + 1

    def _put(self, key: bytes, value: bytes, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(self.name, value, key, 0, **more)
                return
            except BufferError:
                self._producer.poll(POLL_SECONDS)

    def _open_producer(self) -> None:
        """Fences whoever had it. What is committed then, and only that, is what counts."""
        self._ensure()
        settings = {"transactional.id": f"millstream-keys-{self.name}"}
        self._producer = Producer(client_config(self.client) | PRODUCER | settings)
        with translated(self.client, doing=f"open {self.name} for writing"):
            # A producer that is not connected yet looks for its coordinator again in 500 ms.
            self._producer.list_topics(timeout=PATIENCE_SECONDS)
            self._producer.init_transactions(PATIENCE_SECONDS)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # What it has not committed does not count; that it cannot be told so is no matter.
            with contextlib.suppress(KafkaException, SystemError):
                producer.purge()
                producer.flush(CLOSE_SECONDS)

    def _ensure(self) -> None:
        partitions = self._topics.partitions().get(self.name, 1)
        if partitions != 1:
            raise UnfitKeyTopic(topic=self.name, partitions=partitions)
        holds = "keys, and what they seal could never be opened again"
        self._topics.ensure(self.name, partitions=1, config=CONFIG, holds=holds)

    def _open_consumer(self) -> None:
        self._ensure()
        self._consumer = Consumer(
            client_config(self.client)
            | {
                "group.id": "millstream-keys",  # asked for by the client; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(self.name, 0, self._read_to)])

    def _take(self, message: Message) -> None:
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < self._read_to:
            return  # what we have written ourselves is known
        if error is None:
            place = f"{self.name}[0] at offset {offset}"
            self.book.apply(message.key(), message.value(), place=place)
            self._read_to = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read_to = max(self._read_to, offset)  # markers have no message
        elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            raise error_from(error, self.client, doing=f"read {self.name}")

    def _not_reached(self, reason: str) -> LogNotReached:
        brokers = str(self.client["bootstrap.servers"])
        return LogNotReached(brokers=brokers, doing=f"read {self.name}", reason=reason)
