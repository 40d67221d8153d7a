"""What is asked of the system: mounts, ports, directories; on real files and sockets."""

import os
import socket
from pathlib import Path

from millstream.base.disk import FileLock
from millstream.doctor.machine import file_system_of, memory_bytes, nearest, sync_ms
from millstream.doctor.places import holder_of, looked_at
from millstream.log.log_directory import LOCK_FILE


def test_the_file_system_is_that_of_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"a / ext4 rw 0 0\nb {tmp_path.resolve()} tmpfs rw 0 0\nc /proc proc rw 0 0\n"
    )
    assert file_system_of(tmp_path / "data", mounts) == "tmpfs"
    assert file_system_of(Path("/"), mounts) == "ext4"
    assert file_system_of(tmp_path, tmp_path / "nothing") is None


def test_a_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path


def test_a_sync_takes_some_time(tmp_path: Path) -> None:
    assert sync_ms(tmp_path) > 0
    assert not list(tmp_path.iterdir())


def test_there_is_memory() -> None:
    assert memory_bytes() > 0


def test_who_listens_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if Path("/proc/net/tcp").exists():
            assert holder_of(port).startswith(f"process {os.getpid()} (")
    assert holder_of(port) == ""


def test_a_data_directory_is_looked_at(tmp_path: Path) -> None:
    assert not looked_at(tmp_path / "nothing").exists
    (tmp_path / "file").touch()
    assert not looked_at(tmp_path / "file").is_directory
    assert looked_at(tmp_path).owner == ""
    lock = FileLock(tmp_path / LOCK_FILE)
    assert lock.take()
    lock.note("process 7\n")
    assert looked_at(tmp_path).owner == "process 7"
    lock.release()
    assert looked_at(tmp_path).owner == ""
