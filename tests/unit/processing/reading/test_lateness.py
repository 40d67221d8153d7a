"""What is late, what becomes of it, and what has no time that can be believed."""

from typing import Any

import pyarrow as pa
import pytest

from millstream.base.declared import EventTime
from millstream.processing.reading.last_use import LastUse
from millstream.processing.reading.lateness import MOMENT, Fate, Judged, judge

WATERMARK_MS = 1_000_000


def event_time(**terms: Any) -> EventTime:
    known: dict[str, Any] = {"column": "at", "lateness_ms": 10_000}
    return EventTime(**known | terms)


def times(*milliseconds: float | None) -> pa.Array:
    micros = [None if ms is None else round(ms * 1000) for ms in milliseconds]
    return pa.array(micros, pa.int64()).cast(MOMENT)


def judged(found: pa.Array, terms: EventTime, *, watermark_ms: int | None = WATERMARK_MS) -> Judged:
    """Records as old as their events."""
    return judge(found, found, terms, watermark_ms=watermark_ms)


@pytest.mark.parametrize(
    ("policy", "fate"), [("drop", Fate.DROPPED), ("quarantine", Fate.QUARANTINED)]
)
def test_at_the_watermark_an_event_is_late_and_a_microsecond_after_it_is_not(
    policy: str, fate: Fate
) -> None:
    found = judged(times(WATERMARK_MS, WATERMARK_MS + 0.001, 0), event_time(late=policy))
    assert found.late == {fate: [0, 2]}
    assert found.removed == {0, 2}


def test_a_late_event_corrects_until_its_state_is_gone() -> None:
    terms = event_time(late="correct", keep_ms=60_000)
    on_time_from_ms = WATERMARK_MS + 50_000
    found = judged(
        times(on_time_from_ms + 1, on_time_from_ms, WATERMARK_MS + 1, WATERMARK_MS), terms
    )
    assert found.late == {Fate.QUARANTINED: [3], Fate.CORRECTED: [1, 2]}
    assert found.removed == {3}


HOUR_MS = 3_600_000
HOURLY = (LastUse(span_us=HOUR_MS * 1000, every_us=HOUR_MS * 1000),)


def test_an_event_behind_the_watermark_in_an_open_window_is_on_time() -> None:
    found = times(HOUR_MS - 15_000, HOUR_MS, HOUR_MS + 1)
    terms = event_time(late="quarantine")
    open_ms, over_ms = 2 * HOUR_MS - 1, 2 * HOUR_MS
    for watermark_ms, late in (
        (HOUR_MS - 1, []),
        (HOUR_MS, [0]),
        (open_ms, [0]),
        (over_ms, [0, 1, 2]),
    ):
        judged_by = judge(found, found, terms, watermark_ms=watermark_ms, uses=HOURLY)
        assert judged_by.late.get(Fate.QUARANTINED, []) == late


def test_with_corrections_an_event_is_late_when_its_window_was_over_by_the_lateness() -> None:
    terms = event_time(late="correct", keep_ms=10 * HOUR_MS)  # and 10 seconds of lateness
    found = times(HOUR_MS - 1, HOUR_MS + 1, 11 * HOUR_MS, 12 * HOUR_MS - 1)
    # 12:00:10 was seen: windows up to 12:00 are over, and what is in those up to 2:00 is gone.
    by = judge(found, found, terms, watermark_ms=2 * HOUR_MS + 10_000, uses=HOURLY)
    assert by.late == {Fate.QUARANTINED: [0, 1], Fate.CORRECTED: [2, 3]}


def test_nothing_is_late_for_a_job_that_uses_every_event() -> None:
    found = times(None, 0, 5)
    judged_by = judge(found, found, event_time(), watermark_ms=WATERMARK_MS, uses=None)
    assert (judged_by.late, [letter.row for letter in judged_by.bad]) == ({}, [0])


def test_before_anything_was_seen_nothing_corrects() -> None:
    terms = event_time(late="correct", keep_ms=10**12)
    assert judged(times(1, 5_000_000), terms, watermark_ms=0).late == {}


def test_without_a_watermark_nothing_is_late() -> None:
    assert judged(times(1, WATERMARK_MS), event_time(), watermark_ms=None) == Judged()


def test_an_event_without_a_time_is_bad_with_the_reason() -> None:
    found = judge(times(None), times(5), event_time(), watermark_ms=WATERMARK_MS)
    assert [(bad.row, bad.reason) for bad in found.bad] == [(0, "it has no event time: at is null")]
    assert found.late == {}


def test_an_event_may_be_ahead_of_its_record_by_the_limit_and_no_more() -> None:
    terms = event_time(ahead_ms_max=1_000)
    found = judge(times(6_000, 6_000.001), times(5_000, 5_000), terms, watermark_ms=0)
    (bad,) = found.bad
    assert bad.row == 1
    assert bad.reason == (
        "its event time at is 1970-01-01 00:00:06 UTC, more than 1000 ms ahead of its record "
        "(1970-01-01 00:00:05 UTC)"
    )


def test_a_time_without_a_record_time_to_hold_it_against_is_bad() -> None:
    (bad,) = judge(times(6_000), times(None), event_time(), watermark_ms=0).bad
    assert "no timestamp that at could be held against" in bad.reason


def test_the_greatest_time_of_all_is_bad_and_breaks_nothing() -> None:
    greatest = pa.array([2**63 - 1], pa.int64()).cast(MOMENT)
    (bad,) = judge(greatest, times(5), event_time(), watermark_ms=0).bad
    assert "ahead of its record" in bad.reason


def test_rows_that_could_not_be_decoded_are_not_judged() -> None:
    found = judge(
        times(None, 1), times(5, 5), event_time(), watermark_ms=WATERMARK_MS, passed_over={0, 1}
    )
    assert found == Judged()
