"""The disk as the log sees it: a port, and the real one behind it.

Everything that the log writes goes through `Disk` and `DiskFile`, so that tests can run the same
code on a simulated disk which forgets what was not synced (tests/faults/). The rules it is built
on: data is durable after `DiskFile.sync`, a name after `Disk.sync_directory`, and a failed sync
is never tried again (the kernel may have dropped the pages it could not write).
It knows nothing about batches, segments or topics.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.base.open_files import (
    NO_DESCRIPTOR_ERRNOS,
    Descriptor,
    OpenFiles,
    ReopenedFile,
    open_files_possible,
)
from millstream.base.quantity import MIB

Bytes: TypeAlias = bytes | bytearray | memoryview

# A disk with less room is full: less than the broker's own reserve for deletions.
FULL_BYTES = MIB
# The kernel takes at most this many buffers in one vectored write (UIO_MAXIOV on Linux).
IOVEC_MAX = 1024
# No space, quota exceeded, file too large for the file system: all three heal when space is freed.
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PRIVATE_MODE = 0o700


class DiskFull(Retryable):
    """A write found no space; nothing of it was kept."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(f"{path}: no space left on the disk; free some, writing goes on by itself")
        self.path = path


class TooManyOpenFiles(Retryable):
    """The process or the system has no file descriptor left; nothing was written or lost."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(
            f"{path}: too many open files; raise the limit (ulimit -n), or have fewer partitions, "
            "segments or connections"
        )
        self.path = path


class FileGone(Retryable):
    """A file that was to be read has been removed: with its topic, or by retention."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(f"{path}: is gone")
        self.path = path


class DiskFailed(Corrupt):
    """The operating system could not read, write or sync."""

    def __init__(self, *, path: Path, action: str, error: OSError) -> None:
        super().__init__(
            f"{path}: {action} failed ({os.strerror(error.errno or 0)}); check the disk and the "
            "system's messages, then restart"
        )
        self.path, self.action, self.error = path, action, error


class Unwritable(Rejected):
    """A directory or file that must be writable is not."""

    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: cannot be used ({reason}); choose another path or mend its rights"
        )
        self.path, self.reason = path, reason


class DiskFile(Protocol):
    """One open file that grows at its end. `size` counts what was appended, synced or not."""

    path: Path
    size: int

    def append(self, chunks: Sequence[Bytes]) -> None:
        """Write all chunks at the end, or nothing: `DiskFull` leaves the file as it was."""

    def read(self, position: int, size: int) -> Bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def read_cached(self, position: int, size: int) -> Bytes | None:
        """Like `read`, but None if that would wait for the device."""

    def overwrite(self, data: Bytes) -> None:
        """Replace the whole content. Not atomic: for files that can be rebuilt."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def keep_open(self) -> None:
        """Call it before the name means another file: this one is read on until it is closed."""

    def retire(self) -> None:
        """Call it before the name goes: whoever reads it goes on; later on it is `FileGone`."""

    def close(self) -> None: ...


class Disk(Protocol):
    """Directories and names."""

    def open(self, path: Path) -> DiskFile:
        """Open for reading and appending; an absent file is created, empty."""

    def open_existing(self, path: Path) -> DiskFile:
        """The same, but an absent file is `FileGone`."""

    def names(self, directory: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Create one directory (its parent exists); an existing one is fine."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def free_bytes(self, path: Path) -> int: ...


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Swap in a whole new content: after a crash the file holds the old one or the new one."""
    write_file(disk, path, content)
    disk.sync_directory(path.parent)


def write_file(disk: Disk, path: Path, content: bytes) -> None:
    """The same, for a caller that syncs the directory later."""
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary)
    try:
        file.truncate(0)
        file.append([content])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)


def read_file(disk: Disk, path: Path) -> bytes | None:
    """The whole content, or None if there is no such file."""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return bytes(file.read(0, file.size))
    finally:
        file.close()


class RealFile(ReopenedFile):
    """A `DiskFile` on the operating system."""

    __slots__ = ("_sync_failure", "_sync_turn", "size")

    def __init__(
        self, path: Path, *, must_exist: bool = False, open_files: OpenFiles | None = None
    ) -> None:
        if open_files is None:
            open_files = OpenFiles(open_files_possible())
        super().__init__(path, open_files, creates=not must_exist)
        descriptor = self._to_read()  # by name: it is closed when nobody holds it
        self.size = os.fstat(descriptor.number).st_size
        self._sync_turn = threading.Lock()
        self._sync_failure: DiskFailed | None = None

    def _open_again(self) -> Descriptor:
        try:
            return super()._open_again()
        except FileNotFoundError as error:
            raise FileGone(path=self.path) from error
        except OSError as error:
            _raise_if_it_heals(self.path, error)
            action = "use of a closed file" if error.errno == errno.EBADF else "opening it again"
            raise DiskFailed(path=self.path, action=action, error=error) from error

    def append(self, chunks: Sequence[Bytes]) -> None:
        start, descriptor = self.size, self._to_write()
        try:
            for first in range(0, len(chunks), IOVEC_MAX):
                self._append_some(descriptor, chunks[first : first + IOVEC_MAX])
        except OSError as error:
            self._undo_append(descriptor, start)
            if error.errno in FULL_ERRNOS:
                raise DiskFull(path=self.path) from error
            raise DiskFailed(path=self.path, action="write", error=error) from error
        finally:
            self._note_written()

    def _append_some(self, descriptor: Descriptor, chunks: Sequence[Bytes]) -> None:
        wanted = sum(map(len, chunks))
        written = os.pwritev(descriptor.number, chunks, self.size)
        self.size += written
        if written < wanted:  # a full disk takes a part first; the retry raises the reason
            rest = memoryview(b"".join(chunks))[written:]
            while rest:
                count = os.pwrite(descriptor.number, rest, self.size)
                self.size += count
                rest = rest[count:]

    def _undo_append(self, descriptor: Descriptor, start: int) -> None:
        # If even this fails, bytes past `size` stay behind: the next append overwrites
        # them, and recovery cuts them off as a torn tail.
        self.size = start
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor.number, start)

    def read(self, position: int, size: int) -> Bytes:
        descriptor = self._to_read()
        try:
            data = os.pread(descriptor.number, size, position)
            while len(data) < size:
                more = os.pread(descriptor.number, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise DiskFailed(path=self.path, action="read", error=error) from error

    def read_cached(self, position: int, size: int) -> Bytes | None:
        descriptor = self._to_read()
        size = max(0, min(size, self.size - position))
        buffer = bytearray(size)
        try:
            count = os.preadv(descriptor.number, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # some file systems: read as usual
                return self.read(position, size)
            raise DiskFailed(path=self.path, action="read", error=error) from error
        return buffer if count == size else None

    def overwrite(self, data: Bytes) -> None:
        self.truncate(0)
        self.append([data])

    def truncate(self, size: int) -> None:
        descriptor = self._to_write()
        try:
            with _translated(self.path, "truncate"):
                os.ftruncate(descriptor.number, size)
            self.size = size
        finally:
            self._note_written()

    def sync(self) -> None:
        self.sync_opened(self._descriptor or self._open_again())

    def sync_opened(self, descriptor: Descriptor) -> None:
        """One at a time, and never again after a failure.

        The kernel tells of lost pages once per open file: of two syncs at the same time one
        could succeed although the other has just been told.
        """
        with self._sync_turn:
            if self._sync_failure is None:
                writes = self._writes_done
                try:
                    os.fdatasync(descriptor.number)
                    self._note_synced(writes)
                except OSError as error:
                    self._sync_failure = DiskFailed(path=self.path, action="sync", error=error)
            if self._sync_failure is not None:
                raise self._sync_failure


@contextlib.contextmanager
def _translated(path: Path, action: str) -> Iterator[None]:
    """What fails in the operating system becomes an error of ours, with its path."""
    try:
        yield
    except OSError as error:
        _raise_if_it_heals(path, error)
        raise DiskFailed(path=path, action=action, error=error) from error


@contextlib.contextmanager
def _refused(path: Path) -> Iterator[None]:
    """The same for what a user can have chosen wrongly: a path and its rights."""
    try:
        yield
    except OSError as error:
        _raise_if_it_heals(path, error)
        raise Unwritable(path=path, reason=os.strerror(error.errno or 0)) from error


def _raise_if_it_heals(path: Path, error: OSError) -> None:
    if error.errno in FULL_ERRNOS:
        raise DiskFull(path=path) from error
    if error.errno in NO_DESCRIPTOR_ERRNOS:
        raise TooManyOpenFiles(path=path) from error


def make_private_directories(path: Path) -> None:
    """It, and all above it that are missing, for their owner alone, whatever the umask says. What
    is there stays as it is. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=PRIVATE_MODE, exist_ok=True)


class RealDisk:
    """A `Disk` on the operating system, which has at most so many files open at one time."""

    def __init__(self, *, open_files_max: int | None = None) -> None:
        limit = open_files_possible() if open_files_max is None else open_files_max
        self.open_files = OpenFiles(limit)

    def open(self, path: Path) -> DiskFile:
        with _refused(path):
            return RealFile(path, open_files=self.open_files)

    def open_existing(self, path: Path) -> DiskFile:
        with _refused(path):
            try:
                return RealFile(path, must_exist=True, open_files=self.open_files)
            except FileNotFoundError as error:
                raise FileGone(path=path) from error

    def names(self, directory: Path) -> list[str]:
        return os.listdir(directory)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_directory(self, path: Path) -> None:
        with _refused(path):
            path.mkdir(exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        with _translated(path, "removal"):
            path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        with _translated(source, f"renaming to {target.name}"):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        with _translated(path, "removal"):
            path.unlink()

    def sync_directory(self, path: Path) -> None:
        with _translated(path, "sync of the directory"):
            fd = self.open_files.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


class FileLock:
    """Holds an exclusive lock on a file for as long as this process lives."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(path, "a+b")  # noqa: SIM115 - held open: closing gives the lock back
        except OSError as error:
            raise Unwritable(path=path.parent, reason=os.strerror(error.errno or 0)) from error
        self.path = path

    def take(self) -> bool:
        """True if the lock is ours now, False if another process holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def note(self, text: str) -> None:
        """Leave a word for whoever finds the lock taken."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text.encode())
        self._file.flush()

    def read_note(self) -> str:
        self._file.seek(0)
        return self._file.read().decode(errors="replace")

    def release(self) -> None:
        self._file.close()
