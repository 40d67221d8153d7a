"""Records to Parquet files and back. The only file that knows the columns; needs pyarrow.

Statistics are kept of offset and timestamp, so that a reader can pass over row groups. The
footer says which range of which partition the file covers. The partition itself is no column: it
is the file's folder, and Hive's readers refuse a column that is both.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from millstream.archive.manifest import FORMAT, ArchivedFile
from millstream.archive.plan import FileLimits
from millstream.archive.selection import Selection
from millstream.base.errors import Corrupt, Rejected
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import INT64_MAX, MIB
from millstream.base.record import Header

if TYPE_CHECKING:
    import pyarrow

# A row group is what a scan decodes at once, and the least that statistics can skip.
ROW_GROUP_BYTES = 16 * MIB
ROW_GROUP_RECORDS = 131_072
READ_BATCH_RECORDS = 16_384
FOOTER_KEY = b"millstream.archive"
# Kafka's own words, in the order of librdkafka's numbers; 0 is "not available".
TIMESTAMP_TYPES = (None, "CreateTime", "LogAppendTime")


class PyarrowMissing(Rejected):
    def __init__(self) -> None:
        super().__init__(
            "Archives are Parquet files, and pyarrow is not installed: "
            "run `pip install 'millstream[archive]'`"
        )


class DamagedFile(Corrupt):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}. Bring back the file from a copy")
        self.place, self.problem = place, problem


def require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401 - only to see whether it is there
    except ImportError:
        raise PyarrowMissing from None


@cache
def schema() -> "pyarrow.Schema":
    """The columns of a file."""
    require_pyarrow()
    import pyarrow as pa

    header = pa.struct([pa.field("name", pa.string(), nullable=False), ("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestamp_type", pa.string()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("element", header, nullable=False)), False),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Some records of one partition in order, a list per column."""

    offsets: Sequence[int]
    times_ms: Sequence[int | None]
    timestamp_types: Sequence[str | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]

    def __len__(self) -> int:
        return len(self.offsets)

    def split(self, at: int) -> tuple["Columns", "Columns"]:
        parts = [(f.name, getattr(self, f.name)) for f in fields(self)]
        first = Columns(**{name: column[:at] for name, column in parts})
        return first, Columns(**{name: column[at:] for name, column in parts})

    def sizes(self) -> list[int]:
        """The bytes of each record's key, value and headers."""
        rows = zip(self.keys, self.values, self.headers, strict=True)
        return [
            len(key or b"") + len(value or b"") + (_headers_size(headers) if headers else 0)
            for key, value, headers in rows
        ]


def _headers_size(headers: Sequence[Header]) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The partition that a file is of."""

    topic: str
    topic_id: str
    partition: int


class FileBuilder:
    """One Parquet file in the making, in memory: compressed row groups, and the next one raw."""

    def __init__(self, origin: Origin, start: int, limits: FileLimits) -> None:
        require_pyarrow()
        self.origin = origin
        self.start = start
        self.limits = limits
        self.records = 0
        self.raw_bytes = 0
        self.first_time_ms: int | None = None
        self._times_ms: list[int] = []
        self._next_offset = start
        self._waiting: list[pyarrow.RecordBatch] = []
        self._waiting_bytes = self._waiting_records = 0
        self._sink, self._writer = _open_writer()

    @property
    def is_full(self) -> bool:
        return self.records >= self.limits.records_max or self.raw_bytes >= self.limits.bytes_max

    def add(self, columns: Columns) -> Columns:
        """Take what fits, at least one record; returns the rest."""
        sizes = list(accumulate(columns.sizes(), initial=0))
        by_bytes = bisect_left(sizes, self.limits.bytes_max - self.raw_bytes)
        fit = max(1, min(by_bytes, self.limits.records_max - self.records, len(columns)))
        taken, rest = columns.split(fit)
        self._take(taken, size_bytes=sizes[fit])
        return rest

    def _take(self, columns: Columns, *, size_bytes: int) -> None:
        if not self.records:
            self.first_time_ms = columns.times_ms[0]
        known = [time_ms for time_ms in columns.times_ms if time_ms is not None]
        if known:
            self._times_ms = [min(self._times_ms + known), max(self._times_ms + known)]
        self.records += len(columns)
        self.raw_bytes += size_bytes
        self._next_offset = columns.offsets[-1] + 1
        self._waiting.append(_to_batch(columns))
        self._waiting_bytes += size_bytes
        self._waiting_records += len(columns)
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_records >= ROW_GROUP_RECORDS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=len(table))
        self._waiting = []
        self._waiting_bytes = self._waiting_records = 0

    def finish(self, *, end: int | None = None) -> tuple[ArchivedFile, bytes]:
        """The file, and its content. It covers up to `end`, or else up to its last record."""
        offsets = OffsetRange(start=self.start, end=self._next_offset if end is None else end)
        self._write_row_group()
        self._writer.add_key_value_metadata({FOOTER_KEY: _footer_to_json(self.origin, offsets)})
        self._writer.close()
        content = self._sink.getvalue().to_pybytes()
        file = ArchivedFile(
            offsets=offsets,
            records=self.records,
            size_bytes=len(content),
            sha256=checksum(content),
            time_min_ms=min(self._times_ms, default=None),
            time_max_ms=max(self._times_ms, default=None),
        )
        return file, content


def _open_writer() -> tuple[Any, Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    sink = pa.BufferOutputStream()
    writer = ParquetWriter(
        sink,
        schema(),
        compression="zstd",
        # Values seldom repeat: trying a dictionary for them costs time and gains nothing.
        use_dictionary=["timestamp_type", "key", "headers.list.element.name"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=["offset", "timestamp"],
        write_page_index=True,
    )
    return sink, writer


def _to_batch(columns: Columns) -> "pyarrow.RecordBatch":
    import pyarrow as pa

    contents = (
        columns.offsets,
        columns.times_ms,
        columns.timestamp_types,
        columns.keys,
        columns.values,
        columns.headers,
    )
    arrays = [
        pa.array(content, type=field.type)
        for content, field in zip(contents, schema(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _footer_to_json(origin: Origin, offsets: OffsetRange) -> bytes:
    document = {
        "format": FORMAT,
        "topic": origin.topic,
        "topic_id": origin.topic_id,
        "partition": origin.partition,
        "start": offsets.start,
        "end": offsets.end,
    }
    return json.dumps(document).encode()


def _footer_from_json(content: bytes) -> tuple[Origin, OffsetRange]:
    footer = json.loads(content)
    origin = Origin(
        topic=footer["topic"], topic_id=footer["topic_id"], partition=footer["partition"]
    )
    return origin, OffsetRange(start=footer["start"], end=footer["end"])


def describe(content: bytes) -> tuple[Origin, ArchivedFile] | None:
    """What a file says of itself; None if it is not a whole file of an archive."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(pa.BufferReader(content))
        origin, offsets = _footer_from_json(file.metadata.metadata[FOOTER_KEY])
        times = file.read(["timestamp"])["timestamp"].cast(pa.int64()).drop_null().to_pylist()
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None
    return origin, ArchivedFile(
        offsets=offsets,
        records=file.metadata.num_rows,
        size_bytes=len(content),
        sha256=checksum(content),
        time_min_ms=min(times, default=None),
        time_max_ms=max(times, default=None),
    )


def cut(content: bytes, origin: Origin, within: OffsetRange) -> tuple[ArchivedFile, bytes]:
    """A file of its own with what a file has in `within`."""
    limits = FileLimits(records_max=INT64_MAX, bytes_max=INT64_MAX)
    builder = FileBuilder(origin, within.start, limits)
    selection = Selection(start=within.start, end=within.end)
    for batch in batches(content, partition=origin.partition, selection=selection):
        builder.add(columns_from(batch))
    return builder.finish(end=within.end)


def columns_from(batch: "pyarrow.RecordBatch") -> Columns:
    """The records of a batch, as they were given to a file; times are numbers, of any year."""
    import pyarrow as pa

    headers = batch.column("headers").to_pylist()
    return Columns(
        offsets=batch.column("offset").to_pylist(),
        times_ms=batch.column("timestamp").cast(pa.int64()).to_pylist(),
        timestamp_types=batch.column("timestamp_type").to_pylist(),
        keys=batch.column("key").to_pylist(),
        values=batch.column("value").to_pylist(),
        headers=[[(one["name"], one["value"]) for one in row] for row in headers],
    )


def batches(
    content: bytes, *, partition: int, selection: Selection
) -> Iterator["pyarrow.RecordBatch"]:
    """The records that are meant, with their partition as the first column."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(pa.BufferReader(content))
    wanted = [
        number
        for number in range(file.metadata.num_row_groups)
        if _may_hold(file.metadata.row_group(number), selection)
    ]
    for batch in file.iter_batches(batch_size=READ_BATCH_RECORDS, row_groups=wanted):
        meant = _filtered(batch, selection)
        if len(meant):
            numbers = pa.repeat(pa.scalar(partition, pa.int32()), len(meant))
            yield meant.add_column(0, pa.field("partition", pa.int32(), nullable=False), numbers)


def _may_hold(row_group: Any, selection: Selection) -> bool:
    offsets = row_group.column(0).statistics
    return bool(offsets.min < selection.end and offsets.max >= selection.start)


def _filtered(batch: "pyarrow.RecordBatch", selection: Selection) -> "pyarrow.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = batch.column("offset")
    mask = pc.and_(pc.greater_equal(offsets, selection.start), pc.less(offsets, selection.end))
    if selection.by_time:
        times_ms = batch.column("timestamp").cast(pa.int64())
        if selection.since_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(times_ms, selection.since_ms))
        if selection.until_ms is not None:
            mask = pc.and_(mask, pc.less(times_ms, selection.until_ms))
    return batch.filter(mask)
