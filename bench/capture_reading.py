"""What can be read of captured topics, and when: committed records only.

While a capture works only its topic's end is asked for, which costs next to nothing; the records
themselves are read and counted when the clock has stopped, as both sides must have written all.
"""

import functools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    OffsetSpec,
)

CHUNK = 10_000
LOOK_SECONDS = 0.02
READ_WITHIN_S = 120.0
COMMITTED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 5,
    "log_level": 3,
}


class NotCapturedError(RuntimeError):
    """What a side had to write did not come, or not all of it."""


@contextmanager
def opened_reader(bootstrap: str, topic: str) -> Iterator[Consumer]:
    """From the beginning of its only partition."""
    config = {"bootstrap.servers": bootstrap, "group.id": f"bench.{topic}", **COMMITTED}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        yield consumer


def after_of(message: Message) -> dict[str, Any]:
    """The row as it became; empty for a deletion."""
    if message.error():
        raise NotCapturedError(str(message.error()))
    value = message.value()
    found: dict[str, Any] = (json.loads(value).get("after") or {}) if value else {}
    return found


def wait_for_offset(
    bootstrap: str, topic: str, offset: int, *, is_well: Callable[[], None], within_s: float
) -> tuple[float, int]:
    """When committed records were seen to reach it, and how far they reached then."""
    until = time.perf_counter() + within_s
    while time.perf_counter() < until:
        found = committed_end(bootstrap, topic)
        if found >= offset:
            return time.perf_counter(), found
        is_well()
        time.sleep(LOOK_SECONDS)
    raise NotCapturedError(f"{topic} did not reach {offset} within {within_s} s")


def committed_end(bootstrap: str, topic: str) -> int:
    """The last stable offset. It counts the ends of Kafka's transactions too, a few in a load."""
    admin = admin_of(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no types
    asked = {TopicPartition(topic, 0): latest}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    (answer,) = answers.values()
    return int(answer.result(READ_WITHIN_S).offset)


@functools.cache
def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # it outlives brokers


def count_records(bootstrap: str, topic: str, expected: int) -> int:
    """Committed records, read until there are as many as expected, or none comes any more."""
    with opened_reader(bootstrap, topic) as consumer:
        count = 0
        until = time.perf_counter() + READ_WITHIN_S
        while count < expected and time.perf_counter() < until:
            count += len(consumer.consume(CHUNK, 1.0))
    return count
