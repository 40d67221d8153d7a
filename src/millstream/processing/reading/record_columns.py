"""Records as Arrow columns: the raw ones that every read can have. Pure.

key        binary            value  binary      headers  list of (key string, value binary)
topic      string            partition  int32   offset   int64
timestamp  microseconds UTC  null when the record has none, or one beyond the year 294,000
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
RAW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", HEADER)),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
# The last time that microseconds can tell; a producer may write any.
MICROSECONDS_MS_MAX = (2**63 - 1) // 1000


def values_of(records: Sequence[Any]) -> pa.BinaryArray:
    return pa.array(list(map(Message.value, records)), pa.binary())


def column_of(name: str, records: Sequence[Any]) -> pa.Array:
    return COLUMNS[name](records)


def _headers(records: Sequence[Any]) -> pa.Array:
    found = [record.headers() for record in records]
    if not any(found):
        return pa.repeat(pa.scalar([], RAW_TYPES["headers"]), len(records))
    rows = [[{"key": name, "value": value} for name, value in headers or ()] for headers in found]
    return pa.array(rows, RAW_TYPES["headers"])


def _timestamps(records: Sequence[Any]) -> pa.Array:
    """In whole numbers first, and no pair kept: a third of the time that it takes otherwise."""
    times = map(itemgetter(1), map(Message.timestamp, records))
    milliseconds = pa.array(list(times), pa.int64())
    if pc.min(milliseconds).as_py() <= 0:  # librdkafka's number for none is 0 or -1
        kinds = pa.array([record.timestamp()[0] for record in records])
        known = pc.not_equal(kinds, TIMESTAMP_NOT_AVAILABLE)
        milliseconds = pc.if_else(known, milliseconds, None)
    if (pc.max(milliseconds).as_py() or 0) > MICROSECONDS_MS_MAX:
        fits = pc.less_equal(milliseconds, MICROSECONDS_MS_MAX)
        milliseconds = pc.if_else(fits, milliseconds, None)
    return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(RAW_TYPES["timestamp"])


# All records of a batch come from one partition.
COLUMNS: dict[str, Callable[[Sequence[Any]], pa.Array]] = {
    "key": lambda records: pa.array(list(map(Message.key, records)), pa.binary()),
    "value": values_of,
    "headers": _headers,
    "topic": lambda records: pa.repeat(pa.scalar(records[0].topic()), len(records)),
    "partition": lambda records: pa.repeat(
        pa.scalar(records[0].partition(), pa.int32()), len(records)
    ),
    "offset": lambda records: pa.array(list(map(Message.offset, records)), pa.int64()),
    "timestamp": _timestamps,
}
