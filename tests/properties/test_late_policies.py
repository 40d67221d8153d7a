"""Random events in random batches, some repeated, against a model that takes them one by one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.declared import LATE_POLICIES, EventTime
from millstream.processing.reading.lateness import MOMENT, Judged, judge

SECOND = 1_000
LATENESS_MS = 10 * SECOND
KEEP_MS = 40 * SECOND
AHEAD_MS_MAX = 5 * SECOND
# Well after 1970: so early that Spark's first watermark, 0, would matter, no event is.
START_MS = 1_000_000 * SECOND


@dataclass(frozen=True)
class Event:
    time_ms: int | None
    record_ms: int


# Few times, so that events often meet the watermark exactly.
moments = st.integers(0, 20).map(lambda tens: START_MS + tens * 5 * SECOND)
events = st.builds(
    lambda record_ms, ahead_ms: Event(
        None if ahead_ms is None else record_ms + ahead_ms, record_ms
    ),
    moments,
    st.none() | st.sampled_from([0, -SECOND, -60 * SECOND, AHEAD_MS_MAX, AHEAD_MS_MAX + 1, 10**14]),
)
batches = st.lists(st.lists(events, min_size=1, max_size=8), max_size=8)
policies = st.sampled_from(LATE_POLICIES).map(
    lambda policy: EventTime(
        column="at",
        lateness_ms=LATENESS_MS,
        late=policy,  # type: ignore[arg-type]  # one of them
        keep_ms=KEEP_MS,
        ahead_ms_max=AHEAD_MS_MAX,
    )
)


def in_arrow(times_ms: Sequence[int | None]) -> pa.Array:
    return pa.array([ms if ms is None else ms * 1000 for ms in times_ms], pa.int64()).cast(MOMENT)


def judged(batch: list[Event], terms: EventTime, watermark_ms: int) -> Judged:
    times = in_arrow([event.time_ms for event in batch])
    records = in_arrow([event.record_ms for event in batch])
    return judge(times, records, terms, watermark_ms=watermark_ms)


def expected_fate(event: Event, terms: EventTime, seen_max_ms: int | None) -> str:
    """By the words of the docs: against the greatest time that was seen before the batch."""
    if event.time_ms is None or event.time_ms > event.record_ms + AHEAD_MS_MAX:
        return "dead"
    if seen_max_ms is None or event.time_ms > seen_max_ms - LATENESS_MS:
        return "on time"
    if terms.late == "correct":
        kept = event.time_ms > seen_max_ms - KEEP_MS
        return "corrected" if kept else "quarantined"
    return {"drop": "dropped", "quarantine": "quarantined"}[terms.late]


@settings(deadline=None)
@given(batches, policies)
def test_every_event_has_the_fate_that_the_model_gives_it(
    split: list[list[Event]], terms: EventTime
) -> None:
    watermark_ms, seen_max_ms = 0, None
    for batch in split:
        found = judged(batch, terms, watermark_ms)
        assert found == judged(batch, terms, watermark_ms), "a repeated batch"
        fates = dict.fromkeys(range(len(batch)), "on time")
        fates |= {row: fate.value for fate, rows in found.late.items() for row in rows}
        fates |= {letter.row: "dead" for letter in found.bad}
        assert [*fates.values()] == [expected_fate(event, terms, seen_max_ms) for event in batch]
        kept = [event.time_ms or 0 for row, event in enumerate(batch) if row not in found.removed]
        # Spark drops what is not after its watermark: nothing is left to it.
        assert all(time_ms > watermark_ms for time_ms in kept)
        # Then it moves on as Spark does, by what it was given.
        watermark_ms = max(watermark_ms, *(ms - terms.watermark_delay_ms for ms in kept), 0)
        seen_max_ms = max([*kept, seen_max_ms or 0]) or None


@settings(deadline=None)
@given(batches, policies)
def test_each_event_is_counted_in_one_place(split: list[list[Event]], terms: EventTime) -> None:
    for batch in split:
        found = judged(batch, terms, START_MS)
        places = Counter(row for rows in found.late.values() for row in rows)
        places.update(letter.row for letter in found.bad)
        assert all(count == 1 for count in places.values())
        assert sum(found.counts().values()) + len(found.bad) == len(places)
