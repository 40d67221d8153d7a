"""Opens where a prepared job writes: its view, its topic, or a function of the application.

The writing itself is in `output.py`. Opening claims the output for this run of the job.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.base.changes import CHANGE, ORDER
from millstream.base.declared import DeclaredTopic
from millstream.base.ports import ViewWriter
from millstream.base.schema import Struct
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.checkpoints import new_run
from millstream.processing.jobs.job import ToFunction, ToTopic, ToView
from millstream.processing.jobs.prepared_job import PreparedJob, Surroundings
from millstream.processing.reading.trace_headers import traces_of
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.checkpoint_sync import between_syncs
from millstream.processing.writing.output import (
    ViewHold,
    columns_of,
    has_records,
    start_topic,
    start_view,
)
from millstream.processing.writing.view_changes import ViewChanges, changes_table, changes_topic


def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """`serve` shows a rebuilt view to its readers; `close` ends this run's hold on the output."""

    writer: DataStreamWriter
    serve: Callable[[], None] = _nothing
    close: Callable[[], None] = _nothing


def open_output(
    prepared: PreparedJob, around: Surroundings, *, hold: ViewHold | None = None
) -> JobOutput:
    match prepared.job.output:
        case ToView() as output:
            return _view(prepared, around, output, hold or ViewHold())
        case ToTopic() as output:
            return _topic(prepared, around, output)
        case ToFunction() as output:
            return JobOutput(writer=_function(prepared, output))


def _view(prepared: PreparedJob, around: Surroundings, output: ToView, hold: ViewHold) -> JobOutput:
    job, frame = around.full_name(prepared.job), prepared.frame
    view = around.open_view(prepared.job, prepared.manifest.generation)
    hold.claim(view, job, columns_of(frame))
    changes = open_changes(prepared, around)
    writer = start_view(
        frame,
        view,
        job=job,
        checkpoint=str(prepared.checkpoint),
        hold=hold,
        changes=changes,
        key=output.key,
        traces=partial(traces_of, brokers=around.brokers, client=around.client or {}),
    )
    serve = partial(hold.serve, view)
    return JobOutput(writer=writer, serve=serve, close=partial(_close, view, changes))


def _close(*opened: ViewWriter | ViewChanges | None) -> None:
    for one in opened:
        if one is not None:
            one.close()


def open_changes(prepared: PreparedJob, around: Surroundings) -> ViewChanges | None:
    """Where the view's changes go, if it is an input of another job, or ever was."""
    job, directory, generation = prepared.job, prepared.directory, prepared.manifest.generation
    mark = directory.changes_mark(generation)
    if around.open_rows is None or (mark is None and not around.is_input(job)):
        return None
    assert isinstance(job.output, ToView)
    name = changes_topic(around.app, job.name, generation)
    changes = ViewChanges(
        changes_table(name, columns_of(prepared.frame), job.output.key),
        around.open_rows(job, generation),
        mark=mark or new_run(generation),
        brokers=around.brokers,
        client=around.client,
    )
    if mark is None:
        changes.write_all()
        directory.mark_changes(generation, changes.mark)
    return changes


def _topic(prepared: PreparedJob, around: Surroundings, output: ToTopic) -> JobOutput:
    writer = start_topic(
        prepared.frame,
        output_topic(output, around.topics.get(output.topic), prepared.frame),
        job=around.full_name(prepared.job),
        brokers=around.brokers,
        client=around.client,
        checkpoint=prepared.checkpoint,
        is_update=prepared.mode == "update",
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
        output.write(batch, log.receipt(number, job=job, epoch=epoch))

    return prepared.frame.writeStream.foreachBatch(between_syncs(prepared.checkpoint, write))
