"""Where the rows of a job go: into a view, or into a topic; exactly once.

Both give a writer that is ready but for its checkpoint, trigger, mode and name, and claim the
output for this run of the job, so that an earlier run stops. A batch that Spark repeats finds its
receipt and changes nothing.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.base.changes import CHANGE
from millstream.base.declared import DeclaredTopic
from millstream.base.ports import BatchReceipt, StagingWriter, ViewWriter
from millstream.base.schema import Schema
from millstream.base.tracing import is_tracing, span
from millstream.processing.kafka_clients import make_topic
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.checkpoint_sync import WriteBatch, between_syncs
from millstream.processing.writing.staged_parts import STAGED_RECORDS_MIN, write_in_parts
from millstream.processing.writing.topic_sink import stream_into_topic
from millstream.processing.writing.topic_write import WRITTEN_COLUMNS, TopicWrite
from millstream.processing.writing.view_changes import ViewChanges
from millstream.schemas.spark_json import schema_from_spark_json
from millstream.values.row_records import records_for_columns

BROKERS_DEFAULT = -1
RECORD_DDL = "key BINARY, value BINARY"


TracesOf = Callable[[BatchReceipt], list[str]]


def start_view(
    frame: DataFrame,
    writer: ViewWriter,
    *,
    job: str,
    checkpoint: str | Path,
    hold: "ViewHold | None" = None,
    changes: ViewChanges | None = None,
    key: tuple[str, ...] = (),
    traces: TracesOf | None = None,
) -> DataStreamWriter:
    """Every batch becomes one transaction of the view's store; `hold` has claimed it already.

    `changes`: what the batch has changed is written there too, after that. `key`: of the view; by
    it, a large batch is written in parts where the store can. `traces`: to link each batch's span
    to those that published its records.
    """
    if hold is None:
        hold = ViewHold()
        hold.claim(writer, job, columns_of(frame))
    log = BatchLog(checkpoint)
    write = traced_batches(view_writing(writer, job, hold, log, changes, key), job, log, traces)
    return frame.writeStream.foreachBatch(between_syncs(checkpoint, write))


class ViewHold:
    """This process' hold on a view: the newest epoch that it has claimed.

    While a view is rebuilt, two generations of it are written side by side: both with this epoch,
    one after the other, so that neither fences the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch = 0

    def claim(self, writer: ViewWriter, job: str, columns: Schema) -> int:
        with self._lock:
            self._epoch = writer.claim(job, columns)
            return self._epoch

    def serve(self, writer: ViewWriter) -> None:
        """The newest claim counts, of whichever generation; a run that was overtaken is fenced."""
        with self._lock:
            writer.serve(epoch=self._epoch)

    @contextlib.contextmanager
    def epoch(self) -> Iterator[int]:
        """Nobody else of this process claims or writes meanwhile."""
        with self._lock:
            yield self._epoch


def view_writing(
    writer: ViewWriter,
    job: str,
    hold: ViewHold,
    log: BatchLog,
    changes: ViewChanges | None = None,
    key: tuple[str, ...] = (),
) -> Callable[[DataFrame, int], None]:
    def receipt(epoch: int, number: int) -> BatchReceipt:
        return log.receipt(number, job=job, epoch=epoch)

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.toArrow()
        with hold.epoch() as epoch, span("write the view", {"millstream.rows": rows.num_rows}):
            writer.write(receipt(epoch, number), rows)
        if changes is not None:
            changes.write(number, rows)

    def write_staged(batch: DataFrame, number: int) -> None:
        if changes is not None or log.records_in(number) < STAGED_RECORDS_MIN:
            write(batch, number)
            return
        with hold.epoch() as epoch, span("write the view in parts"):
            write_in_parts(cast(StagingWriter, writer), receipt(epoch, number), batch, key)

    return write_staged if key and hasattr(writer, "staging") else write


def traced_batches(
    write: WriteBatch, job: str, log: BatchLog, traces: TracesOf | None
) -> WriteBatch:
    """A span for each batch, with links to some of the spans that published its records."""

    def write_traced(batch: DataFrame, number: int) -> None:
        if not is_tracing():
            write(batch, number)
            return
        links = [] if traces is None else traces(log.receipt(number, job=job, epoch=0))
        with span(f"batch of {job}", {"millstream.batch": number}, links=links):
            write(batch, number)

    return write_traced


def start_topic(
    frame: DataFrame,
    output: DeclaredTopic,
    *,
    job: str,
    brokers: str,
    checkpoint: str | Path,
    client: Mapping[str, str] | None = None,
    is_update: bool = False,
) -> DataStreamWriter:
    """Every row becomes a record by the topic's schema; the topic is made if it is not there.

    `is_update`: the job runs in the update mode, in which a row replaces the one of its key; so do
    rows with `_change`. Such a topic is made compacted. A frame that has records already (`key`,
    `value` and the like) is written as it is, if the topic has no schema.
    """
    write = TopicWrite(brokers=brokers, topic=output.name, job=job, client=client or {})
    records = records_of(frame, output)
    changes_rows = is_update or CHANGE in frame.columns
    make_output_topic(write, output, compacted=changes_rows and bool(output.key))
    return stream_into_topic(records, write, BatchLog(checkpoint))


def records_of(frame: DataFrame, output: DeclaredTopic) -> DataFrame:
    """The rows as records: `key` and `value`. Works on static frames too."""
    if output.schema is None and has_records(frame):
        return frame
    records = records_for_columns(output, columns_of(frame))
    return frame.mapInArrow(records.batches, RECORD_DDL)


def has_records(frame: DataFrame) -> bool:
    """Whether its rows are records already, not yet rows to be encoded."""
    return "value" in frame.columns and set(frame.columns) <= set(WRITTEN_COLUMNS)


def make_output_topic(write: TopicWrite, output: DeclaredTopic, *, compacted: bool) -> None:
    config = {"cleanup.policy": "compact"} if compacted else {}
    make_topic(
        write.brokers,
        write.client,
        output.name,
        partitions=output.partitions or BROKERS_DEFAULT,
        config=config | output.options,
        is_needed=False,
    )


def columns_of(frame: DataFrame) -> Schema:
    return schema_from_spark_json(frame.schema.jsonValue())
