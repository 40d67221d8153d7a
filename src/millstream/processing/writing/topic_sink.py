"""DataFrames into topics, exactly once: the adapter between Spark's data source API and our files.

    write = TopicWrite(brokers="127.0.0.1:9092", topic="totals", job="totals")
    stream_into_topic(frame, write).option("checkpointLocation", ...).start()

Each task of a batch writes its rows and a receipt in one transaction (`row_transaction.py`,
`receipts.py`). A batch is whole for who reads committed records once all its tasks are done; each
task's part appears at once. It relies on what Spark promises: a batch that is repeated from a
checkpoint has the same rows in the same partitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.receipt_topic import CLAIMS, FIRST_TASK, ReceiptTopic
from millstream.processing.writing.receipts import Claim, Receipt, Writer, encode, must_write
from millstream.processing.writing.row_transaction import AttemptFenced, Row, RowTransaction
from millstream.processing.writing.topic_write import (
    BadWrite,
    TopicWrite,
    options_of,
    require_writable,
    write_from,
)

FORMAT = "millstream_topic_sink"
ANY_PARTITION = -1
NOW = 0
# A job rarely has more tasks; its receipts topic grows if it has.
TASKS_EXPECTED = 4
RECEIPT_KEY = b"receipt"
CLAIM_KEY = b"claim"


def stream_into_topic(frame: DataFrame, write: TopicWrite) -> DataStreamWriter:
    """A writer that is ready to start; it claims the job, so an earlier run of it stops."""
    claimed = replace(write, epoch=claim_epoch(write))
    return frame.writeStream.format(FORMAT).options(**options_of(claimed))


def stream_updates_into_topic(
    frame: DataFrame, write: TopicWrite, log: BatchLog
) -> DataStreamWriter:
    """The same for the update mode, in which Spark gives no rows to a sink of Python."""
    require_writable(write, columns_in(frame.schema))
    claimed = replace(write, epoch=claim_epoch(write))

    def write_batch(batch: DataFrame, number: int) -> None:
        tasks = partial(written_by_task, claimed, log.query, number)
        batch.mapInArrow(tasks, "rows BIGINT").collect()

    return frame.writeStream.foreachBatch(write_batch)


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


class TopicSink(DataSource):
    """A topic to stream into."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> "TopicStreamWriter":  # noqa: N802
        write = write_from(self.options)
        if overwrite:
            raise BadWrite("a topic cannot be overwritten: use the output mode append or update")
        require_writable(write, columns_in(schema))
        return TopicStreamWriter(write)


@dataclass
class Written(WriterCommitMessage):
    """What a task has written: 0 rows if it, or an earlier attempt, had nothing to do."""

    rows: int


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Runs in the tasks of every batch; has no state of its own."""

    def __init__(self, write: TopicWrite) -> None:
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = this_task()
        writer = Writer(
            job=self._write.job,
            epoch=self._write.epoch,
            query=str(task.getLocalProperty("sql.streaming.queryId")),
            batch=int(task.getLocalProperty("streaming.sql.batchId") or -1),
            task=task.partitionId(),
        )
        return Written(rows=write_rows(self._write, writer, iterator))


def written_by_task(
    write: TopicWrite, query: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a task of a batch does, where Spark gives its rows to a function: one row, the count."""
    task = this_task().partitionId()
    writer = Writer(job=write.job, epoch=write.epoch, query=query, batch=batch, task=task)
    yield pa.RecordBatch.from_pydict({"rows": [write_rows(write, writer, batches)]})


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
    receipts.make(tasks=1 + writer.task)
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
    receipt = Receipt(epoch=writer.epoch, query=writer.query, batch=writer.batch, rows=rows)
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
