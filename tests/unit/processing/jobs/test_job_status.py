"""How a job gets on, as other processes see it."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.processing.jobs.job_status import (
    STALE_MS,
    STATUS,
    WRITE_EVERY_MS,
    JobStatus,
    StatusFiles,
    ask_restart,
    is_restart_asked,
    read_status,
    status_from_json,
)
from millstream.processing.jobs.progress import JobProgress, JobState

PROGRESS = JobProgress(job="sales", state="running", batch=4, rows=10, lag={"clicks": 3}, late=2)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path, clock: Clock) -> StatusFiles:
    (tmp_path / "sales").mkdir()
    return StatusFiles(tmp_path, clock)


def test_what_a_run_tells_is_read_by_others(files: StatusFiles, tmp_path: Path) -> None:
    files.look([PROGRESS])
    found = read_status(tmp_path, "sales")
    assert found is not None
    assert found.progress == PROGRESS
    assert found.at_ms == 1_000_000
    assert found.process > 0


def test_it_is_written_about_once_a_second(
    files: StatusFiles, tmp_path: Path, clock: Clock
) -> None:
    files.look([PROGRESS])
    clock.now_ms += WRITE_EVERY_MS // 2
    files.look([replace(PROGRESS, rows=11)])
    assert _rows(tmp_path) == 10
    clock.now_ms += WRITE_EVERY_MS
    files.look([replace(PROGRESS, rows=12)])
    assert _rows(tmp_path) == 12


def test_another_state_is_written_at_once(files: StatusFiles, tmp_path: Path) -> None:
    files.look([PROGRESS])
    files.look([replace(PROGRESS, state="failed", error="no such column")])
    found = read_status(tmp_path, "sales")
    assert found is not None
    assert found.progress.error == "no such column"


def test_a_clock_that_was_put_back_stops_nothing(
    files: StatusFiles, tmp_path: Path, clock: Clock
) -> None:
    files.look([PROGRESS])
    clock.now_ms -= 3_600_000
    files.look([replace(PROGRESS, rows=12)])
    assert _rows(tmp_path) == 12


def test_one_that_is_old_says_that_nobody_runs_the_job() -> None:
    status = JobStatus(progress=PROGRESS, at_ms=5)
    assert not status.is_stale(now_ms=5 + STALE_MS)
    assert status.is_stale(now_ms=6 + STALE_MS)
    done = JobStatus(progress=replace(PROGRESS, state="done"), at_ms=5)
    assert not done.is_stale(now_ms=10**12)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1}', b'{"format": 1, "progress": 7}']
)
def test_what_is_no_status_is_none(text: bytes) -> None:
    assert status_from_json(text) is None


def test_words_of_a_newer_version_are_left_out() -> None:
    text = JobStatus(progress=PROGRESS, at_ms=5).to_json()
    newer = text.replace(b'"job":', b'"mood": "good", "job":')
    assert newer != text
    found = status_from_json(newer)
    assert found is not None
    assert found.progress == PROGRESS


def test_a_status_of_an_older_version_has_no_failures() -> None:
    text = JobStatus(progress=PROGRESS, at_ms=5).to_json()
    older = text.replace(b'"failures": 0, "retry_at_ms": null, ', b"")
    assert older != text
    assert status_from_json(older) == status_from_json(text)


def test_a_job_that_never_ran_has_none(tmp_path: Path) -> None:
    assert read_status(tmp_path, "sales") is None


def test_a_run_goes_on_when_it_cannot_be_written(
    files: StatusFiles, tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sales" / f"{STATUS}.tmp").mkdir()
    files.look([PROGRESS])
    clock.now_ms += 2 * WRITE_EVERY_MS
    files.look([PROGRESS])
    assert caplog.text.count("cannot be written") == 1


def _rows(jobs: Path) -> int:
    found = read_status(jobs, "sales")
    assert found is not None
    return found.progress.rows


@pytest.mark.parametrize(
    ("state", "age_ms", "is_attended"),
    [
        ("running", 0, True),
        ("waiting", STALE_MS, True),
        ("failed", 0, True),  # its run goes on, and tells so
        ("failed", STALE_MS + 1, False),
        ("running", STALE_MS + 1, False),
        ("stopped", 0, False),
        ("done", 0, False),
    ],
)
def test_a_job_can_begin_again_while_a_run_looks_after_it(
    state: JobState, age_ms: int, is_attended: bool
) -> None:
    status = JobStatus(progress=replace(PROGRESS, state=state), at_ms=1_000_000)
    assert status.is_attended(now_ms=1_000_000 + age_ms) is is_attended


def test_what_is_asked_for_is_done_once(files: StatusFiles, tmp_path: Path) -> None:
    assert not is_restart_asked(tmp_path, "sales")
    ask_restart(tmp_path, "sales")
    assert is_restart_asked(tmp_path, "sales")
    assert not is_restart_asked(tmp_path, "sales")
