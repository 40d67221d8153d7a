"""Consumers whose every assignment is written down; nothing here decides what is read."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.consistency.history import Isolation, Kind, Read
from tests.faults.consistency.history_file import HistoryFile
from tests.faults.consistency.patience import CALL_SECONDS_MAX, PATIENT
from tests.faults.consistency.places import name_of, read_of, topic_partitions

# What a member of a group by the older protocol says; the newer one leaves it to the broker.
CLASSIC = {
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 6_000,  # the least that a broker allows
}
NEWER = {"group.protocol": "consumer"}


class Reading:
    """A consumer whose polls become reads; what it is assigned is written down."""

    def __init__(
        self, bootstrap: str, history: HistoryFile, isolation: Isolation, group: str, **config: Any
    ) -> None:
        self._history = history
        self.isolation = isolation
        self.consumer = Consumer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **config,
            }
        )

    def assign(self, positions: Mapping[str, int]) -> None:
        self._history.note(Kind.ASSIGN, positions=dict(positions))
        self.consumer.assign(topic_partitions(positions))

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics, on_assign=self._rebalanced, on_revoke=self._rebalanced, on_lost=self._rebalanced
        )

    def _rebalanced(self, _: object, partitions: list[TopicPartition]) -> None:
        names = [name_of(one) for one in partitions]
        self._history.note(Kind.SUBSCRIBE, note=" ".join(names))

    def seek(self, positions: Mapping[str, int]) -> None:
        """Go back. A partition that was taken away meanwhile has nowhere to go back to."""
        for place in topic_partitions(positions):
            try:
                self.consumer.seek(place)
            except KafkaException:
                continue
            self._history.note(Kind.ASSIGN, positions={name_of(place): place.offset})

    def committed(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Where the group is; at `positions` if it has never been anywhere."""
        places = topic_partitions(positions)
        answers = self.consumer.committed(places, timeout=CALL_SECONDS_MAX)
        return {
            name_of(one): one.offset if one.offset >= 0 else positions[name_of(one)]
            for one in answers
        }

    def take(self, count: int, seconds: float) -> list[Read]:
        messages = self.consumer.consume(count, timeout=seconds)
        return [read_of(message) for message in messages if message.error() is None]
