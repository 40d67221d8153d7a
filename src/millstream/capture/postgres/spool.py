"""The messages of one transaction, until it commits: in memory while they are few, then on disk.

A file of the system's temporary directory that has no name: it ends with the process. Each entry
is a size(4), the number of the (sub-)transaction(4), and the message.
"""

import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO

from millstream.capture.source import SourceInterrupted

# The memory that one transaction may take. Small ones, nearly all, never see the disk.
MEMORY_BYTES_MAX = 2 * 1024 * 1024
READ_BYTES = 1024 * 1024
_ENTRY = struct.Struct(">II")
# What an entry takes in memory besides its bytes.
_ENTRY_MEMORY_BYTES = 120

Entry = tuple[int, bytes]


class SpoolUnwritable(SourceInterrupted):
    """Most likely the disk is full. The transaction comes again, from its start."""

    def __init__(self, *, messages: int, reason: str) -> None:
        super().__init__(
            f"a big transaction, of {messages} changes so far, cannot be kept in "
            f"{tempfile.gettempdir()} until it commits: {reason}. Make room there, or start the "
            "capture with another TMPDIR"
        )
        self.messages, self.reason = messages, reason


class Spool:
    """Written once, then read once, in order. Every transaction has one: it is made quickly."""

    __slots__ = ("_entries", "_file", "_memory_bytes", "_memory_bytes_max", "_open_file", "count")

    def __init__(
        self,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        open_file: Callable[[], IO[bytes]] | None = None,
    ) -> None:
        self._memory_bytes_max, self._open_file = memory_bytes_max, open_file
        self._entries: list[Entry] = []
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self.count = 0

    @property
    def is_on_disk(self) -> bool:
        return self._file is not None

    def append(self, xid: int, message: bytes) -> None:
        self._entries.append((xid, message))
        self.count += 1
        self._memory_bytes += len(message) + _ENTRY_MEMORY_BYTES
        if self._memory_bytes > self._memory_bytes_max:
            self._move_to_disk()

    def __iter__(self) -> Iterator[Entry]:
        if self._file is None:
            return iter(self._entries)
        return chain(_entries_of(self._file), self._entries)

    def close(self) -> None:
        self._entries = []
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk; what was in it is not needed
                self._file.close()
            self._file = None

    def _move_to_disk(self) -> None:
        pack = _ENTRY.pack
        parts = [pack(len(message), xid) + message for xid, message in self._entries]
        try:
            if self._file is None:
                self._file = (self._open_file or _temporary_file)()
            self._file.write(b"".join(parts))
        except OSError as error:
            raise SpoolUnwritable(messages=self.count, reason=str(error)) from error
        self._entries, self._memory_bytes = [], 0


def _temporary_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="millstream-transaction-")


def _entries_of(file: IO[bytes]) -> Iterator[Entry]:
    file.seek(0)
    rest = b""
    while data := file.read(READ_BYTES):
        held = rest + data
        at = 0
        while len(held) - at >= _ENTRY.size:
            size, xid = _ENTRY.unpack_from(held, at)
            end = at + _ENTRY.size + size
            if end > len(held):
                break
            yield xid, held[at + _ENTRY.size : end]
            at = end
        rest = held[at:]
