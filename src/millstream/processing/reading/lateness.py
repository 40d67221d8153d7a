"""Judges events by their time: on time, late, or with no time that can be believed. Pure.

An event is late when no operator of its job can use it any more, by the watermark of its batch
(`last_use.py`): nothing that an operator has use for is removed, and what would be dropped by all
is not left for them to drop unseen. With the policy "correct", Spark keeps state for `keep_ms` and
its watermark is that much behind; an event is late then when it would be by a watermark that is
`lateness_ms` behind, and is used all the same. Times are Arrow's, in microseconds.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.declared import EventTime
from millstream.processing.reading.last_use import BY_EVENT, Places, Uses, is_late
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
    uses: Uses = BY_EVENT,
    passed_over: Collection[int] = (),
) -> Judged:
    """Every row but those of `passed_over`. Without a watermark nothing is late."""
    unbelievable = _unbelievable(times, record_times, event_time.ahead_ms_max)
    bad = [
        Bad(row, _why(times[row], record_times[row], event_time))
        for row in pc.indices_nonzero(unbelievable).to_pylist()
        if row not in passed_over
    ]
    if watermark_ms is None or uses is None:
        return Judged({}, bad)
    left_out = {*passed_over, *(letter.row for letter in bad)}
    late = {
        fate: rows
        for fate, where in _late(times, event_time, watermark_ms, uses).items()
        if (rows := [row for row in np.flatnonzero(where).tolist() if row not in left_out])
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


def _late(
    times: pa.Array, event_time: EventTime, watermark_ms: int, uses: Uses
) -> dict[Fate, Places]:
    """Where the late rows are, by what becomes of them. Rows without a time are anywhere."""
    # As numbers: Arrow has no remainder.
    times_us = pc.fill_null(times.cast(MOMENT).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    gone = is_late(times_us, uses, watermark_ms)
    if event_time.late == "drop":
        return {Fate.DROPPED: gone}
    if event_time.late == "quarantine" or not watermark_ms:
        return {Fate.QUARANTINED: gone}
    on_time_from_ms = watermark_ms + event_time.keep_ms - event_time.lateness_ms
    behind = is_late(times_us, uses, on_time_from_ms)
    return {Fate.QUARANTINED: gone, Fate.CORRECTED: behind & ~gone}


def moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1_000, pa.int64()).cast(MOMENT)
