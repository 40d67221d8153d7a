"""The changes of a view in a topic, for the jobs that have it as an input; each exactly once.

After a batch is in the view's store, the rows of the keys that it touched are read there and
written into `<app>.<view>.changes.<generation>`, a deleted one as a tombstone, with a receipt in
one transaction. A run that is killed in between repeats the batch: the store has it, the topic
gets it, and reads the same rows. So the topic has every batch of the view, in their order.

A view that becomes an input later has rows that no batch will touch: they are written first, as
of its last batch. From then on its changes are written for good, whoever still reads them.

The topic outlives the view: one that was dropped, put back from a copy, or whose job starts over,
has left rows there that it has no longer. They are deleted with the first rows of its new life.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from millstream.base.changes import CHANGE, DELETE
from millstream.base.declared import DeclaredTable
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import DAY_MS
from millstream.base.schema import Schema
from millstream.processing.kafka_clients import make_topic
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.topic_offsets import TopicOffsets
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.writing.receipts import Writer
from millstream.processing.writing.row_transaction import Row, RowTransaction
from millstream.processing.writing.topic_sink import ANY_PARTITION, NOW, claim_epoch, write_once
from millstream.processing.writing.topic_write import TopicWrite
from millstream.values.row_records import row_records, value_schema

BROKERS_DEFAULT = -1
TASK = 0
BEFORE_BATCHES = -1
# It starts the view over (views/receipts.py): what it does not bring is gone.
FIRST_BATCH = 0
# A job that was away must still find what was deleted: tombstones stay for ten years.
CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": str(3650 * DAY_MS)}


class KeptRows(Protocol):
    """A generation of a view, as its store has it."""

    def get_many(self, keys: Sequence[Any]) -> list[dict[str, Any] | None]: ...

    def scan(self) -> list[dict[str, Any]]: ...

    def close(self) -> None: ...


def changes_topic(app: str, view: str, generation: int) -> str:
    return f"{app}.{view}.changes.{generation}"


def changes_table(name: str, columns: Schema, key: tuple[str, ...]) -> DeclaredTable:
    """The topic as jobs read it: a table."""
    return DeclaredTable(name=name, schema=value_schema(columns), key=key)


def make_changes_topic(brokers: str, client: Mapping[str, str], name: str) -> None:
    holds = "rows that jobs read from it"
    make_topic(brokers, client, name, partitions=BROKERS_DEFAULT, config=CONFIG, holds=holds)


class ViewChanges:
    """What a job writes beside its view. Claims the topic for this run."""

    def __init__(
        self,
        table: DeclaredTable,
        rows: KeptRows,
        *,
        mark: str,
        brokers: str,
        client: Mapping[str, str],
    ) -> None:
        """Receipts go by `mark`: under a new one, all rows are written first."""
        self.mark = mark
        make_changes_topic(brokers, client, table.name)
        write = TopicWrite(brokers=brokers, topic=table.name, job=table.name, client=client)
        self._write = replace(write, epoch=claim_epoch(write))
        self._table, self._rows = table, rows
        self._records = row_records(table, table.schema)

    def write_all(self) -> None:
        """All rows of the view, and no other, before any batch."""
        self._send(BEFORE_BATCHES, self._rows.scan(), is_all=True)

    def write(self, batch: int, touched: pa.Table) -> None:
        """The rows as they are now of the keys in `touched`, which the batch has changed."""
        keys = distinct_keys(touched, self._table.key)
        found = self._rows.get_many(keys)
        changes = (
            key | {CHANGE: DELETE} if row is None else row
            for key, row in zip(keys, found, strict=True)
        )
        self._send(batch, changes, is_all=batch == FIRST_BATCH)

    def close(self) -> None:
        self._rows.close()

    def _send(self, batch: int, changes: Iterable[dict[str, Any]], *, is_all: bool) -> None:
        """`is_all`: a key that is in the topic, and not in the changes, is deleted there."""
        write = self._write
        writer = Writer(job=write.job, epoch=write.epoch, query=self.mark, batch=batch, task=TASK)
        there = live_keys(write, writer.transactional_id) if is_all else set()
        rows = self._told(changes, there)
        first = next(rows, None)
        if first is not None:
            write_once(write, writer, first, rows)

    def _told(self, changes: Iterable[dict[str, Any]], there: set[bytes]) -> Iterator[Row]:
        for change in changes:
            key, value = self._records.record(change)
            there.discard(key or b"")
            yield self._row(key, value)
        for left in sorted(there):
            yield self._row(left, None)

    def _row(self, key: bytes | None, value: bytes | None) -> Row:
        return self._write.topic, key, value, None, ANY_PARTITION, NOW


def live_keys(write: TopicWrite, transactional_id: str) -> set[bytes]:
    """The keys that have a row in the topic, once nothing that its writer has sent is in doubt."""
    read = TopicRead(brokers=write.brokers, topics=(write.topic,), client=write.client)
    if not any(_ranges(replace(read, read_committed=False)).values()):
        return set()
    RowTransaction(write, transactional_id).open()
    found: set[bytes] = set()
    for number, within in _ranges(read).items():
        for records in RangeReader(read).read(Partition(write.topic, number), within):
            for record in records:
                keep = found.discard if record.value() is None else found.add
                keep(record.key() or b"")
    return found


def _ranges(read: TopicRead) -> Mapping[int, OffsetRange]:
    return TopicOffsets(read).available()[read.topics[0]].partitions


def distinct_keys(touched: pa.Table, key: Sequence[str]) -> list[dict[str, Any]]:
    """In an order that is the same for the same rows, whichever comes first."""
    rows = touched.select(list(key)).to_pylist()
    found = {repr(row): row for row in rows}
    return [found[mark] for mark in sorted(found)]
