"""Progress as data, from what Spark reports."""

from dataclasses import replace
from typing import Any

from millstream.processing.jobs.progress import JobProgress, advanced, follows, lag_between


def report(batch: int, rows: int, *, second: int, done: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": rows,
        "processedRowsPerSecond": 50.0,
        "batchDuration": 120,
        "durationMs": {"addBatch": 100} if done else {"latestOffset": 3},
        **more,
    }


def position(**offsets: int) -> dict[str, Any]:
    return {"clicks": {"id": "x", "offsets": {part[1:]: at for part, at in offsets.items()}}}


START = JobProgress(job="per_url")


def test_rows_of_batches_add_up() -> None:
    once = advanced(START, report(0, 10, second=1))
    twice = advanced(once, report(1, 5, second=2))
    assert (twice.rows, twice.batch, twice.state) == (15, 1, "running")
    assert (twice.rows_per_second, twice.batch_ms) == (50.0, 120)


def test_reports_that_were_missed_are_noticed() -> None:
    once = advanced(START, report(0, 10, second=1))
    assert follows(START, report(0, 1, second=2))
    assert not follows(START, report(1, 1, second=2))
    assert follows(once, report(1, 1, second=2))
    assert not follows(once, report(2, 1, second=2))


def test_the_same_report_counts_once() -> None:
    once = advanced(START, report(0, 10, second=1))
    assert advanced(once, report(0, 10, second=1)) == once


def test_a_report_of_an_idle_job_is_no_batch() -> None:
    once = advanced(START, report(0, 10, second=1))
    idle = advanced(once, report(1, 0, second=11, done=False))
    assert idle.batch == 0
    assert advanced(idle, report(1, 7, second=12)).rows == 17


def test_what_a_batch_left_is_of_when_it_was_planned() -> None:
    sources = [
        {"endOffset": position(p0=5, p1=7), "latestOffset": position(p0=8, p1=7)},
        {"endOffset": {"@clock": 1}, "latestOffset": {"@clock": 1, **position(p0=2)}},
    ]
    progress = advanced(START, report(0, 1, second=1, sources=sources[:1]))
    assert (progress.left, progress.has_caught_up) == (3, False)
    assert progress.lag_total is None  # of now nothing is known by what was planned
    assert lag_between(sources[1]["endOffset"], sources[1]["latestOffset"]) == 2


def test_a_report_ends_the_row_of_failures() -> None:
    failing = replace(START, state="waiting", failures=3)
    assert advanced(failing, report(0, 8, second=1)).failures == 0
    idle = advanced(failing, report(0, 0, second=1, done=False))
    assert (idle.failures, idle.state) == (0, "running")
    again = replace(idle, failures=1)
    assert advanced(again, report(0, 0, second=1, done=False)).failures == 1, "the same report"


def test_a_job_has_caught_up_after_a_batch_that_left_nothing() -> None:
    sources = [{"endOffset": position(p0=8), "latestOffset": position(p0=8)}]
    assert not START.has_caught_up
    assert advanced(START, report(0, 8, second=1, sources=sources)).has_caught_up


def test_state_of_all_operators_adds_up() -> None:
    operators = [
        {"numRowsTotal": 3, "memoryUsedBytes": 100},
        {"numRowsTotal": 4, "memoryUsedBytes": 50},
    ]
    progress = advanced(START, report(0, 1, second=1, stateOperators=operators))
    assert (progress.state_rows, progress.state_bytes) == (7, 150)


def test_a_watermark_that_never_moved_is_none() -> None:
    long_ago = {"watermark": "1970-01-01T00:00:00.000Z"}
    assert advanced(START, report(0, 1, second=1, eventTime=long_ago)).watermark is None


def test_a_watermark_stays_known() -> None:
    at = {"watermark": "2026-01-01T00:00:00.000Z"}
    progress = advanced(START, report(0, 1, second=1, eventTime=at))
    assert advanced(progress, report(1, 1, second=2)).watermark == "2026-01-01T00:00:00.000Z"


def test_progress_is_json() -> None:
    assert START.to_json()["state"] == "starting"
