"""How captures reach a broker through librdkafka: one configuration, its errors as ours.

Works with Millstream's broker and with Apache Kafka alike. Knows nothing of what is written.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from millstream.base import librdkafka
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.librdkafka import admin_api

Client = Mapping[str, Any]  # librdkafka's settings, with bootstrap.servers

# A broker that was killed and has much to check is back within this.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.05
BROKERS_DEFAULT = -1
FENCED = librdkafka.FENCED | {"_FATAL"}  # what a producer says once it was told so before
PASSING = librdkafka.PASSING | {
    "_INCONSISTENT",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "KAFKA_STORAGE_ERROR",  # a full disk, until there is room
}


class LogNotReached(Retryable):
    def __init__(self, *, brokers: str, doing: str, reason: str) -> None:
        super().__init__(
            f"Cannot {doing}: the broker at {brokers} does not answer, or not yet ({reason})"
        )
        self.brokers, self.doing, self.reason = brokers, doing, reason


class LogRefused(Rejected):
    def __init__(self, *, doing: str, reason: str) -> None:
        super().__init__(f"Cannot {doing}: {reason}")
        self.doing, self.reason = doing, reason


class WriterFenced(Rejected):
    """Another producer has opened the transactional id. Nothing of the open transaction counts."""

    def __init__(self, *, doing: str) -> None:
        super().__init__(f"Cannot {doing}: another run has taken over")
        self.doing = doing


def client_config(client: Client) -> dict[str, Any]:
    return librdkafka.quiet_config(client, name="millstream-capture")


@contextmanager
def translated(client: Client, *, doing: str) -> Iterator[None]:
    """librdkafka's errors as ours."""
    try:
        with unhidden():
            yield
    except KafkaException as error:
        raise error_from(error.args[0], client, doing=doing) from None
    except TimeoutError:  # of a future
        brokers = str(client["bootstrap.servers"])
        raise LogNotReached(brokers=brokers, doing=doing, reason="no answer") from None


@contextmanager
def unhidden() -> Iterator[None]:
    """The client reports records to us while it raises a fatal error already, and then complains
    of that: the error is what counts."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def error_from(error: KafkaError, client: Client, *, doing: str) -> MillstreamError:
    if error.name() in FENCED:
        return WriterFenced(doing=doing)
    reason = f"{error.str()} ({error.name()})"
    if error.retriable() or error.txn_requires_abort() or error.name() in PASSING:
        return LogNotReached(brokers=str(client["bootstrap.servers"]), doing=doing, reason=reason)
    return LogRefused(doing=doing, reason=reason)


class Topics:
    """Makes topics that are not there, and knows how many partitions they have."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin: Any = admin_api().AdminClient(client_config(client))
        self._partitions: dict[str, int] = {}

    def ensure(self, name: str, *, partitions: int | None, config: Mapping[str, str]) -> int:
        """How many partitions the topic has, that is there now."""
        if name not in self._partitions:
            self._make(name, partitions or BROKERS_DEFAULT, config)
        return self._partitions[name]

    def _make(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        new = admin_api().NewTopic(name, partitions, -1, config=dict(config))
        while not self._is_there(name):
            self._create(new)
            if time.monotonic() > until:
                raise LogNotReached(
                    brokers=str(self._client["bootstrap.servers"]),
                    doing=f"create topic {name}",
                    reason="it takes too long",
                )
            time.sleep(PAUSE_SECONDS)

    def _is_there(self, name: str) -> bool:
        """Asks for all: to ask for one by its name may make it."""
        with translated(self._client, doing="list topics"):
            found = self._admin.list_topics(timeout=PATIENCE_SECONDS).topics
        self._partitions = {one: len(topic.partitions) for one, topic in found.items()}
        return name in self._partitions

    def _create(self, new: Any) -> None:
        try:
            with translated(self._client, doing=f"create topic {new.topic}"):
                self._admin.create_topics([new])[new.topic].result(PATIENCE_SECONDS)
        except LogRefused as error:
            if "TOPIC_ALREADY_EXISTS" not in error.reason:
                raise
