"""What jobs and workers say at length is kept in files whose size is bounded."""

import os
from pathlib import Path

import pytest

from millstream.processing import log_files
from millstream.processing.log_files import LogFiles


def test_a_failure_is_kept_whole_under_its_job(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    assert logs.open()
    try:
        raise ValueError("no such page")
    except ValueError as error:
        logs.note_failure("pages", error)
    logs.close()
    text = logs.jobs.read_text()
    assert "job pages failed" in text
    assert "Traceback (most recent call last)" in text
    assert "ValueError: no such page" in text
    assert logs.jobs.stat().st_mode & 0o077 == 0


def test_the_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LOG_BYTES_MAX", 1_000)
    monkeypatch.setattr(log_files, "SIZE_LOOK_SECONDS", 0.0)
    logs = LogFiles(tmp_path)
    assert logs.open()
    for _ in range(50):
        logs.note_failure("pages", ValueError("x" * 100))
    sizes = [path.stat().st_size for path in logs.directory.glob("jobs.log*")]
    assert len(sizes) == 1 + log_files.OLD_FILES_MAX
    assert max(sizes) <= 1_000

    with logs.workers.open("ab", buffering=0) as worker:  # as the shell opens it for a worker
        worker.write(b"a" * 1_000)
        logs.bound()
        assert logs.workers.stat().st_size == 1_000
        worker.write(b"a")
        logs.bound()
        assert logs.workers.stat().st_size == 0
        worker.write(b"b")
    assert logs.workers.read_bytes() == b"b"
    assert (logs.directory / "workers.log.1").stat().st_size == 1_001
    logs.close()


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    logs = LogFiles(tmp_path / "file")
    assert not logs.open()
    logs.note_failure("pages", ValueError("x"))
    logs.bound()
    logs.close()
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    """A copy of the data may have brought it; logs that follow full ones are only as private."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o755)
    assert LogFiles(tmp_path).open()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
