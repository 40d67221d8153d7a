"""Rows that only tell the time, so that a watermark advances where no events come. Pure.

Two things make one: a *clock record*, which a producer writes into a topic (no value, and the
header `millstream.clock` with milliseconds since 1970 in digits), and an idle source, whose clock
is the wall clock (`stream_planner.py`). A frame filters them out behind its watermark
(`frames.py`).
"""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.base.declared import EventTime
from millstream.processing.reading.lateness import MOMENT, moment
from millstream.values.decoder import Bad

CLOCK_HEADER = "millstream.clock"
# Set in heartbeats: their time again. Null in all other rows.
BEAT = "_beat"
BEAT_FIELD = pa.field(BEAT, MOMENT)
# Up to the year 33658: a clock of more digits would not fit microseconds, or even an int.
DIGITS = re.compile(r"[0-9]{1,15}")
SHOWN_LENGTH_MAX = 40


class IdleClock:
    """When a source that brings nothing tells the wall clock: after `idle_ms`, and so on.

    None: never. What was told stays in the stream's position, and only rises.
    """

    def __init__(self, idle_ms: int | None, *, now_ms: int) -> None:
        self._idle_ms = idle_ms
        self._quiet_since_ms = now_ms

    def tell(self, told_ms: int | None, *, now_ms: int, came: bool) -> int | None:
        """What the source tells after what it told last, if records `came` or did not."""
        if came or self._idle_ms is None:
            self._quiet_since_ms = now_ms
            return told_ms
        if now_ms - self._quiet_since_ms < self._idle_ms:
            return told_ms
        self._quiet_since_ms = now_ms
        return now_ms if told_ms is None else max(now_ms, told_ms)


def is_clock(record: Any) -> bool:
    return record.value() is None and clock_of(record) is not None


def clock_of(record: Any) -> bytes | None:
    """The text of the record's clock. Of several the last counts."""
    clock: bytes | None = dict(record.headers() or ()).get(CLOCK_HEADER)
    return clock


def read_clocks(records: Sequence[Any], event_time: EventTime) -> tuple[int | None, list[Bad]]:
    """The latest clock, and the records whose clock cannot be believed."""
    latest: int | None = None
    bad: list[Bad] = []
    for row, record in enumerate(records):
        text = (clock_of(record) or b"").decode("ascii", "replace")
        _, record_ms = record.timestamp()
        if not DIGITS.fullmatch(text):
            shown = text[:SHOWN_LENGTH_MAX]
            bad.append(Bad(row, f"its {CLOCK_HEADER} is {shown!r}, not milliseconds in digits"))
        elif int(text) > record_ms + event_time.ahead_ms_max:
            ahead = f"more than {event_time.ahead_ms_max} ms ahead of its record ({record_ms})"
            bad.append(Bad(row, f"its {CLOCK_HEADER} is {text}, {ahead}"))
        else:
            latest = max(int(text), latest or 0)
    return latest, bad


def beat_row(schema: pa.Schema, column: str, clock_ms: int) -> pa.RecordBatch:
    """All null but the time."""
    told = pa.repeat(moment(clock_ms), 1)
    arrays = [
        told.cast(field.type) if field.name in (column, BEAT) else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
