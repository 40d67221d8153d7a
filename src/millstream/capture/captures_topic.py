"""Reads the topics `_captures` and `_captures.<name>`, and goes on reading them; and writes what is
wanted into the first. A thin shell around `position_record.py`.

Reads what is committed. Used by one thread.
"""

import time
from collections.abc import Sequence

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    Topics,
    client_config,
    error_from,
    translated,
)
from millstream.capture.position_record import (
    RUN_TOPIC_PREFIX,
    TOPIC,
    CaptureBook,
    Note,
    run_topic,
)

POLL_SECONDS = 0.2
MESSAGES_MAX = 500
# A commit of a capture is a record or two. What compaction has not reached is read at every start.
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}


def make_captures_topic(topics: Topics) -> None:
    topics.ensure(TOPIC, partitions=1, config=CONFIG, holds="the definitions of captures")


def make_run_topic(topics: Topics, capture: str) -> None:
    holds = f"the position and the schemas of capture {capture}"
    topics.ensure(run_topic(capture), partitions=1, config=CONFIG, holds=holds)


class CapturesTopic:
    """`book` has what was read: of this capture, or of all that there are now. The topics of those
    must be there."""

    def __init__(self, client: Client, capture: str | None = None) -> None:
        self.book = CaptureBook()
        self._client = client
        self._consumer = Consumer(
            client_config(client)
            | {
                "group.id": "millstream-captures",  # asked for by the client; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 1024,
            }
        )
        names = [run_topic(capture)] if capture is not None else self._run_topics()
        self._unread, self._names = {TOPIC, *names}, frozenset(names)
        self._consumer.assign([TopicPartition(name, 0, 0) for name in self._unread])

    def _run_topics(self) -> list[str]:
        with translated(self._client, doing="list topics"):
            found = self._consumer.list_topics(timeout=PATIENCE_SECONDS).topics
        return [name for name in found if name.startswith(RUN_TOPIC_PREFIX)]

    def read_to_end(self) -> CaptureBook:
        """All that is committed now."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None:
                self._take(message)
            if not self._unread:
                return self.book
        raise LogNotReached(
            brokers=str(self._client["bootstrap.servers"]),
            doing=f"read {TOPIC}",
            reason="its end was not reached in time",
        )

    def follow(self, timeout_s: float = 0.0) -> bool:
        """Take in what came since; whether anything did."""
        found = self._consumer.consume(MESSAGES_MAX, timeout_s)
        for message in found:
            self._take(message)
        return bool(found)

    @property
    def has_all(self) -> bool:
        """Whether those that are defined by now are all read."""
        return all(run_topic(name) in self._names for name, _ in self.book.defined())

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.book.apply(message.topic() or "", message.key() or b"", message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(message.topic() or "")
        elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            raise error_from(error, self._client, doing=f"read {TOPIC}") from KafkaException(error)


class FollowedCaptures:
    """For who looks again and again: only what came since is read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._captures = self._opened()

    def look(self) -> CaptureBook:
        while self._captures.follow():
            pass
        if not self._captures.has_all:  # one that was not run yet has no topic of its own
            self._captures.close()
            self._captures = self._opened()
        return self._captures.book

    def _opened(self) -> CapturesTopic:
        captures = CapturesTopic(self._client)
        captures.read_to_end()
        return captures

    def close(self) -> None:
        self._captures.close()


def write_wanted(client: Client, notes: Sequence[Note]) -> None:
    """Into `_captures`; durable when it returns."""
    failed: list[KafkaError] = []

    def note_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(client_config(client) | {"linger.ms": 0, "acks": "all"})
    with translated(client, doing=f"write to {TOPIC}"):
        for key, value in notes:
            producer.produce(TOPIC, value, key, on_delivery=note_failure)
        left = producer.flush(PATIENCE_SECONDS)
    if failed:
        raise error_from(failed[0], client, doing=f"write to {TOPIC}")
    if left:
        brokers = str(client["bootstrap.servers"])
        raise LogNotReached(brokers=brokers, doing=f"write to {TOPIC}", reason="no answer")
