"""How our own clients reach a broker through librdkafka: one configuration, its errors as ours.

Works with Millstream's broker and with Apache Kafka alike. Knows nothing of what is written.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from millstream.base import librdkafka
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.librdkafka import admin_api
from millstream.base.offsets import OffsetRange
from millstream.base.topic_check import check_topics
from millstream.base.topic_terms import TopicTerms

Client = Mapping[str, Any]  # librdkafka's settings, with bootstrap.servers

# A broker that was killed and has much to check is back within this.
PATIENCE_SECONDS = 60.0
ANSWER_SECONDS = 5.0
PAUSE_SECONDS = 0.05
BROKERS_DEFAULT = -1
FENCED = librdkafka.FENCED | {"_FATAL"}  # what a producer says once it was told so before
# By which the broker says that it will never take a record.
REFUSED = frozenset(
    {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "POLICY_VIOLATION"}
)
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
        super().__init__(f"Cannot {doing}: another producer has taken over")
        self.doing = doing


def client_config(client: Client) -> dict[str, Any]:
    return librdkafka.quiet_config(client, name="millstream")


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
    if error.name() in REFUSED or error.name().endswith("_AUTHORIZATION_FAILED"):
        return LogRefused(doing=doing, reason=reason)
    if error.retriable() or error.txn_requires_abort() or error.name() in PASSING:
        return LogNotReached(brokers=str(client["bootstrap.servers"]), doing=doing, reason=reason)
    return LogRefused(doing=doing, reason=reason)


def offset_bounds(
    consumer: Any, place: TopicPartition, client: Client, *, patience_s: float = PATIENCE_SECONDS
) -> OffsetRange:
    """From the oldest record to the end that this consumer may see, as of now.

    Waits for a broker that starts again, and until a new topic's leader knows that it is one.
    """
    until = time.monotonic() + patience_s
    answer_s = min(ANSWER_SECONDS, patience_s)
    while True:
        try:
            with translated(client, doing=f"read {place.topic}[{place.partition}]"):
                start, end = consumer.get_watermark_offsets(place, timeout=answer_s, cached=False)
            return OffsetRange(start=start, end=end)
        except LogNotReached:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)


class Topics:
    """Makes, finds and removes topics. Its connection waits for no records: answers are quick."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin: Any = admin_api().AdminClient(client_config(client))
        self._known: dict[str, int] = {}
        self._fit: set[str] = set()  # made here, or compared with their terms

    def partitions(self) -> dict[str, int]:
        """How many each topic has. Asks for all: to ask for one by its name may make it."""
        with translated(self._client, doing="list topics"):
            found = self._admin.list_topics(timeout=PATIENCE_SECONDS).topics
        self._known = {name: len(topic.partitions) for name, topic in found.items()}
        return self._known

    def cluster_id(self) -> str:
        with translated(self._client, doing="ask for the id of the cluster"):
            return str(self._admin.list_topics(timeout=PATIENCE_SECONDS).cluster_id)

    def ensure(
        self,
        name: str,
        *,
        partitions: int | None,
        config: Mapping[str, str],
        holds: str = "its records",
        is_needed: bool = True,
    ) -> int:
        """Make the topic unless it exists; one that exists must keep what it holds.

        Gives how many partitions it has.
        """
        if name not in self._known:
            self.make(name, partitions=partitions or BROKERS_DEFAULT, config=config)
        if name not in self._fit:
            terms = TopicTerms(
                name=name, config=config, partitions=partitions, holds=holds, is_needed=is_needed
            )
            with translated(self._client, doing=f"read the configs of topic {name}"):
                check_topics(self._admin, [terms], self._known)
            self._fit.add(name)
        return self._known[name]

    def make(self, name: str, *, partitions: int, config: Mapping[str, str]) -> None:
        """Unless it exists, and then as it is; one that is just being deleted is waited for."""
        new = admin_api().NewTopic(name, partitions, -1, config=dict(config))

        def is_made() -> bool:
            if name in self.partitions():
                return True
            answer = self._admin.create_topics([new])[name]
            if self._answered(answer, "TOPIC_ALREADY_EXISTS", doing=f"create topic {name}"):
                self._fit.add(name)
            return name in self.partitions()

        self._await(is_made, doing=f"create topic {name}")

    def remove(self, *names: str) -> None:
        there = self.partitions()
        found = [name for name in names if name in there]
        if found:
            self._fit -= set(found)
            for name, answer in self._admin.delete_topics(found).items():
                self._answered(answer, "UNKNOWN_TOPIC_OR_PART", doing=f"delete topic {name}")
            self._await(lambda: not set(found) & set(self.partitions()), doing="delete topics")

    def committed_ends(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where every transaction before has ended, as of now."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._committed_ends(name, partitions)
            except LogNotReached:  # by a broker that has started again, or of a new topic
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE_SECONDS)
                self.partitions()  # what is known of the broker is old

    def _committed_ends(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        latest = admin_api().OffsetSpec.latest()
        asked = {TopicPartition(name, number): latest for number in partitions}
        with translated(self._client, doing=f"read {name}"):
            answers = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
            return {
                place.partition: answer.result(PATIENCE_SECONDS).offset
                for place, answer in answers.items()
            }

    def _answered(self, answer: Any, expected: str, *, doing: str) -> bool:
        """Whether it was done; not if the error is the expected one."""
        try:
            with translated(self._client, doing=doing):
                answer.result(PATIENCE_SECONDS)
        except MillstreamError as error:
            if expected not in str(error):
                raise
            return False
        return True

    def _await(self, is_so: Callable[[], bool], *, doing: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > until:
                brokers = str(self._client["bootstrap.servers"])
                raise LogNotReached(brokers=brokers, doing=doing, reason="it takes too long")
            time.sleep(PAUSE_SECONDS)
