"""Topics as Spark DataFrames, in Arrow: the adapter between Spark's data source API and our files.

Spark makes one copy in the driver, which plans (`offset_plan.py` over `topic_offsets.py`), and one
per task, which reads its range (`range_reader.py`) and decodes it. camelCase is Spark's.

    read_topics(session, TopicRead(brokers="127.0.0.1:9092", topics=("orders",)))
    stream_topics(session, TopicRead(...), name="orders")
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millstream.base.offsets import OffsetRange
from millstream.processing.reading.heartbeats import beat_row
from millstream.processing.reading.last_use import BY_EVENT, Uses, read_uses
from millstream.processing.reading.late_events import LateEvents
from millstream.processing.reading.offset_log import watermark_ms_of
from millstream.processing.reading.offset_plan import (
    Partition,
    clock_in,
    position_from,
    ranges_between,
    split,
)
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.record_rows import arrow_schema, rows_of
from millstream.processing.reading.stream_planner import BatchLimits, StreamPlanner, batch_ranges
from millstream.processing.reading.topic_read import TopicRead, options_of, read_from

FORMAT = "millstream_topic"


def read_topics(session: SparkSession, read: TopicRead) -> DataFrame:
    """What is in the topics now, from `starting` to `ending`."""
    return session.read.format(FORMAT).options(**options_of(read)).load()


def stream_topics(session: SparkSession, read: TopicRead, *, name: str) -> DataFrame:
    """The topics as a stream. `name` tells the sources of a job apart in its checkpoint."""
    stream = session.readStream.format(FORMAT).options(**options_of(read))
    return stream.name(name).load()


class TopicSource(DataSource):
    """Topics, to be read as a batch or as a stream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(read_from(self.options)))

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(read_from(self.options), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        return StreamReader(read_from(self.options), schema)


@dataclass
class TopicRange(InputPartition):
    """What one task reads, and by what it judges which events are late."""

    part: Partition
    within: OffsetRange
    watermark_ms: int | None = None
    uses: Uses = BY_EVENT


@dataclass
class Heartbeat(InputPartition):
    """One row that tells the time of an idle source."""

    clock_ms: int


class BatchReader(DataSourceReader):
    """Reads what there was when the query was planned."""

    def __init__(self, read: TopicRead, schema: StructType) -> None:
        self._read = read
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        ranges = split(batch_ranges(self._read), tasks_min=self._read.tasks_min)
        # Spark takes an empty list for one unnamed partition.
        return [TopicRange(*found) for found in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._read, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batch after batch in the driver; reads one range in a task."""

    def __init__(self, read: TopicRead, schema: StructType) -> None:
        self._read = read
        self._schema = schema
        self._opened: StreamPlanner | None = None

    @property
    def _planner(self) -> StreamPlanner:
        if self._opened is None:
            self._opened = StreamPlanner(self._read)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planner.first_position()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._read.records_max is not None:
            return ReadMaxRows(self._read.records_max)
        if self._read.bytes_max is not None:
            return ReadMaxBytes(self._read.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._planner.next_position(start, self._limits(limit))

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        """Spark passes one limit, or none where all is to be read; we have two of our own."""
        if isinstance(limit, ReadAllAvailable):
            return BatchLimits()
        return BatchLimits(records_max=self._read.records_max, bytes_max=self._read.bytes_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._planner.last_seen()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.stop_at_what_is_there_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = [*ranges_between(position_from(start), position_from(end))]
        tasks: list[InputPartition] = [*self._tasks(ranges, end)] if ranges else []
        clock_ms = clock_in(end)
        if clock_ms is not None and clock_ms != clock_in(start):
            tasks.append(Heartbeat(clock_ms))
        return tasks

    def _tasks(
        self, ranges: list[tuple[Partition, OffsetRange]], end: dict[str, Any]
    ) -> list[TopicRange]:
        watermark_ms = self._watermark_ms(end)
        is_judged = watermark_ms is not None
        uses = read_uses(self._read.uses_file, self._read.source) if is_judged else BY_EVENT
        return [TopicRange(*found, watermark_ms, uses) for found in ranges]

    def _watermark_ms(self, end: dict[str, Any]) -> int | None:
        if self._read.event_time is None or not self._read.checkpoint:
            return None
        return watermark_ms_of(self._read.checkpoint, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._read, self._schema, partition)


def read_range(
    read: TopicRead, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    columns = to_arrow_schema(schema, timezone="UTC")
    match partition:
        case TopicRange(part, within, watermark_ms, uses):
            late = LateEvents(read, part, within, watermark_ms=watermark_ms, uses=uses)
            for records in RangeReader(read).read(part, within):
                yield from rows_of(read, columns, records, late)
            late.count()
        case Heartbeat(clock_ms) if read.event_time is not None:
            yield beat_row(columns, read.event_time.column, clock_ms)
