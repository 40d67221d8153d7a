"""Records of one partition as rows in Arrow: decoded, judged by time, only those fit to be used.

Runs in a task. What cannot be decoded, has no time that can be believed or comes too late goes
where it belongs before the rows beside it can be used. Reads no topic (`range_reader.py`).
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from millstream.base.changes import ORDER
from millstream.base.declared import EventTime
from millstream.base.errors import Rejected
from millstream.processing.reading.dead_letters import send_letters
from millstream.processing.reading.heartbeats import (
    BEAT,
    BEAT_FIELD,
    beat_row,
    is_clock,
    read_clocks,
)
from millstream.processing.reading.late_events import LateEvents
from millstream.processing.reading.lateness import Judged, judge
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.record_columns import RAW_TYPES, column_of, values_of
from millstream.processing.reading.table_rows import (
    CHANGE_FIELDS,
    TableKeys,
    numbers_where,
    table_changes,
)
from millstream.processing.reading.topic_read import TopicRead
from millstream.schemas.arrow_types import schema_from_arrow
from millstream.values.decoder import Bad, Decoded, Decoder

Columns = dict[str, pa.Array]


class ValueNotDecoded(Rejected):
    def __init__(self, *, record: Message, reason: str, bad: int) -> None:
        place = f"{Partition(record.topic() or '', record.partition() or 0)}"
        super().__init__(
            f"{place}: the value at offset {record.offset()} cannot be decoded: {reason} ({bad} "
            "such in this batch). To go on, set on_bad to dead: it goes to the topic's dead letters"
        )
        self.reason = reason


def arrow_schema(read: TopicRead) -> pa.Schema:
    decoded = list(read.decoder.arrow_schema) if read.decoder else []
    changes = CHANGE_FIELDS if read.table_key else ()
    beats = (BEAT_FIELD,) if read.beats else ()
    raw = zip(read.raw_names, read.raw_columns, strict=True)
    named = [pa.field(name, RAW_TYPES[column]) for name, column in raw]
    return pa.schema([*decoded, *changes, *beats, *named])


def rows_of(
    read: TopicRead, schema: pa.Schema, records: list[Message], late: LateEvents
) -> Iterator[pa.RecordBatch]:
    """The events among the records as one batch, and the latest clock among them as a row."""
    events, clocks = _told_apart(read, records)
    if events:
        yield from _event_rows(read, schema, events, late)
    if clocks and read.event_time is not None:
        yield from _clock_rows(read, schema, clocks, read.event_time)


def _told_apart(read: TopicRead, records: list[Message]) -> tuple[list[Message], list[Message]]:
    """Events, and clock records; who reads raw records wants all of them."""
    if read.decoder is None or None not in map(Message.value, records):
        return records, []
    clocks = [record for record in records if is_clock(record)]
    return [record for record in records if not is_clock(record)] if clocks else records, clocks


def _clock_rows(
    read: TopicRead, schema: pa.Schema, clocks: list[Message], event_time: EventTime
) -> Iterator[pa.RecordBatch]:
    clock_ms, bad = read_clocks(clocks, event_time)
    if bad:
        _set_aside(read, clocks, bad)
    if clock_ms is not None and read.beats:
        yield beat_row(schema, event_time.column, clock_ms)


def _event_rows(
    read: TopicRead, schema: pa.Schema, events: list[Message], late: LateEvents
) -> Iterator[pa.RecordBatch]:
    columns, undecoded, passed = _columns(read, events)
    judged = _judged(read, columns, events, undecoded, late)
    if bad := [*undecoded, *judged.bad]:
        _set_aside(read, events, bad)
    if judged.late:
        late.take(events, judged)
    arrays = [columns[field.name].cast(field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    removed = judged.removed.union(passed, (letter.row for letter in undecoded))
    kept = batch.filter(_all_but(removed, len(events))) if removed else batch
    if kept.num_rows:
        yield kept


def _judged(
    read: TopicRead,
    columns: Columns,
    events: list[Message],
    undecoded: Sequence[Bad],
    late: LateEvents,
) -> Judged:
    if read.event_time is None:
        return Judged()
    return judge(
        columns[read.event_time.column],
        column_of("timestamp", events),
        read.event_time,
        watermark_ms=late.watermark_ms,
        uses=late.uses,
        passed_over={letter.row for letter in undecoded},
    )


def _columns(
    read: TopicRead, records: list[Message]
) -> tuple[Columns, Sequence[Bad], Sequence[int]]:
    """All columns by name, and the rows whose decoded ones say nothing: of bad values, or of
    those that are about no row."""
    raw = {
        name: column_of(column, records)
        for name, column in zip(read.raw_names, read.raw_columns, strict=True)
    }
    if read.decoder is None:
        return raw, (), ()
    decoded = _decoded(read, read.decoder, records)
    typed = dict(zip(decoded.batch.schema.names, decoded.batch.columns, strict=True))
    if read.table_key:
        typed[ORDER] = column_of("offset", records)
    if read.beats:
        typed[BEAT] = pa.nulls(len(records), BEAT_FIELD.type)
    return typed | raw, decoded.bad, numbers_where(decoded.passed)


def _decoded(read: TopicRead, decoder: Decoder, records: list[Message]) -> Decoded:
    values = values_of(records)
    decoded = decoder.decode(values)
    if not read.table_key:
        return decoded
    tombstones = pc.is_null(values)
    gone = tombstones if decoded.gone is None else pc.or_(tombstones, decoded.gone)
    keys = [records[row].key() for row in numbers_where(gone)]
    found = TableKeys(schema_from_arrow(decoder.arrow_schema), read.table_key).decode(keys)
    return table_changes(decoded, found, read.table_key, gone=gone)


def _set_aside(read: TopicRead, records: list[Message], bad: Sequence[Bad]) -> None:
    if read.on_bad == "fail":
        first = bad[0]
        raise ValueNotDecoded(record=records[first.row], reason=first.reason, bad=len(bad))
    if read.on_bad == "dead":
        send_letters(read, records, bad)


def _all_but(removed: set[int], count: int) -> pa.BooleanArray:
    return pa.array([row not in removed for row in range(count)])
