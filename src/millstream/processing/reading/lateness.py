"""Judges events by their time: on time, late, or with no time that can be believed. Pure.

An event is late when its time is not after the watermark of its batch: what Spark's operators
would drop, and nothing else, so none is left for them to drop unseen. With the policy "correct",
Spark keeps state for `keep_ms` and its watermark is that much behind; an event is late then when it
is `lateness_ms` behind, and used all the same. Times are Arrow's, in microseconds.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.declared import EventTime
from millstream.values.decoder import Bad

MOMENT = pa.timestamp("us", tz="UTC")


class Fate(StrEnum):
    """What becomes of a late event."""

    DROPPED = "dropped"
    QUARANTINED = "quarantined"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows by number: `late` with what becomes of them, `bad` with no time to believe."""

    late: dict[Fate, list[int]] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)

    @property
    def removed(self) -> set[int]:
        """The rows that go no further: all but those that correct a result."""
        late = [row for fate, rows in self.late.items() if fate != Fate.CORRECTED for row in rows]
        return {*late, *(letter.row for letter in self.bad)}

    def counts(self) -> Counter[Fate]:
        return Counter({fate: len(rows) for fate, rows in self.late.items()})


def judge(
    times: pa.Array,
    record_times: pa.Array,
    event_time: EventTime,
    *,
    watermark_ms: int | None,
    passed_over: Collection[int] = (),
) -> Judged:
    """Every row but those of `passed_over`. Without a watermark nothing is late."""
    unbelievable = _unbelievable(times, record_times, event_time.ahead_ms_max)
    bad = [
        Bad(row, _why(times[row], record_times[row], event_time))
        for row in _rows(unbelievable)
        if row not in passed_over
    ]
    if watermark_ms is None:
        return Judged({}, bad)
    left_out = {*passed_over, *(letter.row for letter in bad)}
    late = {
        fate: rows
        for fate, where in _late(times, event_time, watermark_ms).items()
        if (rows := [row for row in _rows(where) if row not in left_out])
    }
    return Judged(late, bad)


def _unbelievable(times: pa.Array, record_times: pa.Array, ahead_ms_max: int) -> pa.BooleanArray:
    latest = pc.add(record_times, pa.scalar(timedelta(milliseconds=ahead_ms_max)))
    # Null where either time is missing.
    return pc.fill_null(pc.greater(times, latest), True)


def _why(time: pa.Scalar, record_time: pa.Scalar, event_time: EventTime) -> str:
    column = event_time.column
    if not time.is_valid:
        return f"it has no event time: {column} is null"
    if not record_time.is_valid:
        return f"its record has no timestamp that {column} could be held against"
    return (
        f"its event time {column} is {_shown(time)}, more than {event_time.ahead_ms_max} ms ahead "
        f"of its record ({_shown(record_time)})"
    )


def _shown(time: pa.Scalar) -> str:
    try:
        return f"{time.as_py():%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:  # beyond the year 9999
        return f"{time.value} microseconds after 1970"


def _late(times: pa.Array, event_time: EventTime, watermark_ms: int) -> dict[Fate, pa.BooleanArray]:
    """Where the late rows are, by what becomes of them."""
    gone = pc.less_equal(times, moment(watermark_ms))
    if event_time.late == "drop":
        return {Fate.DROPPED: gone}
    if event_time.late == "quarantine" or not watermark_ms:
        return {Fate.QUARANTINED: gone}
    on_time_from_ms = watermark_ms + event_time.keep_ms - event_time.lateness_ms
    behind = pc.less_equal(times, moment(on_time_from_ms))
    return {Fate.QUARANTINED: gone, Fate.CORRECTED: pc.and_not(behind, gone)}


def moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1_000, pa.int64()).cast(MOMENT)


def _rows(where: pa.BooleanArray) -> Sequence[int]:
    rows: list[int] = pc.indices_nonzero(where).to_pylist()
    return rows
