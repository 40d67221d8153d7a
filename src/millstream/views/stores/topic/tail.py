"""Reads the committed records of one topic, each once, up to offsets that the caller names.

What lies beyond them is kept for the next call: so a reader can stop where a batch ends, in every
partition, though the next batch is there already.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.base.errors import Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    client_config,
    error_from,
    translated,
)

Ends = Mapping[int, int]  # by partition, the offset after the last one
POLL_SECONDS = 0.1
RECORDS_AT_ONCE = 5_000
SETTINGS = {
    "group.id": "millstream-views",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
}


class TopicTail:
    """One caller at a time."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self.topic = client, topic
        self._consumer: Any = Consumer(client_config(client) | SETTINGS)
        self._reached: dict[int, int] = {}
        self._waiting: dict[int, deque[Message]] = {}

    def read_to(self, ends: Ends) -> list[Message]:
        """Records below these offsets that were not read before; in order in each partition."""
        self._follow(ends)
        until = time.monotonic() + PATIENCE_SECONDS
        while any(self._reached[number] < end for number, end in ends.items()):
            if self._take_some():
                until = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > until:
                raise self._not_reached(f"nothing came below {dict(ends)}")
        return [message for number, end in ends.items() for message in self._below(number, end)]

    def close(self) -> None:
        self._consumer.close()

    def _follow(self, ends: Ends) -> None:
        new = [number for number in ends if number not in self._reached]
        if new:
            places = [TopicPartition(self.topic, number, 0) for number in new]
            self._consumer.incremental_assign(places)
            self._reached |= dict.fromkeys(new, 0)
            self._waiting |= {number: deque() for number in new}

    def _take_some(self) -> int:
        """Wait for one record, and take all that have come with it."""
        with translated(self._client, doing=f"read {self.topic}"):
            messages = self._consumer.consume(1, timeout=POLL_SECONDS)
            if messages:
                messages += self._consumer.consume(RECORDS_AT_ONCE, timeout=0)
        for message in messages:
            self._take(message)
        return len(messages)

    def _take(self, message: Message) -> None:
        error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is None:
            self._waiting[number].append(message)
            self._reached[number] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[number] = max(self._reached[number], offset)
        else:
            found = error_from(error, self._client, doing=f"read {self.topic}")
            if not isinstance(found, Retryable):
                raise found

    def _below(self, number: int, end: int) -> list[Message]:
        waiting, found = self._waiting[number], []
        while waiting and (waiting[0].offset() or 0) < end:
            found.append(waiting.popleft())
        return found

    def _not_reached(self, reason: str) -> LogNotReached:
        brokers = str(self._client["bootstrap.servers"])
        return LogNotReached(brokers=brokers, doing=f"read {self.topic}", reason=reason)
