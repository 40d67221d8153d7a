"""Opens where a prepared job writes: its view, its topic, or a function of the application.

The writing itself is in `output.py`. Opening claims the output for this run of the job.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.base.changes import CHANGE, ORDER
from millstream.base.declared import DeclaredTopic
from millstream.base.ports import BatchReceipt
from millstream.base.schema import Struct
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.job import ToFunction, ToTopic, ToView
from millstream.processing.jobs.prepared_job import PreparedJob, Surroundings
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.output import columns_of, has_records, start_topic, start_view


def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """`serve` shows a rebuilt view to its readers; `close` ends this run's hold on the output."""

    writer: DataStreamWriter
    serve: Callable[[], None] = _nothing
    close: Callable[[], None] = _nothing


def open_output(prepared: PreparedJob, around: Surroundings) -> JobOutput:
    match prepared.job.output:
        case ToView():
            return _view(prepared, around)
        case ToTopic() as output:
            return _topic(prepared, around, output)
        case ToFunction() as output:
            return JobOutput(writer=_function(prepared, output))


def _view(prepared: PreparedJob, around: Surroundings) -> JobOutput:
    view = around.open_view(prepared.job, prepared.manifest.generation)
    checkpoint = str(prepared.checkpoint)
    writer = start_view(prepared.frame, view, job=prepared.job.name, checkpoint=checkpoint)
    return JobOutput(writer=writer, serve=view.serve, close=view.close)


def _topic(prepared: PreparedJob, around: Surroundings, output: ToTopic) -> JobOutput:
    writer = start_topic(
        prepared.frame,
        output_topic(output, around.topics.get(output.topic), prepared.frame),
        job=around.full_name(prepared.job),
        brokers=around.brokers,
        client=around.client,
        updates_of=prepared.checkpoint if prepared.mode == "update" else None,
    )
    return JobOutput(writer=writer)


def output_topic(output: ToTopic, declared: Declared | None, frame: DataFrame) -> DeclaredTopic:
    """The topic as it is declared; one that is not gets the columns of the rows as its schema.

    Rows that are records already (`key`, `value`) stay as they are.
    """
    if declared is None and has_records(frame) and not output.key:
        return DeclaredTopic(name=output.topic)
    if declared is None:
        fields = [one for one in columns_of(frame) if one.name not in (CHANGE, ORDER)]
        return DeclaredTopic(name=output.topic, schema=Struct(tuple(fields)), key=output.key)
    return DeclaredTopic(
        name=declared.name,
        schema=declared.schema,
        key=output.key or declared.key,
        encoding=declared.encoding,
        message=declared.message,
        partitions=declared.partitions,
    )


def _function(prepared: PreparedJob, output: ToFunction) -> DataStreamWriter:
    """The epoch of a function's output is the number of the start."""
    log = BatchLog(prepared.checkpoint)
    job, epoch = prepared.job.name, prepared.manifest.starts + 1

    def write(batch: DataFrame, number: int) -> None:
        receipt = BatchReceipt(
            job=job, epoch=epoch, query=log.query, batch=number, positions=log.positions(number)
        )
        output.write(batch, receipt)

    return prepared.frame.writeStream.foreachBatch(write)
