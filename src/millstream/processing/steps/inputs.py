"""The inputs of a script: declared topics and tables under names of their own, and their records.

A row becomes a record as `app.publish` makes one. Every
topic has one partition, so that its records are read in the order in which the script has them.
"""

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from millstream.base.changes import CHANGE, DELETE
from millstream.base.clock import system_clock
from millstream.base.dead_letter_headers import MESSAGE_HEADER
from millstream.base.declared import LATE_SUFFIX, BadDeclaration, DeclaredTable
from millstream.base.quantity import SECOND_MS
from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    TopicNotFound,
    admin_client,
    client_config,
    error_from,
    make_topic,
)
from millstream.processing.reading.frames import Declared
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.steps.moments import moment, with_moments
from millstream.values.row_records import row_records

CLOCK_HEADER = "millstream.clock"
# key, value, headers
Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]
NO_LIMIT = 2**63 - 1


class ScriptInput:
    """One declared topic or table, and the topic of this script that stands for it."""

    def __init__(self, declared: Declared) -> None:
        self.name = declared.name
        self.declared = unhurried(replace(declared, name=f"{declared.name}-{uuid.uuid4().hex[:8]}"))
        schema = declared.schema
        self._records = None if schema is None else row_records(declared, schema)

    def record(self, row: Any) -> Record:
        """A row as a record; bytes or text if the topic has no schema."""
        if self._records is None or self.declared.schema is None:
            return None, row.encode() if isinstance(row, str) else bytes(row), []
        timed = with_moments(row, self.declared.schema) if isinstance(row, Mapping) else row
        return *self._records.record(timed), []

    def tombstone(self, row: Mapping[str, Any]) -> Record:
        if not isinstance(self.declared, DeclaredTable):
            raise BadDeclaration(f"{self.name} is no table: only rows of a table can be deleted")
        return self.record({**row, CHANGE: DELETE})

    def clock_ms(self, until: str | datetime) -> int:
        """The time that moves the topic's watermark to this moment."""
        event_time = getattr(self.declared, "event_time", None)
        if event_time is None:
            raise BadDeclaration(f"{self.name} has no event time: there is nothing to advance")
        clock_ms: int = round(moment(until).timestamp() * SECOND_MS) + event_time.lateness_ms
        if clock_ms <= 0:
            raise BadDeclaration(
                f"{self.name} cannot be advanced to {until}: a watermark is after 1970. Leave the "
                "step out, or advance to a later moment"
            )
        return clock_ms


def clock_record(clock_ms: int) -> Record:
    """A record that only tells the time."""
    return None, None, [(CLOCK_HEADER, str(clock_ms).encode())]


class Added(NamedTuple):
    """A record of a script, and the script's time: the latest that a topic was advanced to."""

    to: ScriptInput
    record: Record
    time_ms: int


def reasons_set_aside(brokers: str, one: ScriptInput) -> list[str]:
    """Why records of this input reached no operator: as dead letters, or late in quarantine."""
    reasons: list[str] = []
    for suffix in (DEAD_SUFFIX, LATE_SUFFIX):
        read = TopicRead(brokers=brokers, topics=(one.declared.name + suffix,))
        with contextlib.suppress(TopicNotFound):
            for part, within in batch_ranges(read):
                for records in RangeReader(read).read(part, within):
                    reasons += [_reason_of(record) for record in records]
    return [reason for reason in reasons if reason]


def _reason_of(record: Message) -> str:
    found = dict(record.headers() or ()).get(MESSAGE_HEADER)
    return found.decode() if isinstance(found, bytes) else ""


def unhurried(declared: Declared) -> Declared:
    """The same with no wall clock in it: in a script a source is never idle."""
    if isinstance(declared, DeclaredTable) or declared.event_time is None:
        return declared
    return replace(declared, event_time=replace(declared.event_time, idle_ms=None))


def make_inputs(brokers: str, inputs: Sequence[ScriptInput]) -> None:
    for one in inputs:
        compacted = isinstance(one.declared, DeclaredTable)
        config = {"cleanup.policy": "compact"} if compacted else {"retention.ms": "-1"}
        # The script's time may be years ahead of the wall clock.
        config |= {"message.timestamp.after.max.ms": str(NO_LIMIT)}
        make_topic(brokers, {}, one.declared.name, partitions=1, config=config)


def remove_inputs(brokers: str, inputs: Sequence[ScriptInput]) -> None:
    names = [one.declared.name for one in inputs]
    for answer in admin_client(brokers, {}).delete_topics(names).values():
        answer.result(PATIENCE_SECONDS)


@cache
def producer_for(brokers: str) -> Producer:
    """One for all scripts of a process: a new one waits half a second for its id."""
    return Producer(client_config(brokers, {}) | {"enable.idempotence": True})


def send(brokers: str, records: Sequence[Added]) -> None:
    """Return when all are acknowledged. A record is of now, or of the script's time if that is
    later: what is ahead of its record's time is not believed."""
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = producer_for(brokers)
    for added in records:
        key, value, headers = added.record
        producer.produce(
            added.to.declared.name,
            key=key,
            value=value,
            headers=headers,
            timestamp=max(system_clock(), added.time_ms),
            on_delivery=note,
        )
    left = producer.flush(PATIENCE_SECONDS)
    if failed:
        raise error_from(failed[0], doing="write the script's records", brokers=brokers)
    if left:
        raise BrokerNotReached(brokers=brokers, doing="write the script's records")
