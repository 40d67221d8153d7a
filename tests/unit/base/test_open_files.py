"""A disk with few open files: closed and opened again, none loses a byte or the news of a loss."""

import errno
import os
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed, DiskFile, FileGone, RealDisk
from millstream.base.open_files import CONNECTIONS_MIN, connections_possible

LIMIT = 4
COUNT = 25


def open_in(directory: Path) -> list[str]:
    """The names of files in the directory that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
        if path.parent == directory:
            found.append(path.name)
    return sorted(found)


def synced_files(disk: RealDisk, directory: Path) -> list[DiskFile]:
    files = [disk.open(directory / f"{number:02}") for number in range(COUNT)]
    for number, file in enumerate(files):
        file.append([b"%d" % number])
        file.sync()
    return files


def test_no_more_files_than_the_limit_are_open_and_all_can_be_used(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=LIMIT)
    files = synced_files(disk, tmp_path)
    for _ in range(2):
        for file in files:
            file.append([b"."])
            file.sync()
            assert len(open_in(tmp_path)) <= LIMIT
    for number, file in enumerate(files):
        assert bytes(file.read(0, 10)) == b"%d.." % number
    for file in files:
        file.close()
    assert open_in(tmp_path) == []
    assert len(disk.open_files) == 0


def test_a_file_that_is_used_all_the_time_stays_open(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=LIMIT)
    files = synced_files(disk, tmp_path)
    for file in files[1:]:
        files[0].read(0, 1)
        file.read(0, 1)
        assert files[0].path.name in open_in(tmp_path)


def test_a_file_with_unsynced_writes_is_synced_before_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    system_sync = os.fdatasync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        system_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    disk = RealDisk(open_files_max=LIMIT)
    files = []
    for number in range(COUNT):
        files.append(disk.open(tmp_path / f"{number:02}"))
        files[-1].append([b"x"])
        closed = {file.path.name for file in files} - set(open_in(tmp_path))
        assert closed <= set(synced)
    assert len(synced) >= COUNT - LIMIT - 1


def test_a_sync_that_failed_while_room_was_made_is_known_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "planted")

    disk = RealDisk(open_files_max=1)
    lost = disk.open(tmp_path / "lost")
    lost.append([b"x"])
    monkeypatch.setattr(os, "fdatasync", fail)
    other = disk.open(tmp_path / "other")
    monkeypatch.undo()
    assert open_in(tmp_path) == ["lost", "other"]
    with pytest.raises(DiskFailed, match="lost: sync failed"):
        lost.sync()
    other.sync()


def test_a_write_that_could_not_begin_does_not_keep_its_file_open_for_ever(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=LIMIT)
    files = synced_files(disk, tmp_path)
    hidden = tmp_path / "hidden"
    files[0].path.rename(hidden)
    with pytest.raises(FileGone):
        files[0].append([b"never"])
    hidden.rename(files[0].path)
    files[0].read(0, 1)
    assert open_in(tmp_path).count(files[0].path.name) == 1
    for file in files[1:]:
        file.read(0, 1)
    assert files[0].path.name not in open_in(tmp_path)


def test_a_retired_file_is_never_confused_with_the_next_one_of_its_name(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=1)
    old = disk.open(tmp_path / "orders")
    read_now = disk.open(tmp_path / "payments")
    read_now.append([b"old"])
    for file in (old, read_now):
        file.retire()
    for name in ("orders", "payments"):
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(b"new")
    with pytest.raises(FileGone, match="orders"):
        old.read(0, 3)
    assert read_now.read(0, 3) == b"old"


def test_a_file_that_is_kept_open_is_read_on_when_its_name_means_another(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=1)
    file = disk.open(tmp_path / "orders")
    file.append([b"old"])
    file.sync()
    disk.open(tmp_path / "other")
    file.keep_open()
    (tmp_path / "cleaned").write_bytes(b"new")
    disk.rename(tmp_path / "cleaned", tmp_path / "orders")
    for number in range(3):
        disk.open(tmp_path / f"more-{number}")
        assert file.read(0, 3) == b"old"


def test_a_removed_file_is_not_created_again_when_it_is_used(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=1)
    files = synced_files(disk, tmp_path)
    files[0].path.unlink()
    with pytest.raises(FileGone):
        files[0].read(0, 1)
    with pytest.raises(FileGone):
        files[0].append([b"x"])
    assert not files[0].path.exists()


def test_threads_that_share_few_descriptors_read_and_write_the_right_files(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=2)
    files = [disk.open(tmp_path / f"{number:02}") for number in range(8)]
    errors: list[BaseException] = []

    def work(first: int) -> None:
        chosen = random.Random(first)
        try:
            for _ in range(200):
                mine = files[first + 4 * chosen.randrange(2)]  # one writer to each file
                mine.append([mine.path.name.encode()])
                if chosen.random() < 0.5:
                    mine.sync()
                other = files[chosen.randrange(8)]
                assert bytes(other.read(0, 2)) in (b"", other.path.name.encode())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for file in files:
        assert bytes(file.read(0, file.size)) == file.path.name.encode() * (file.size // 2)


# A process of its own: in this one, other threads open and close descriptors meanwhile.
TAKEN_BY_OTHERS = """
import os, resource, sys
from pathlib import Path
from millstream.base.disk import RealDisk

directory = Path(sys.argv[1])
disk = RealDisk(open_files_max=8)
files = [disk.open(directory / str(number)) for number in range(8)]
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
disk.open(directory / "another").append([b"x"])
disk.sync_directory(directory)
print("served")
"""


def test_files_are_closed_where_others_have_taken_all_descriptors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKEN_BY_OTHERS, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout == "served\n", run.stderr


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(1_048_576, 524_224), (1_024, 448), (256, 64), (64, CONNECTIONS_MIN)],
)
def test_connections_are_bounded_by_the_descriptors_that_files_leave(
    limit: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert connections_possible() == connections
