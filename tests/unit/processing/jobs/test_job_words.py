"""How a job is, in a sentence, for a reader of its view in any process."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.processing.jobs.job_status import (
    STALE_MS,
    JobStatus,
    StatusFiles,
    read_status,
    status_from_json,
)
from millstream.processing.jobs.job_words import newest, sentence
from millstream.processing.jobs.progress import JobProgress

NOW_MS = 1_000_000
STARTING = JobProgress(job="sales", stage="Spark starts")
RUNNING = JobProgress(job="sales", state="running", batch=3, batch_ms=300, lag={"clicks": 0})


def told(
    progress: JobProgress | None, *, since_s: int = 0, silent_ms: int = 0, **facts: str
) -> str:
    status = None
    if progress is not None:
        status = JobStatus(
            progress=progress,
            at_ms=NOW_MS - silent_ms,
            since_ms=NOW_MS - since_s * 1_000,
            host=facts.get("at", "laptop"),
            process=4711,
        )
    return sentence(status, jobs="/data/jobs", now_ms=NOW_MS, host="laptop")


@pytest.mark.parametrize(
    ("progress", "since_s", "words"),
    [
        (STARTING, 40, "has been starting for 40s (Spark starts) (process 4711)"),
        (replace(RUNNING, busy_ms=12_000), 60, "the present batch has taken 12s so far"),
        (RUNNING, 60, "its last batch took 300ms, caught up"),
        (replace(RUNNING, lag={"clicks": 5_000}), 60, "took 300ms, 5,000 records to read"),
        (replace(RUNNING, batch=None, busy_ms=9_000), 9, "its first batch has taken 9s so far"),
        (replace(RUNNING, batch=None), 9, "for 9s, and has found nothing to do yet"),
        (
            replace(RUNNING, state="failed", error="no column at"),
            9,
            "failed (process 4711): no col",
        ),
        (
            replace(RUNNING, state="waiting", error="no broker"),
            9,
            "again (process 4711), after: no",
        ),
        (replace(RUNNING, state="stopped"), 9, "does not run: it was stopped 9s ago"),
    ],
)
def test_the_state_of_a_job_is_told_with_its_times(
    progress: JobProgress, since_s: int, words: str
) -> None:
    assert words in told(progress, since_s=since_s)


def test_a_process_that_is_gone_is_told_from_one_that_runs() -> None:
    assert told(RUNNING, silent_ms=STALE_MS + 1).startswith(
        "Its job does not run: it was last heard of 10s ago (process 4711)"
    )


def test_a_job_of_another_machine_is_told_with_its_name_or_is_not_known() -> None:
    assert "(process 4711 on server)" in told(RUNNING, at="server")
    assert "of a run on another machine nothing is known here" in told(None)


def test_what_this_process_knows_is_newer_than_the_file() -> None:
    status = JobStatus(progress=STARTING, at_ms=1, since_ms=1)
    found = newest(status, RUNNING, now_ms=NOW_MS)
    assert found is not None
    assert (found.progress, found.at_ms, found.since_ms) == (RUNNING, NOW_MS, NOW_MS)
    assert newest(status, None, now_ms=NOW_MS) is status


def test_a_job_is_seen_while_spark_starts_and_since_when(tmp_path: Path) -> None:
    """Before its run has made its directory."""
    now_ms = [NOW_MS]
    files = StatusFiles(tmp_path, lambda: now_ms[0])
    files.announce([STARTING])
    now_ms[0] += 40_000
    files.announce([STARTING])
    status = read_status(tmp_path, "sales")
    assert status is not None
    assert "starting for 40s" in sentence(status, jobs="", now_ms=now_ms[0], host=status.host)


def test_a_start_does_not_hide_what_another_process_tells_of_the_job_that_it_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "sales").mkdir()
    other = JobStatus(progress=RUNNING, at_ms=NOW_MS, host="laptop", process=1)
    (tmp_path / "sales" / "status.json").write_bytes(other.to_json())
    StatusFiles(tmp_path, lambda: NOW_MS + STALE_MS).announce([STARTING])
    assert read_status(tmp_path, "sales") == other
    StatusFiles(tmp_path, lambda: NOW_MS + STALE_MS + 1).announce([STARTING])
    status = read_status(tmp_path, "sales")
    assert status is not None
    assert status.progress.state == "starting"


def test_a_status_of_an_older_version_is_read() -> None:
    text = JobStatus(progress=RUNNING, at_ms=5, since_ms=3).to_json()
    older = text.replace(b'"since_ms": 3, ', b"")
    assert older != text
    status = status_from_json(older)
    assert status is not None
    assert status.since_ms == 5
