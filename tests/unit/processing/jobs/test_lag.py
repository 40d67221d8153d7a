"""The lag of a job against the end of its topics as they are now."""

from millstream.processing.jobs.lag import Lag, lag_of, reached_in, unread
from millstream.processing.jobs.progress import JobProgress
from millstream.processing.reading.offset_plan import Partition

FIRST, SECOND = Partition("clicks", 0), Partition("clicks", 1)
REPORT = {
    "sources": [
        {"endOffset": {"@clock": 7, "clicks": {"id": "x", "offsets": {"0": 5, "1": 7}}}},
        {"endOffset": None},
    ]
}
REACHED = {"clicks": {"clicks": {0: 5, 1: 7}}}


def test_where_sources_are_is_read_from_a_report() -> None:
    assert reached_in(REPORT) == REACHED
    assert reached_in({}) == {}


def test_the_lag_is_what_was_written_since_the_batch_was_planned() -> None:
    times = {FIRST: 1_000, SECOND: 4_000}
    lag = lag_of(REACHED, {FIRST: 8, SECOND: 8}, times, now_ms=5_000)
    assert lag == Lag(records={"clicks": 4}, ms={"clicks": 4_000})


def test_a_partition_that_is_new_is_unread_from_its_start() -> None:
    assert unread({"clicks": {0: 5}}, {FIRST: 5, SECOND: 2, Partition("other", 0): 9}) == {
        SECOND: 0
    }


def test_nothing_unread_has_no_age_and_an_unknown_time_is_unknown() -> None:
    assert lag_of(REACHED, {FIRST: 5, SECOND: 7}, {}, now_ms=9) == Lag(
        records={"clicks": 0}, ms={"clicks": 0}
    )
    assert lag_of(REACHED, {FIRST: 6}, {}, now_ms=9) == Lag(records={"clicks": 1})


def test_a_lag_that_is_not_known_is_not_zero() -> None:
    assert JobProgress(job="a").lag_total is None
    assert JobProgress(job="a").lag_ms_max is None
    known = JobProgress(job="a", lag={"b": 0, "c": 2}, lag_ms={"b": 0})
    assert (known.lag_total, known.lag_ms_max) == (2, None)
