"""Where the rows of a job go: into a view, or into a topic; exactly once.

Both give a writer that is ready but for its checkpoint, trigger, mode and name, and claim the
output for this run of the job, so that an earlier run stops. A batch that Spark repeats finds its
receipt and changes nothing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.base.changes import CHANGE
from millstream.base.declared import DeclaredTopic
from millstream.base.ports import BatchReceipt, ViewWriter
from millstream.base.schema import Schema
from millstream.processing.kafka_clients import make_topic
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.topic_sink import stream_into_topic, stream_updates_into_topic
from millstream.processing.writing.topic_write import WRITTEN_COLUMNS, TopicWrite
from millstream.schemas.spark_json import schema_from_spark_json
from millstream.values.row_records import records_for_columns

BROKERS_DEFAULT = -1
RECORD_DDL = "key BINARY, value BINARY"


def start_view(
    frame: DataFrame, writer: ViewWriter, *, job: str, checkpoint: str | Path
) -> DataStreamWriter:
    """Every batch becomes one transaction of the view's store."""
    epoch = writer.claim(job, columns_of(frame))
    return frame.writeStream.foreachBatch(view_writing(writer, job, epoch, BatchLog(checkpoint)))


def view_writing(
    writer: ViewWriter, job: str, epoch: int, log: BatchLog
) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, number: int) -> None:
        receipt = BatchReceipt(
            job=job,
            epoch=epoch,
            query=log.query,
            batch=number,
            positions=log.positions(number),
        )
        writer.write(receipt, batch.toArrow())

    return write


def start_topic(
    frame: DataFrame,
    output: DeclaredTopic,
    *,
    job: str,
    brokers: str,
    client: Mapping[str, str] | None = None,
    updates_of: str | Path | None = None,
) -> DataStreamWriter:
    """Every row becomes a record by the topic's schema; the topic is made if it is not there.

    `updates_of`: the checkpoint of a job in the update mode, in which a row replaces the one of its
    key; so do rows with `_change`. Such a topic is made compacted. A frame that has records already
    (`key`, `value` and the like) is written as it is, if the topic has no schema.
    """
    write = TopicWrite(brokers=brokers, topic=output.name, job=job, client=client or {})
    records = records_of(frame, output)
    changes_rows = updates_of is not None or CHANGE in frame.columns
    make_output_topic(write, output, compacted=changes_rows and bool(output.key))
    if updates_of is None:
        return stream_into_topic(records, write)
    return stream_updates_into_topic(records, write, BatchLog(updates_of))


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
    )


def columns_of(frame: DataFrame) -> Schema:
    return schema_from_spark_json(frame.schema.jsonValue())
