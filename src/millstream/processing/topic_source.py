"""Topics as Spark DataFrames, in Arrow: the adapter between Spark's data source API and our files.

Spark makes one copy in the driver, which plans (`offset_plan.py` over `topic_offsets.py`), and one
per task, which reads its range (`range_reader.py`) and decodes it. camelCase is Spark's.

    read_topics(session, TopicRead(brokers="127.0.0.1:9092", topics=("orders",)))
    stream_topics(session, TopicRead(...), name="orders")
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
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

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.processing.dead_letters import send_letters
from millstream.processing.offset_plan import Partition, position_from, ranges_between, split
from millstream.processing.range_reader import RangeReader
from millstream.processing.record_columns import RAW_TYPES, column_of, values_of
from millstream.processing.stream_planner import BatchLimits, StreamPlanner, batch_ranges
from millstream.processing.topic_read import TopicRead, options_of, read_from
from millstream.values.decoder import Bad

FORMAT = "millstream_topic"


class ValueNotDecoded(Rejected):
    def __init__(self, *, record: Message, reason: str, bad: int) -> None:
        place = f"{Partition(record.topic() or '', record.partition() or 0)}"
        super().__init__(
            f"{place}: the value at offset {record.offset()} cannot be decoded: {reason} ({bad} "
            "such in this batch). To go on, set on_bad to dead: it goes to the topic's dead letters"
        )
        self.reason = reason


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


def arrow_schema(read: TopicRead) -> pa.Schema:
    decoded = list(read.decoder.arrow_schema) if read.decoder else []
    raw = zip(read.raw_names, read.raw_columns, strict=True)
    return pa.schema(decoded + [pa.field(name, RAW_TYPES[column]) for name, column in raw])


@dataclass
class TopicRange(InputPartition):
    """What one task reads."""

    part: Partition
    within: OffsetRange


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
        return [
            TopicRange(*found) for found in ranges_between(position_from(start), position_from(end))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._read, self._schema, partition)


def read_range(
    read: TopicRead, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, TopicRange):
        columns = to_arrow_schema(schema, timezone="UTC")
        for records in RangeReader(read).read(partition.part, partition.within):
            yield from _batches(read, columns, records)


def _batches(
    read: TopicRead, schema: pa.Schema, records: list[Message]
) -> Iterator[pa.RecordBatch]:
    """The records as one batch; those that cannot be decoded go elsewhere first."""
    columns, bad = _columns(read, records)
    if bad:
        _set_aside(read, records, bad)
    arrays = [columns[field.name].cast(field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    good = batch.filter(_good_rows(len(records), bad)) if bad else batch
    if good.num_rows:
        yield good


def _columns(read: TopicRead, records: list[Message]) -> tuple[dict[str, pa.Array], Sequence[Bad]]:
    """All columns by name, and the rows whose decoded ones say nothing."""
    raw = {
        name: column_of(column, records)
        for name, column in zip(read.raw_names, read.raw_columns, strict=True)
    }
    if read.decoder is None:
        return raw, ()
    decoded = read.decoder.decode(values_of(records))
    typed = dict(zip(decoded.batch.schema.names, decoded.batch.columns, strict=True))
    return typed | raw, decoded.bad


def _set_aside(read: TopicRead, records: list[Message], bad: Sequence[Bad]) -> None:
    if read.on_bad == "fail":
        first = bad[0]
        raise ValueNotDecoded(record=records[first.row], reason=first.reason, bad=len(bad))
    send_letters(read, records, bad)


def _good_rows(count: int, bad: Sequence[Bad]) -> pa.BooleanArray:
    rows = {letter.row for letter in bad}
    return pa.array([row not in rows for row in range(count)])
