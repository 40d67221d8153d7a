"""Copies of a job's directory, and the way back. Spark's files stand in for themselves."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.processing.jobs.checkpoints import ForeignCheckpoint, JobDirectory, first_manifest
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.state.checkpoint_copy import (
    CopyExists,
    DamagedCopy,
    NotACopy,
    NothingToCopy,
    copy_job,
    read_copy,
    restore_job,
)
from millstream.processing.writing.batch_log import BatchLog


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    """A job that has run one batch."""
    directory = JobDirectory(tmp_path / "jobs" / "counts", job="counts")
    directory.write(first_manifest("counts", PlanShape(sources={"clicks": "clicks"}), "code", {}))
    plan_batch(directory, 0)
    (directory.checkpoint(1) / "metadata").write_text(json.dumps({"id": "a"}))
    return directory


def plan_batch(directory: JobDirectory, number: int) -> None:
    offsets = directory.checkpoint(1) / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(number)).write_text(f"v2 batch {number}")


def query_of(directory: JobDirectory) -> str:
    return str(json.loads((directory.checkpoint(1) / "metadata").read_text())["id"])


def test_a_restored_job_is_where_it_was(job: JobDirectory, tmp_path: Path) -> None:
    made = copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    assert (made.job, made.batch, made.made_ms, made.has_view) == ("counts", 0, 7, False)
    assert read_copy(tmp_path / "copy") == made
    kept = job.manifest()
    plan_batch(job, 1)
    restore_job(tmp_path / "copy", job)
    assert BatchLog(job.checkpoint(1)).last_batch() == 0
    assert job.manifest() == kept


def test_a_copy_is_for_its_owner_alone(job: JobDirectory, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        copy_job(job, tmp_path / "copies" / "monday", view=None, now_ms=7)
    finally:
        os.umask(before)
    for made in (tmp_path / "copies", tmp_path / "copies" / "monday"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_a_job_that_went_on_gets_a_new_name(job: JobDirectory, tmp_path: Path) -> None:
    """Else receipts of batch 1 would make it leave out another batch 1."""
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    assert restore_job(tmp_path / "copy", job)
    assert query_of(job) == "a"
    plan_batch(job, 1)
    assert not restore_job(tmp_path / "copy", job)
    assert query_of(job) != "a"


def test_a_job_with_its_view_keeps_its_name(job: JobDirectory, tmp_path: Path) -> None:
    view = tmp_path / "view.sqlite"
    view.write_bytes(b"a view")
    made = copy_job(job, tmp_path / "copy", view=view, now_ms=7)
    plan_batch(job, 1)
    assert made.has_view
    assert restore_job(tmp_path / "copy", job)
    assert query_of(job) == "a"


def test_a_restore_that_was_broken_off_is_not_taken_for_a_job(
    job: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        restore_job(tmp_path / "copy", job)
    monkeypatch.undo()
    with pytest.raises(ForeignCheckpoint):
        job.manifest()
    restore_job(tmp_path / "copy", job)
    assert job.manifest() is not None


def test_a_view_is_put_back_while_the_job_has_no_manifest(
    job: JobDirectory, tmp_path: Path
) -> None:
    """Else a kill in between would leave an old view, and batches after it that are not in it."""
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    there: list[bool] = []
    restore_job(
        tmp_path / "copy",
        job,
        put_view=lambda: there.append((job.path / "manifest.json").exists()),
    )
    assert there == [False]
    assert job.manifest() is not None


def test_a_restored_job_counts_its_starts_on(job: JobDirectory, tmp_path: Path) -> None:
    """They are the epochs of a function's output, which must not fall."""
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    first = job.manifest()
    assert first is not None
    job.write(replace(first, starts=5))
    restore_job(tmp_path / "copy", job)
    restored = job.manifest()
    assert restored is not None
    assert restored.starts == 5


def test_a_damaged_copy_restores_nothing(job: JobDirectory, tmp_path: Path) -> None:
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    plan_batch(job, 1)
    (tmp_path / "copy" / "checkpoint" / "offsets" / "0").write_text("other")
    with pytest.raises(DamagedCopy, match="has changed since it was copied"):
        restore_job(tmp_path / "copy", job)
    (tmp_path / "copy" / "checkpoint" / "offsets" / "0").unlink()
    with pytest.raises(DamagedCopy, match="is missing"):
        restore_job(tmp_path / "copy", job)
    assert BatchLog(job.checkpoint(1)).last_batch() == 1


def test_copies_are_not_mixed_up(job: JobDirectory, tmp_path: Path) -> None:
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    with pytest.raises(CopyExists, match="is there already"):
        copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    with pytest.raises(NotACopy, match="it is of job counts, not of other"):
        restore_job(tmp_path / "copy", JobDirectory(tmp_path / "jobs" / "other", job="other"))
    with pytest.raises(NotACopy, match=r"it has no copy\.json"):
        restore_job(tmp_path / "jobs", job)


def test_a_job_that_never_ran_has_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(NothingToCopy, match="job counts has no checkpoint"):
        copy_job(
            JobDirectory(tmp_path / "counts", job="counts"), tmp_path / "c", view=None, now_ms=7
        )
