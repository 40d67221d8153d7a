"""The inputs of a script: declared topics and tables under names of their own, and their records.

A row becomes a record as `app.publish` makes one. Every
topic has one partition, so that its records are read in the order in which the script has them.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from millstream.base.changes import CHANGE, DELETE
from millstream.base.declared import BadDeclaration, DeclaredTable
from millstream.base.quantity import SECOND_MS
from millstream.processing.kafka_clients import (
    PATIENCE_SECONDS,
    BrokerNotReached,
    admin_client,
    client_config,
    error_from,
    make_topic,
)
from millstream.processing.reading.frames import Declared
from millstream.processing.steps.moments import moment, with_moments
from millstream.values.row_records import row_records

CLOCK_HEADER = "millstream.clock"
# key, value, headers
Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]


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

    def clock(self, late_up_to: str | datetime) -> Record:
        """A record that only tells the time: after it, events up to this moment are late."""
        event_time = getattr(self.declared, "event_time", None)
        if event_time is None:
            raise BadDeclaration(f"{self.name} has no event time: there is nothing to advance")
        now_ms = round(moment(late_up_to).timestamp() * SECOND_MS) + event_time.lateness_ms
        return None, None, [(CLOCK_HEADER, str(now_ms).encode())]


def unhurried(declared: Declared) -> Declared:
    """The same with no wall clock in it: in a script a source is never idle."""
    if isinstance(declared, DeclaredTable) or declared.event_time is None:
        return declared
    return replace(declared, event_time=replace(declared.event_time, idle_ms=None))


def make_inputs(brokers: str, inputs: Sequence[ScriptInput]) -> None:
    for one in inputs:
        compacted = isinstance(one.declared, DeclaredTable)
        config = {"cleanup.policy": "compact"} if compacted else {"retention.ms": "-1"}
        make_topic(brokers, {}, one.declared.name, partitions=1, config=config)


def remove_inputs(brokers: str, inputs: Sequence[ScriptInput]) -> None:
    names = [one.declared.name for one in inputs]
    for answer in admin_client(brokers, {}).delete_topics(names).values():
        answer.result(PATIENCE_SECONDS)


def send(brokers: str, records: Sequence[tuple[ScriptInput, Record]]) -> None:
    """Return when all are acknowledged."""
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(client_config(brokers, {}) | {"enable.idempotence": True})
    for to, (key, value, headers) in records:
        producer.produce(to.declared.name, key=key, value=value, headers=headers, on_delivery=note)
    left = producer.flush(PATIENCE_SECONDS)
    if failed:
        raise error_from(failed[0], doing="write the script's records", brokers=brokers)
    if left:
        raise BrokerNotReached(brokers=brokers, doing="write the script's records")
