"""One word for how something is, by what is known of it: a table, and what holds for all facts."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.status import State, Status
from millstream.processing.jobs.job_status import JobStatus
from millstream.processing.jobs.lag import Lag
from millstream.processing.jobs.progress import JobProgress, JobState
from millstream.web.console.condition import (
    PATIENCE_BATCHES_MS_MAX,
    PATIENCE_MS,
    WORDS,
    Condition,
    Facts,
    Phase,
    Word,
    capture_condition,
    decided,
    group_condition,
    job_condition,
    patience_of,
    view_condition,
)
from millstream.web.console.facts import CaptureSeen, GroupSeen, JobSeen, Node
from tests.support.console_source import NOW_MS

HOUR_MS = 3_600_000
UP = Facts(phase="running", lag=0, lag_ms=0, now_ms=NOW_MS)
LATE = replace(UP, lag=56_800, lag_ms=252_000)


@pytest.mark.parametrize(
    ("facts", "word", "note"),
    [
        (Facts(phase="never"), "not run", ""),
        (Facts(phase="starting"), "starting", ""),
        (Facts(phase="starting", lag=1_200), "starting", "1,200 records to read"),
        # No batch yet, and Spark has not told that there is nothing to do.
        (Facts(phase="running", has_looked=False), "starting", ""),
        (UP, "good", "current"),
        # An idle topic: nothing has come since yesterday, and all of that was read.
        (replace(UP, silent_ms=500), "good", "current"),
        (replace(UP, lag=40, lag_ms=900), "good", "current to 00:59:59 UTC"),
        (replace(UP, lag=40, lag_ms=PATIENCE_MS), "good", "current to 00:59:30 UTC"),
        (replace(UP, lag=40, lag_ms=PATIENCE_MS + 1), "behind", "30s, 40 records"),
        (replace(LATE, trend="growing"), "behind", "4m 12s, 56.8k records, growing"),
        (replace(LATE, trend="shrinking"), "behind", "4m 12s, 56.8k records, catching up"),
        (replace(LATE, trend="steady"), "behind", "4m 12s, 56.8k records"),
        (replace(LATE, told="rebuilding"), "behind", "4m 12s, 56.8k records, rebuilding"),
        # Batches of 30 s that keep up: a record waits for two of them.
        (replace(LATE, lag_ms=60_000, patience_ms=90_000), "good", "current to 00:59:00 UTC"),
        # How old the rest is, is not known.
        (Facts(phase="running"), "running", "how far it is behind is not known"),
        (Facts(phase="running", lag=9, left_ms=PATIENCE_MS), "good", "9 records behind"),
        (Facts(phase="running", lag=9, left_ms=PATIENCE_MS + 1), "behind", "9 records"),
        (Facts(phase="running", lag=9), "running", "9 records to read"),
        (Facts(phase="running", lag=9, trend="steady"), "behind", "9 records"),
        (Facts(phase="running", lag=9, trend="shrinking"), "good", "9 records behind"),
        (Facts(phase="running", lag=1, trend="shrinking"), "good", "1 record behind"),
        (Facts(phase="running", lag=9, trend="growing", was_current=True), "good", None),
        # Who has stopped is never good, whatever it was last.
        (replace(UP, phase="stopped"), "stopped", "nothing is left to read"),
        (
            replace(UP, phase="stopped", lag=12_000, lag_ms=HOUR_MS // 2),
            "stopped",
            "12k records behind, current to 00:30:00 UTC",
        ),
        (
            replace(UP, phase="stopped", lag=12_000, lag_ms=3 * HOUR_MS),
            "stopped",
            "12k records behind, current to 2026-11-17 22:00 UTC",
        ),
        (replace(UP, phase="stopped", lag=None, lag_ms=None), "stopped", ""),
        (replace(UP, phase="paused", lag=None, lag_ms=None), "stopped", "paused"),
        (
            replace(UP, is_alive=False, silent_ms=180_000, lag=None, lag_ms=None),
            "stopped",
            "no sign of life for 3m",
        ),
        (Facts(phase="starting", is_alive=False, silent_ms=11_000), "stopped", None),
        # A run over what was there.
        (replace(UP, phase="done"), "done", "all was read"),
        (replace(UP, phase="done", lag=None), "done", ""),
        (replace(UP, phase="done", lag=5, lag_ms=2_000), "stopped", None),
        (replace(UP, phase="failed"), "failed", "nothing is left to read"),
        (replace(UP, phase="failed", is_alive=False, lag=None), "failed", ""),
        # A loop of restarts is one failure, also while an attempt is made.
        (Facts(phase="retrying", retry_in_ms=20_000), "failed", "tries again in 20s"),
        (Facts(phase="retrying", retry_in_ms=-5), "failed", "tries again"),
        (Facts(phase="retrying", lag=7), "failed", "tries again, 7 records behind"),
        (replace(UP, failures=3, lag=None), "failed", "tries again, after 3 failures"),
        (Facts(phase="starting", failures=1), "failed", "tries again, after 1 failure"),
        (Facts(phase="retrying", is_alive=False, silent_ms=60_000), "stopped", None),
    ],
)
def test_the_word_follows_from_the_facts(facts: Facts, word: Word, note: str | None) -> None:
    found = decided(facts)
    assert found.word == word
    if note is not None:
        assert found.note == note


counts = st.none() | st.integers(0, 10**9)
any_facts = st.builds(
    Facts,
    phase=st.sampled_from(get_args(Phase)),
    is_alive=st.booleans(),
    silent_ms=counts,
    has_looked=st.booleans(),
    failures=st.integers(0, 12),
    retry_in_ms=st.none() | st.integers(-(10**6), 10**6),
    lag=counts,
    lag_ms=counts,
    left_ms=st.none() | st.floats(0, 1e12),
    trend=st.sampled_from([None, "growing", "steady", "shrinking"]),
    was_current=st.booleans(),
    patience_ms=st.integers(1, 10**7),
    now_ms=st.just(NOW_MS),
)


@given(any_facts)
def test_no_word_contradicts_the_facts(facts: Facts) -> None:
    found = decided(facts)
    assert found.word in WORDS
    if found.word == "good":
        assert facts.is_alive
        assert facts.phase == "running"
        assert not facts.failures
        assert facts.lag_ms is None or facts.lag == 0 or facts.lag_ms <= facts.patience_ms
    if found.word == "behind":
        assert facts.lag != 0
        assert "current" not in found.note
    if found.note.startswith("current") and "current to" not in found.note:
        assert found.word == "good"
        assert not facts.lag


# --- jobs ---------------------------------------------------------------------------------------

PROGRESS = JobProgress(
    job="sales", state="running", reported="2026", batch=4, lag={"a": 0}, lag_ms={"a": 0}
)


def job(progress: JobProgress | None = PROGRESS, *, age_ms: int = 0, **facts: object) -> JobSeen:
    status = None if progress is None else JobStatus(progress=progress, at_ms=NOW_MS - age_ms)
    return JobSeen(
        name="sales",
        inputs=(),
        output="",
        target=Node("view", "sales"),
        status=status,
        is_stale=status is not None and status.is_stale(now_ms=NOW_MS),
        **facts,  # type: ignore[arg-type]
    )


def word_of(found: JobSeen) -> Word:
    return job_condition(found, now_ms=NOW_MS).word


def test_a_job_is_what_its_file_says_while_that_is_new() -> None:
    words: dict[JobState, Word] = {
        "starting": "starting",
        "running": "good",
        "waiting": "failed",
        "done": "done",
        "stopped": "stopped",
        "failed": "failed",
    }
    assert words.keys() == set(get_args(JobState))
    for state, word in words.items():
        assert word_of(job(replace(PROGRESS, state=state))) == word
    assert word_of(job(None)) == "not run"


def test_a_job_whose_process_died_is_stopped_unless_it_had_ended() -> None:
    for state, word in (("running", "stopped"), ("waiting", "stopped"), ("failed", "failed")):
        assert word_of(job(replace(PROGRESS, state=state), age_ms=60_000)) == word  # type: ignore[arg-type]


def test_the_lag_that_a_run_told_holds_while_it_runs_and_no_longer() -> None:
    behind = replace(PROGRESS, lag={"a": 5}, lag_ms={"a": HOUR_MS})
    measured = Lag(records={"a": 700}, ms={"a": 2 * HOUR_MS})
    assert job(behind, measured=measured).lag.total == 5
    for state in ("waiting", "stopped", "failed", "done", "starting"):
        seen = job(replace(behind, state=state), measured=measured)
        assert seen.lag.total == 700
    assert job(behind, age_ms=60_000, measured=measured).lag.total == 700
    assert job(replace(PROGRESS, state="stopped")).lag.total is None


def test_of_two_sources_the_one_that_is_farther_behind_counts() -> None:
    lags = replace(PROGRESS, lag={"a": 1, "b": 2}, lag_ms={"a": 5, "b": HOUR_MS})
    assert word_of(job(lags)) == "behind"
    unknown = replace(lags, lag_ms={"a": 5}, rows_per_second=100.0)
    assert word_of(job(unknown)) == "good"


def test_slow_batches_and_a_trigger_give_a_job_time_and_no_batch_gives_it_much() -> None:
    assert patience_of(None, None) == PATIENCE_MS
    assert patience_of(30_000, None) == 90_000
    assert patience_of(10 * HOUR_MS, None) == PATIENCE_BATCHES_MS_MAX
    assert patience_of(1_000, HOUR_MS) == PATIENCE_MS + HOUR_MS


def test_a_job_that_found_nothing_in_its_topics_is_good() -> None:
    """Spark has told that it looked; there was no batch."""
    empty = replace(PROGRESS, batch=None)
    assert word_of(job(empty)) == "good"
    assert word_of(job(replace(empty, reported=None, lag={}, lag_ms={}))) == "starting"


# --- views, captures, groups --------------------------------------------------------------------


def view(of_job: Condition | None, lag: int | None) -> Condition:
    return view_condition(of_job, lag=lag, trend="steady", was_current=False)


def test_a_view_is_as_its_job_is_and_by_itself_where_that_is_not_seen() -> None:
    stopped = job_condition(job(replace(PROGRESS, state="stopped")), now_ms=NOW_MS)
    assert view(stopped, 0) is stopped
    elsewhere = job_condition(job(None), now_ms=NOW_MS)
    assert view(elsewhere, 0).word == "good"
    assert view(elsewhere, 9).word == "behind"
    assert view(elsewhere, None).word == "not run"
    assert view(None, None).word == "not run"


def test_captures_are_told_of_in_the_same_words() -> None:
    words: dict[State, Word] = {
        "starting": "starting",
        "loading": "starting",
        "streaming": "good",
        "paused": "stopped",
        "waiting": "failed",
        "failed": "failed",
        "ended": "stopped",
    }
    assert words.keys() == set(get_args(State))
    for state, word in words.items():
        assert capture(state).word == word
    assert capture("streaming", is_stale=True).word == "stopped"
    assert capture("streaming", behind_ms=PATIENCE_MS + 1).word == "behind"
    assert capture("streaming", behind_ms=None).word == "running"
    assert capture("loading").note.endswith("initial load")
    assert capture(None).word == "not run"


def capture(
    state: State | None, *, is_stale: bool = False, behind_ms: int | None = 0, refusal: str = ""
) -> Condition:
    status = state and Status(state=state, run="r", at_ms=NOW_MS, behind_ms=behind_ms)
    seen = CaptureSeen(
        name="shop",
        url="",
        mode="log",
        tables=(),
        status=status or None,
        is_stale=is_stale,
        refusal=refusal,
    )
    return capture_condition(seen, now_ms=NOW_MS)


@pytest.mark.parametrize("is_stale", [False, True])
def test_a_capture_whose_records_are_refused_cannot_write_whatever_it_last_told(
    is_stale: bool,
) -> None:
    found = capture("streaming", is_stale=is_stale, refusal="the disk is full")
    assert (found.word, found.note) == ("failed", "cannot write")


def test_a_group_that_nobody_is_in_stands_still() -> None:
    group = GroupSeen(name="g", state="stable", protocol="consumer", members=2, lag=0)
    condition = group_condition(group, trend=None, was_current=True)
    assert (condition.word, condition.note) == ("good", "current")
    lagging = replace(group, lag=9)
    assert group_condition(lagging, trend="growing", was_current=False).word == "behind"
    empty = replace(group, members=0, lag=9)
    assert group_condition(empty, trend=None, was_current=False).word == "stopped"


def test_a_queue_is_behind_when_more_waits_than_its_workers_have_in_their_hands() -> None:
    group = GroupSeen(name="queue.mails", state="stable", protocol="share", members=2, lag=2)
    assert group_condition(group, trend="steady", was_current=False).word == "good"
    more = replace(group, lag=3)
    assert group_condition(more, trend="steady", was_current=False).word == "behind"
    assert group_condition(more, trend="shrinking", was_current=False).word == "good"
    assert group_condition(more, trend=None, was_current=False).word == "running"
    nobody = replace(group, members=0)
    assert group_condition(nobody, trend=None, was_current=True).word == "stopped"
    consumers = replace(group, protocol="consumer")
    assert group_condition(consumers, trend="steady", was_current=False).word == "behind"
