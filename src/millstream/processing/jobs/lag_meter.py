"""Asks the broker how far a job is from the end of its topics: the shell around `lag.py`.

Each look is one small request, or two; the time of the oldest unread record of a partition is
read once for each place where a batch has left it. A broker that does not answer soon is not asked
again for a while: a job does not wait for its own figures.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

from millstream.base.clock import Clock, system_clock
from millstream.base.librdkafka import admin_api
from millstream.processing.jobs.lag import Lag, Reached, lag_of, unread
from millstream.processing.kafka_clients import admin_client, client_config
from millstream.processing.reading.offset_plan import Partition

LOOK_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 2.0
# Partitions are rarely added: those that are known are asked for their ends.
DESCRIBE_SECONDS: Final = 10.0
# Of more partitions the oldest record is not looked for: each takes a fetch.
TIMED_PARTITIONS_MAX: Final = 64
CONSUMER: Final = {
    "group.id": "millstream-lag",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 5,
    "fetch.message.max.bytes": 64 << 10,
    "queued.min.messages": 1,
}


class LagMeter:
    """Of one job; used by one thread."""

    def __init__(
        self,
        brokers: str,
        client: Mapping[str, str],
        topics: Iterable[str],
        *,
        now_ms: Clock = system_clock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers, self._client = brokers, client
        self._topics = sorted(set(topics))
        self._now_ms, self._clock = now_ms, clock
        self._due = self._describe_due = 0.0
        self._parts: list[Partition] = []
        self._times: dict[Partition, tuple[int, int]] = {}  # read on at, and its record's time
        self._consumer: Any = None

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def look(self, reached: Reached) -> Lag:
        """Nothing is in it while the broker does not answer."""
        self._due = self._clock() + LOOK_SECONDS
        try:
            return self._measured(reached)
        except (KafkaException, TimeoutError):
            self._due = self._clock() + AWAY_SECONDS
            return Lag()

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _measured(self, reached: Reached) -> Lag:
        ends = self._ends()
        left: dict[Partition, int] = {}
        for positions in reached.values():
            for part, at in unread(positions, ends).items():
                left[part] = min(at, left.get(part, at))
        self._find_times(left)
        times = {part: written for part, (_, written) in self._times.items()}
        return lag_of(reached, ends, times, now_ms=self._now_ms())

    def _ends(self) -> dict[Partition, int]:
        admin = admin_client(self._brokers, self._client)
        if self._clock() >= self._describe_due:
            asked = admin.describe_topics(
                TopicCollection(self._topics), request_timeout=ANSWER_SECONDS
            )
            there = [answer.result(ANSWER_SECONDS) for answer in asked.values()]
            self._parts = [Partition(one.name, part.id) for one in there for part in one.partitions]
            self._describe_due = self._clock() + DESCRIBE_SECONDS
        latest = admin_api().OffsetSpec.latest()
        answers = admin.list_offsets(
            {TopicPartition(*part): latest for part in self._parts},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        return {
            Partition(asked.topic, asked.partition): max(0, answer.result(ANSWER_SECONDS).offset)
            for asked, answer in answers.items()
        }

    def _find_times(self, left: Mapping[Partition, int]) -> None:
        """Those that are known hold while nothing more is read of the partition."""
        self._times = {
            part: known for part, known in self._times.items() if left.get(part) == known[0]
        }
        wanted = {part: at for part, at in left.items() if part not in self._times}
        if not wanted or len(wanted) > TIMED_PARTITIONS_MAX:
            return
        if self._consumer is None:
            self._consumer = Consumer(client_config(self._brokers, self._client) | CONSUMER)
        self._consumer.assign([TopicPartition(*part, at) for part, at in wanted.items()])
        try:
            self._read_times(wanted)
        finally:
            self._consumer.unassign()

    def _read_times(self, wanted: Mapping[Partition, int]) -> None:
        until = self._clock() + ANSWER_SECONDS
        missing = set(wanted)
        while missing and (left_s := until - self._clock()) > 0:
            message = self._consumer.poll(left_s)
            if message is None or message.error() is not None:
                continue
            part = Partition(message.topic(), message.partition())
            if part in missing:
                missing.discard(part)
                self._times[part] = (wanted[part], message.timestamp()[1])
                self._consumer.incremental_unassign([TopicPartition(*part)])
