"""How many files of a disk are open at one time: others are closed, and opened again when used.

    used ──> open ──(more than the limit)──> those not used for the longest time are closed
      ^                                        │
      └────────── opened again by its name ────┘

A file with writes that are not synced stays open: the kernel reports a write that failed later on
to the descriptors that were open then. It knows nothing about what is in the files.
"""

import contextlib
import errno
import os
import resource
import threading
import weakref
from pathlib import Path

from millstream.base.errors import MillstreamError

NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
# The rest of the process's descriptors is for connections, and for what is opened for a moment.
SHARE_OF_DESCRIPTORS = 2
# Of that rest, for what is opened for a moment; connections are never so few that nobody gets in.
KEPT_DESCRIPTORS = 64
CONNECTIONS_MIN = 16
# Where the system names no limit.
OPEN_FILES_MAX = 1 << 19
# At a full table this part of it is closed in one go: looking through it costs as much for one.
CLOSED_AT_ONCE = 8
# Where all files have unsynced writes, so many are synced to close them.
SYNCED_AT_ONCE = 8


def open_files_possible() -> int:
    """How many files of the log this process may have open, as its limit is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES_MAX
    return max(1, min(soft // SHARE_OF_DESCRIPTORS, OPEN_FILES_MAX))


def connections_possible() -> int:
    """How many clients may be connected beside those files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES_MAX
    return max(CONNECTIONS_MIN, soft - open_files_possible() - KEPT_DESCRIPTORS)


class Descriptor:
    """A file descriptor that is closed when its last user lets go of it.

    One thread may read a file that another one closes. The reader holds this object, so that the
    number cannot be given to a new file while it is in use.
    """

    __slots__ = ("_table", "number")

    def __init__(self, number: int, table: "dict[int, weakref.ref[ReopenedFile]]") -> None:
        self.number = number
        self._table = table

    def __del__(self) -> None:
        self._table.pop(self.number, None)
        os.close(self.number)


class ReopenedFile:
    """A file that may be closed while nobody uses it. Its methods may be called in any thread."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_is_closed",
        "_is_kept",
        "_is_retired",
        "_open_files",
        "_synced_writes",
        "_writes",
        "_writes_done",
        "last_used",
        "path",
    )

    def __init__(self, path: Path, open_files: "OpenFiles", *, creates: bool) -> None:
        self.path = path
        self.last_used = open_files.opened
        self._open_files = open_files
        self._is_closed = self._is_kept = self._is_retired = False
        self._writes = self._writes_done = self._synced_writes = 0
        self._descriptor: Descriptor | None = None
        self._descriptor = open_files.add(self, creates=creates)

    # --- use ----------------------------------------------------------------------------------

    def _to_read(self) -> Descriptor:
        self.last_used = self._open_files.opened
        return self._descriptor or self._open_again()

    def _to_write(self) -> Descriptor:
        """From here on the file stays open until a sync that begins after `_note_written`."""
        self.last_used = self._open_files.opened
        with self._open_files.lock:
            self._writes += 1
            descriptor = self._descriptor
        try:
            return descriptor or self._open_again()
        except BaseException:
            with self._open_files.lock:  # nothing will be written
                self._writes -= 1
            raise

    def _open_again(self) -> Descriptor:
        if self._is_closed:
            raise OSError(errno.EBADF, "closed")
        if self._is_retired:
            raise FileNotFoundError(errno.ENOENT, "removed", str(self.path))
        descriptor = self._open_files.add(self, creates=False)
        with self._open_files.lock:
            if self._is_closed or self._is_retired:  # its name may be another file's by now
                raise FileNotFoundError(errno.ENOENT, "removed", str(self.path))
            self._descriptor = self._descriptor or descriptor  # another thread may be faster
            return self._descriptor

    def _note_written(self) -> None:
        self._writes_done = self._writes

    def _note_synced(self, writes: int) -> None:
        with self._open_files.lock:
            self._synced_writes = max(self._synced_writes, writes)

    def sync_opened(self, descriptor: Descriptor) -> None:
        raise NotImplementedError

    # --- close --------------------------------------------------------------------------------

    @property
    def has_unsynced(self) -> bool:
        return self._writes != self._synced_writes

    def sync_if_open(self) -> None:
        descriptor = self._descriptor
        if descriptor is not None:
            self.sync_opened(descriptor)

    def let_go(self) -> Descriptor | None:
        """Close it for now, if it may be: when the caller drops what it gets."""
        with self._open_files.lock:
            if self._is_kept or self._is_retired or self.has_unsynced:
                return None
            descriptor, self._descriptor = self._descriptor, None
            return descriptor

    def keep_open(self) -> None:
        """Its name is about to mean another file: stay with this one until it is closed."""
        with self._open_files.lock:
            self._is_kept = True
        self._to_read()

    def retire(self) -> None:
        """Its name is about to go: never open it again. Whoever reads it now goes on."""
        with self._open_files.lock:
            self._is_retired = True

    def close(self) -> None:
        with self._open_files.lock:
            self._is_closed = True
            descriptor, self._descriptor = self._descriptor, None
        del descriptor


class OpenFiles:
    """The open files of one disk, at most `limit` and those that must not be closed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.Lock()
        # How many were opened so far: the time by which files were used before others.
        self.opened = 0
        # By descriptor; each takes itself out at its end.
        self._files: dict[int, weakref.ref[ReopenedFile]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: ReopenedFile, *, creates: bool) -> Descriptor:
        if len(self._files) >= self.limit:
            self._make_room()
        self.opened += 1
        number = self.open(file.path, os.O_RDWR | (os.O_CREAT if creates else 0))
        self._files[number] = weakref.ref(file)
        return Descriptor(number, self._files)

    def open(self, path: Path, flags: int) -> int:
        """Anything else, too: connections may have taken what the limit leaves to them."""
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS or not self._make_room():
                raise
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def _make_room(self) -> bool:
        """Close files; those with unsynced writes only after a sync."""
        if self._close_some():
            return True
        self._sync_some()
        return self._close_some()

    def _close_some(self) -> bool:
        wanted = max(1, self.limit // CLOSED_AT_ONCE)
        found = (reference() for reference in self._files.copy().values())
        closed = []
        for file in sorted((file for file in found if file), key=lambda file: file.last_used):
            if (descriptor := file.let_go()) is not None:
                closed.append(descriptor)
                if len(closed) == wanted:
                    break
        return bool(closed)

    def _sync_some(self) -> None:
        """A sync that fails is not lost: the file remembers it, and stays open."""
        found = (reference() for reference in self._files.copy().values())
        unsynced = [file for file in found if file and file.has_unsynced]
        for file in unsynced[:SYNCED_AT_ONCE]:
            with contextlib.suppress(MillstreamError):
                file.sync_if_open()
