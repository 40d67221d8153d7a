"""DataFrames into topics, exactly once: the adapter between Spark's batches and our files.

    write = TopicWrite(brokers="127.0.0.1:9092", topic="totals", job="totals")
    writer = stream_into_topic(frame, write, BatchLog(checkpoint))
    writer.option("checkpointLocation", checkpoint).start()

Each task of a batch writes its rows and a receipt in one transaction (`row_transaction.py`,
`receipts.py`). A batch is whole for who reads committed records once all its tasks are done; each
task's part appears at once. It relies on what Spark promises: a batch that is repeated from a
checkpoint has the same rows in the same partitions.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.checkpoint_sync import between_syncs
from millstream.processing.writing.receipt_topic import CLAIMS, FIRST_TASK, ReceiptTopic
from millstream.processing.writing.receipts import (
    Claim,
    Receipt,
    Writer,
    encode,
    must_write,
    require_repeat,
    transactional_id,
)
from millstream.processing.writing.row_transaction import AttemptFenced, Row, RowTransaction
from millstream.processing.writing.topic_write import TopicWrite, require_writable

FIRST = 0
ANY_PARTITION = -1
NOW = 0
# A job rarely has more tasks; its receipts topic grows if it has.
TASKS_EXPECTED = 4
RECEIPT_KEY = b"receipt"
CLAIM_KEY = b"claim"


def stream_into_topic(frame: DataFrame, write: TopicWrite, log: BatchLog) -> DataStreamWriter:
    """A writer that is ready to start with the checkpoint of `log`.

    It claims the job, so an earlier run of it stops. In tasks of a function, not as a sink of
    Spark's: to such a sink of Python, Spark gives no rows in the update mode.
    """
    require_writable(write, columns_in(frame.schema))
    claimed = replace(write, epoch=claim_epoch(write))
    require_fitting(claimed, log)

    def write_batch(batch: DataFrame, number: int) -> None:
        writer = Writer(
            job=claimed.job,
            epoch=claimed.epoch,
            query=log.query,
            batch=number,
            task=FIRST,
            positions=log.positions(number),
        )
        batch.mapInArrow(partial(written_by_task, claimed, writer), "rows BIGINT").collect()

    return frame.writeStream.foreachBatch(between_syncs(log.checkpoint, write_batch))


def claim_epoch(write: TopicWrite) -> int:
    """A new epoch for the job, higher than any before. Of two that claim at once, one fails."""
    receipts = ReceiptTopic(write)
    receipts.make(tasks=TASKS_EXPECTED)
    transaction = RowTransaction(write, f"{write.job}/claim")
    transaction.open()
    last = receipts.last_claim()
    claim = Claim(epoch=1 + (last.epoch if last else 0))
    transaction.begin()
    transaction.send([(receipts.name, CLAIM_KEY, encode(claim), None, CLAIMS, NOW)])
    transaction.commit()
    return claim.epoch


def require_fitting(write: TopicWrite, log: BatchLog) -> None:
    """Refuse to start with a checkpoint that is behind the output, before a task writes rows."""
    newest = newest_receipt(write, log)
    if newest is None or newest.batch < (batch := log.last_batch()):
        return
    positions = log.positions(batch) if batch >= 0 else None
    require_repeat(write.job, batch, positions, newest)


def newest_receipt(write: TopicWrite, log: BatchLog) -> Receipt | None:
    """Of all tasks, of this checkpoint; once nothing that they have sent is in doubt."""
    if not log.has_begun():
        return None
    receipts = ReceiptTopic(write)
    found = []
    for task in receipts.tasks():
        RowTransaction(write, transactional_id(write.job, task)).open()
        found.append(receipts.last_receipt(task))
    own = [one for one in found if one is not None and one.query == log.query]
    return max(own, key=lambda one: one.batch, default=None)


def written_by_task(
    write: TopicWrite, writer: Writer, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What each task of a batch does: one row, with how many it has written."""
    own = replace(writer, task=this_task().partitionId())
    yield pa.RecordBatch.from_pydict({"rows": [write_rows(write, own, batches)]})


def this_task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark runs this in a task"
    return task


def write_rows(write: TopicWrite, writer: Writer, batches: Iterator[pa.RecordBatch]) -> int:
    rows = (row for batch in batches for row in rows_of(batch, write.topic))
    first = next(rows, None)
    if first is None:
        return 0
    count = write_once(write, writer, first, rows)
    # Operators before this one keep their state when their last row was asked for.
    for _ in rows:
        pass
    return count


def write_once(write: TopicWrite, writer: Writer, first: Row, rows: Iterator[Row]) -> int:
    """Write the rows of a task and its receipt, unless they are written; returns how many."""
    receipts = ReceiptTopic(write)
    receipts.grow(tasks=1 + writer.task)
    transaction = RowTransaction(write, writer.transactional_id)
    transaction.open()
    claim, receipt = receipts.last_claim(), receipts.last_receipt(writer.task)
    if not must_write(writer, claim=claim, receipt=receipt):
        return 0
    transaction.begin()
    try:
        count = transaction.send([first]) + transaction.send(rows)
        transaction.send([_receipt_row(receipts, writer, count)])
        transaction.commit()
    except AttemptFenced:
        _require_newest(writer, receipts.last_claim())
        raise
    except BaseException:
        transaction.abort()
        raise
    return count


def _require_newest(writer: Writer, claim: Claim | None) -> None:
    """Who was fenced by a newer run is a zombie, and must not try again."""
    must_write(writer, claim=claim, receipt=None)


def _receipt_row(receipts: ReceiptTopic, writer: Writer, rows: int) -> Row:
    receipt = Receipt(
        epoch=writer.epoch,
        query=writer.query,
        batch=writer.batch,
        rows=rows,
        positions=writer.positions,
    )
    return receipts.name, RECEIPT_KEY, encode(receipt), None, FIRST_TASK + writer.task, NOW


def columns_in(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def rows_of(batch: pa.RecordBatch, topic: str) -> Iterator[Row]:
    """The rows of a batch as records; columns that it does not have get their defaults."""
    nothing: list[Any] = [None] * batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    times = columns.get("timestamp")
    if times is not None:
        times = times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return zip(
        _listed(columns.get("topic"), topic, batch.num_rows),
        columns["key"].to_pylist() if "key" in columns else nothing,
        columns["value"].to_pylist(),
        _headers(columns["headers"]) if "headers" in columns else nothing,
        _listed(columns.get("partition"), ANY_PARTITION, batch.num_rows),
        _listed(times, NOW, batch.num_rows),
        strict=True,
    )


def _listed(column: pa.Array | None, otherwise: Any, count: int) -> list[Any]:
    if column is None:
        return [otherwise] * count
    return [otherwise if value is None else value for value in column.to_pylist()]


def _headers(column: pa.Array) -> list[Any]:
    return [
        None if headers is None else [(header["key"], header["value"]) for header in headers]
        for headers in column.to_pylist()
    ]
