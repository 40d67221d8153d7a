"""Directories for what Spark puts aside: private, held, and removed when nobody holds them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.base.disk import Unwritable
from millstream.processing import scratch
from millstream.processing.scratch import is_fit, make_scratch

KILLED = """
import os, sys
from pathlib import Path
from millstream.processing.scratch import make_scratch
made = make_scratch(Path(sys.argv[1]))
(made.path / "blockmgr").mkdir()
print(made.path, flush=True)
os.kill(os.getpid(), 9)
"""


def left_by_a_killed_process(parent: Path) -> Path:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(parent)], capture_output=True, text=True, timeout=60
    )
    return Path(ran.stdout.strip())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_and_what_was_missing_above_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_scratch(tmp_path / "shop.millstream" / "scratch")
    finally:
        os.umask(before)
    assert [mode(one) for one in (made.path, *made.path.parents[:2])] == [0o700] * 3
    made.close()
    assert not made.path.exists()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    assert (left / "blockmgr").is_dir()
    make_scratch(tmp_path).close()
    assert not left.exists()


def test_what_was_half_removed_is_removed(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    (left / "lock").unlink()
    make_scratch(tmp_path).close()
    assert not left.exists()


def test_what_another_process_holds_stays(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED.replace("os.kill(os.getpid(), 9)", "input()"), str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        held = Path(other.stdout.readline().strip())
        one, two = make_scratch(tmp_path), make_scratch(tmp_path)
        assert held.is_dir()
        assert one.path.is_dir()
        two.close()
        one.close()
        other.communicate("\n", timeout=60)


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    """Not what has another name, no file, and no link to what is somewhere else."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    parent = tmp_path / "parent"
    name = left_by_a_killed_process(parent).name
    (parent / "spark-warehouse").mkdir()
    (parent / name.replace("spark-", "spark-1")).write_text("a file")
    (parent / name.replace("spark-", "spark-2")).symlink_to(elsewhere)
    make_scratch(parent).close()
    assert elsewhere.is_dir()
    assert len(list(parent.iterdir())) == 3


def test_what_another_user_put_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_a_killed_process(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    make_scratch(tmp_path).close()
    assert left.is_dir()


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_are_removed_at_one_start(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "REMOVED_AT_ONCE_MAX", 2)
    for number in range(2 + more):
        (tmp_path / f"spark-{number}-{'0' * 32}").mkdir()
    make_scratch(tmp_path).close()
    assert len(list(tmp_path.iterdir())) == more


def test_a_parent_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="cannot be used"):
        make_scratch(tmp_path / "file" / "scratch")


@pytest.mark.parametrize(("path", "fits"), [("/a/b", True), ("/a b", False), ("/a,b", False)])
def test_a_path_that_would_be_two_words_of_a_setting_does_not_fit(path: str, fits: bool) -> None:
    assert is_fit(Path(path)) is fits
