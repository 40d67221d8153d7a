"""A power cut takes what was not synced, and nothing else."""

from pathlib import Path
from random import Random

import pytest

from millstream.base.disk import RealDisk, RealFile
from tests.faults.consistency.sync_journal import keep_journal, lose_unsynced

SYNCED, UNSYNCED = b"s" * 10, b"u" * 5


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sync", "truncate"):  # put back when the test is over
        monkeypatch.setattr(RealFile, name, getattr(RealFile, name))
    path = tmp_path / "journal"
    keep_journal(path)
    return path


def write(path: Path, *, is_synced: bool) -> None:
    file = RealDisk().open(path)
    file.append([SYNCED])
    if is_synced:
        file.sync()
    file.append([UNSYNCED])
    file.close()


def test_the_tail_goes_and_the_rest_stays(tmp_path: Path, journal: Path) -> None:
    path = tmp_path / "0.log"
    sizes = set()
    for seed in range(20):
        path.unlink(missing_ok=True)
        write(path, is_synced=True)
        lost = lose_unsynced(tmp_path, journal, Random(seed))
        sizes.add(path.stat().st_size)
        assert lost == len(SYNCED + UNSYNCED) - path.stat().st_size
    assert min(sizes) == len(SYNCED)
    assert len(sizes) > 2, "sometimes a part of the tail must stay"


def test_a_file_that_was_never_synced_can_go_whole(tmp_path: Path, journal: Path) -> None:
    path = tmp_path / "0.log"
    sizes = set()
    for seed in range(20):
        path.unlink(missing_ok=True)
        write(path, is_synced=False)
        lose_unsynced(tmp_path, journal, Random(seed))
        sizes.add(path.stat().st_size)
    assert min(sizes) == 0


def test_what_was_truncated_and_written_anew_counts_as_unsynced(
    tmp_path: Path, journal: Path
) -> None:
    path = tmp_path / "0.log"
    write(path, is_synced=True)
    file = RealDisk().open(path)
    file.truncate(4)
    file.append([UNSYNCED])
    file.close()
    sizes = set()
    for seed in range(20):
        lose_unsynced(tmp_path, journal, Random(seed))
        sizes.add(path.stat().st_size)
    assert min(sizes) == 4


def test_a_sync_that_is_noted_late_takes_nothing_back(tmp_path: Path, journal: Path) -> None:
    """Two threads sync a file; the one that saw less of it may be the last to say so."""
    path = tmp_path / "0.log"
    path.write_bytes(SYNCED)
    journal.write_text(f"synced {len(SYNCED)} {path}\nsynced 3 {path}\n")
    for seed in range(20):
        assert lose_unsynced(tmp_path, journal, Random(seed)) == 0
