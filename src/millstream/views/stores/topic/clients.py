"""How views in topics reach a broker through librdkafka: one configuration, its errors as ours.

Works with Millstream's broker and with Apache Kafka alike.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.librdkafka import FENCED, PASSING, admin_api, quiet_config

Client = Mapping[str, Any]  # librdkafka's settings, with bootstrap.servers

# A broker that was killed and has much to check is back within this.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.05
BROKERS_DEFAULT = -1


class TopicsNotReached(Retryable):
    def __init__(self, *, brokers: str, doing: str, reason: str) -> None:
        super().__init__(
            f"Cannot {doing}: the broker at {brokers} does not answer, or not yet ({reason})"
        )
        self.brokers, self.doing, self.reason = brokers, doing, reason


class TopicsRefused(Rejected):
    def __init__(self, *, doing: str, reason: str) -> None:
        super().__init__(f"Cannot {doing}: {reason}")
        self.doing, self.reason = doing, reason


class ProducerFenced(Retryable):
    """Another producer has opened the transactional id; whose, the notes of the view say."""

    def __init__(self, *, transactional_id: str) -> None:
        super().__init__(f"{transactional_id}: another producer has taken over. Try again")
        self.transactional_id = transactional_id


def client_config(client: Client) -> dict[str, Any]:
    return quiet_config(client, name="millstream-views")


@contextmanager
def translated(client: Client, *, doing: str) -> Iterator[None]:
    """librdkafka's errors as ours."""
    brokers = str(client["bootstrap.servers"])
    try:
        yield
    except KafkaException as error:
        raise error_from(error.args[0], doing=doing, brokers=brokers) from None
    except TimeoutError:  # of a future
        raise TopicsNotReached(brokers=brokers, doing=doing, reason="no answer") from None


def error_from(error: KafkaError, *, doing: str, brokers: str) -> MillstreamError:
    if error.name() in FENCED:
        return ProducerFenced(transactional_id=doing)
    reason = f"{error.str()} ({error.name()})"
    if is_passing(error):
        return TopicsNotReached(brokers=brokers, doing=doing, reason=reason)
    return TopicsRefused(doing=doing, reason=reason)


def is_passing(error: KafkaError) -> bool:
    """What goes by itself: nobody answers, or somebody who is not ready."""
    return error.retriable() or error.name() in PASSING


class Topics:
    """Makes, finds and removes topics. Its connection waits for no records: answers are quick."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admin: Any = admin_api().AdminClient(client_config(client))

    def partitions(self) -> dict[str, int]:
        """How many each topic has. Asks for all: to ask for one by its name may make it."""
        with translated(self._client, doing="list topics"):
            found = self._admin.list_topics(timeout=PATIENCE_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def committed_ends(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where every transaction before has ended, as of now."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._committed_ends(name, partitions)
            except TopicsNotReached:  # by a broker that has started again, or of a new topic
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

    def make(self, name: str, *, partitions: int, config: Mapping[str, str]) -> None:
        """Unless it is there; one that is just being deleted is waited for."""
        new = admin_api().NewTopic(name, partitions, -1, config=dict(config))

        def is_made() -> bool:
            if name in self.partitions():
                return True
            self._answered(self._admin.create_topics([new])[name], "TOPIC_ALREADY_EXISTS", name)
            return name in self.partitions()

        self._await(is_made, doing=f"create topic {name}")

    def remove(self, *names: str) -> None:
        there = self.partitions()
        found = [name for name in names if name in there]
        if found:
            for name, answer in self._admin.delete_topics(found).items():
                self._answered(answer, "UNKNOWN_TOPIC_OR_PART", name)
            self._await(lambda: not set(found) & set(self.partitions()), doing="delete topics")

    def _answered(self, answer: Any, expected: str, name: str) -> None:
        try:
            with translated(self._client, doing=f"create or delete topic {name}"):
                answer.result(PATIENCE_SECONDS)
        except MillstreamError as error:
            if expected not in str(error):
                raise

    def _await(self, is_so: Callable[[], bool], *, doing: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > until:
                brokers = str(self._client["bootstrap.servers"])
                raise TopicsNotReached(brokers=brokers, doing=doing, reason="it takes too long")
            time.sleep(PAUSE_SECONDS)
