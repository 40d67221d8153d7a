"""Small files with a copy that can prove itself."""

from pathlib import Path

import pytest

from millstream.log.checked_files import load_checked, save_checked
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival

ROOT = Path("/disk")
PATH = ROOT / "checkpoint"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(ROOT)
    save_checked(disk, PATH, b"one")
    return disk


def test_the_content_comes_back(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    assert load_checked(disk, PATH) == b"one"
    assert disk.content(PATH) == b"one"
    assert load_checked(disk, ROOT / "absent") is None
    assert caplog.records == []


def test_a_file_without_a_copy_is_believed(disk: SimulatedDisk) -> None:
    disk.remove(ROOT / "checkpoint.checked")
    assert load_checked(disk, PATH) == b"one"


def test_the_copy_is_believed_and_the_place_is_named(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.content(PATH)[2] ^= 1
    assert load_checked(disk, PATH) == b"one"
    assert f"{PATH}: differs from its checked copy from byte 2 on" in caplog.text


def test_a_damaged_copy_is_not_believed(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.content(ROOT / "checkpoint.checked")[5] ^= 1
    assert load_checked(disk, PATH) == b"one"
    assert f"{PATH}.checked: damaged" in caplog.text


def test_a_power_cut_leaves_the_old_content_or_the_new(disk: SimulatedDisk) -> None:
    for step in range(20):
        trial = disk.copy()
        trial.cut_power_at(step)
        is_saved = True
        try:
            save_checked(trial, PATH, b"another")
        except PowerCut:
            is_saved = False
        for survival in Survival:
            found = load_checked(trial.after_power_cut(survival, seed=step), PATH)
            assert found in ([b"another"] if is_saved else [b"one", b"another"])
