"""The real disk behind the port: whole appends or none, errors with their paths, one owner."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.base.disk import (
    IOVEC_MAX,
    DiskFailed,
    DiskFull,
    FileGone,
    FileLock,
    RealDisk,
    RealFile,
    TooManyOpenFiles,
    Unwritable,
    read_file,
    replace_file,
)
from millstream.base.errors import Retryable

DISK = RealDisk()
# Larger than any file that the test run itself writes (its own output may go to one).
FILE_BYTES_MAX = 1 << 30


@pytest.fixture
def _file_size_limit() -> Iterator[None]:
    """The kernel takes a part of a write past the limit, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_appended_chunks_are_read_back(tmp_path: Path) -> None:
    file = DISK.open(tmp_path / "file")
    file.append([b"one", bytearray(b"two"), memoryview(b"three")])
    assert file.size == 11
    assert bytes(file.read(3, 100)) == b"twothree"
    assert bytes(DISK.open(tmp_path / "file").read(0, 3)) == b"one"


@pytest.mark.parametrize("count", [IOVEC_MAX, IOVEC_MAX + 1])
def test_more_chunks_than_the_kernel_takes_at_once_are_all_written(
    tmp_path: Path, count: int
) -> None:
    file = DISK.open(tmp_path / "file")
    file.append([b"%04d" % number for number in range(count)])
    assert bytes(file.read(0, 1 << 20)) == b"".join(b"%04d" % n for n in range(count))


@pytest.mark.usefixtures("_file_size_limit")
def test_a_write_that_fits_only_in_part_leaves_nothing(tmp_path: Path) -> None:
    file = DISK.open(tmp_path / "file")
    file.truncate(FILE_BYTES_MAX - 100)
    with pytest.raises(DiskFull) as caught:
        file.append([b"x" * 60, b"y" * 60])
    assert str(tmp_path / "file") in str(caught.value)
    assert file.size == os.path.getsize(tmp_path / "file") == FILE_BYTES_MAX - 100
    file.append([bytes(100)])
    assert file.size == FILE_BYTES_MAX


def test_no_space_is_told_from_a_broken_disk(tmp_path: Path) -> None:
    with pytest.raises(DiskFull):
        RealFile(Path("/dev/full")).append([b"x"])
    file = RealFile(tmp_path / "file")
    file.close()
    with pytest.raises(DiskFailed, match="closed"):
        file.append([b"x"])


def test_a_cached_read_gives_the_same_bytes_or_none(tmp_path: Path) -> None:
    file = DISK.open(tmp_path / "file")
    file.append([b"0123456789"])
    assert file.read_cached(2, 4) in (b"2345", None)
    assert file.read_cached(8, 100) in (b"89", None)
    assert file.read_cached(20, 5) in (b"", None)


def test_a_failed_sync_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "broken")

    file = DISK.open(tmp_path / "file")
    monkeypatch.setattr(os, "fdatasync", fail)
    for _ in range(3):
        with pytest.raises(DiskFailed, match="sync failed"):
            file.sync()
    assert len(calls) == 1


def test_replacing_a_file_leaves_no_temporary_one(tmp_path: Path) -> None:
    assert read_file(DISK, tmp_path / "file") is None
    replace_file(DISK, tmp_path / "file", b"one")
    replace_file(DISK, tmp_path / "file", b"2")
    assert read_file(DISK, tmp_path / "file") == b"2"
    assert DISK.names(tmp_path) == ["file"]


def test_what_the_system_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="file/below"):
        DISK.open(tmp_path / "file" / "below")
    with pytest.raises(Unwritable, match="file/below"):
        DISK.make_directory(tmp_path / "file" / "below")
    with pytest.raises(DiskFailed, match="absent: renaming to other failed"):
        DISK.rename(tmp_path / "absent", tmp_path / "other")
    with pytest.raises(DiskFailed, match="absent: removal failed"):
        DISK.remove(tmp_path / "absent")
    with pytest.raises(DiskFailed, match="absent: sync of the directory failed"):
        DISK.sync_directory(tmp_path / "absent")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_few_descriptors_are_no_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, "planted")

    monkeypatch.setattr(os, "open", refuse)
    for action in (
        lambda: DISK.open(tmp_path / "file"),
        lambda: DISK.sync_directory(tmp_path),
        lambda: replace_file(DISK, tmp_path / "file", b"one"),
    ):
        with pytest.raises(TooManyOpenFiles, match="ulimit -n") as caught:
            action()
        assert isinstance(caught.value, Retryable)
        assert str(tmp_path) in str(caught.value)
    monkeypatch.undo()
    replace_file(DISK, tmp_path / "file", b"one")
    assert read_file(DISK, tmp_path / "file") == b"one"


# A process of its own: in this one, other threads open and close descriptors meanwhile.
FEW_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from millstream.base.disk import RealDisk, TooManyOpenFiles

directory = Path(sys.argv[1])
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
for action in (
    lambda: RealDisk().open(directory / "file"),
    lambda: RealDisk().sync_directory(directory),
):
    try:
        action()
    except TooManyOpenFiles:
        print("named")
"""


def test_the_kernels_limit_of_descriptors_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["named", "named"]


def test_a_lock_is_held_against_another_process_and_says_by_whom(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.take()
    lock.note("process 42")
    program = (
        "import sys; from pathlib import Path; from millstream.base.disk import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); print(lock.take(), lock.read_note()); lock.release()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False process 42"
    lock.release()
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("True")


def test_a_file_that_must_exist_is_never_created(tmp_path: Path) -> None:
    disk = RealDisk()
    with pytest.raises(FileGone, match="is gone"):
        disk.open_existing(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()
    (tmp_path / "there").write_bytes(b"content")
    assert disk.open_existing(tmp_path / "there").read(0, 7) == b"content"
