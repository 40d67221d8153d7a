"""The two sparse indexes of a segment: from offset to position, and from time to offset.

One entry for about every `index.interval.bytes` of the segment, in Kafka's format. An active
segment keeps its entries in memory and writes them when it is closed; those of a closed segment
stay on disk and are read entry by entry (18 small reads in a full segment), so that a long
history costs no memory. Both can always be rebuilt from the segment.
"""

import copy
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from millstream.base.disk import DiskFile

# One entry of `.index`, big-endian, sorted by offset:
#
#   relative_offset  uint32   last offset of a batch, minus the segment's base offset
#   position         uint32   where that batch starts in the .log file
OFFSET_ENTRY = struct.Struct(">II")

# One entry of `.timeindex`, big-endian, timestamps strictly increasing:
#
#   timestamp        int64    the largest timestamp in the segment so far, ms
#   relative_offset  uint32   last offset of the batch that brought it
TIME_ENTRY = struct.Struct(">qI")


NO_TIMESTAMP = -1


class TimeMark(NamedTuple):
    """The batch whose last record has this offset brought this timestamp, the largest so far."""

    timestamp: int
    offset: int


class EntryTable:
    """Fixed-size entries, sorted by their first field; in memory while growing, else on disk."""

    def __init__(self, entry: struct.Struct, file: DiskFile, *, is_growing: bool) -> None:
        self._entry = entry
        self.file = file
        self._growing = bytearray(file.read(0, file.size)) if is_growing else None

    def __len__(self) -> int:
        growing = self._growing  # once: another thread may freeze it meanwhile
        size = self.file.size if growing is None else len(growing)
        return size // self._entry.size

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def size_bytes(self) -> int:
        return len(self) * self._entry.size

    @property
    def is_whole(self) -> bool:
        return self.file.size % self._entry.size == 0

    def __getitem__(self, number: int) -> tuple[int, int]:
        growing = self._growing
        at = number * self._entry.size
        if growing is None:
            first, second = self._entry.unpack(self.file.read(at, self._entry.size))
        else:
            first, second = self._entry.unpack_from(growing, at)
        return first, second

    def append(self, first: int, second: int) -> None:
        assert self._growing is not None, "a closed index does not grow"
        self._growing += self._entry.pack(first, second)

    def last_at_most(self, key: int) -> int:
        """The number of the last entry whose first field is <= key, or -1."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    @property
    def is_on_disk(self) -> bool:
        return self._growing is None

    def clear(self) -> None:
        self._growing = bytearray()

    def emptied(self) -> Self:
        """Another table for the same file that starts anew."""
        other = copy.copy(self)
        other.clear()
        return other

    def save(self) -> None:
        """Write what grew in memory to the file and sync it."""
        if self._growing is not None:
            self.file.overwrite(self._growing)
            self.file.sync()

    def freeze(self) -> None:
        """From now on read entries from the file; `save` came before."""
        self._growing = None


class OffsetMark(NamedTuple):
    """A batch whose last record has this offset starts at this position of the segment."""

    offset: int
    position: int


class OffsetIndex(EntryTable):
    def __init__(self, file: DiskFile, base_offset: int, *, is_growing: bool) -> None:
        super().__init__(OFFSET_ENTRY, file, is_growing=is_growing)
        self._base_offset = base_offset

    def add(self, mark: OffsetMark) -> None:
        self.append(mark.offset - self._base_offset, mark.position)

    def mark(self, number: int) -> OffsetMark:
        relative, position = self[number]
        return OffsetMark(relative + self._base_offset, position)

    def mark_for(self, offset: int) -> OffsetMark | None:
        """The last mark at or before `offset`; None if the search starts at the first batch."""
        number = self.last_at_most(offset - self._base_offset)
        return self.mark(number) if number >= 0 else None

    @property
    def last(self) -> OffsetMark | None:
        return self.mark(len(self) - 1) if len(self) else None

    def marks_behind(self, position: int) -> Iterator[OffsetMark]:
        """The marks of batches behind `position`, nearest first."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][1] <= position:
                low = middle + 1
            else:
                high = middle
        return map(self.mark, range(low, len(self)))


class TimeIndex(EntryTable):
    def __init__(self, file: DiskFile, base_offset: int, *, is_growing: bool) -> None:
        super().__init__(TIME_ENTRY, file, is_growing=is_growing)
        self._base_offset = base_offset
        self._last_timestamp = self.last.timestamp if is_growing else NO_TIMESTAMP

    def add(self, mark: TimeMark) -> None:
        """Add an entry, unless its timestamp is no larger than the last one's."""
        if mark.timestamp > self._last_timestamp:
            self._last_timestamp = mark.timestamp
            self.append(mark.timestamp, mark.offset - self._base_offset)

    def clear(self) -> None:
        super().clear()
        self._last_timestamp = NO_TIMESTAMP

    def mark(self, number: int) -> TimeMark:
        timestamp, relative = self[number]
        return TimeMark(timestamp, relative + self._base_offset)

    @property
    def last(self) -> TimeMark:
        return self.mark(len(self) - 1) if len(self) else TimeMark(NO_TIMESTAMP, self._base_offset)

    def mark_for(self, timestamp: int) -> TimeMark | None:
        """The last mark before `timestamp`; None if the search starts at the first batch."""
        # The entry says: everything up to its offset is at most this old. Strictly older than
        # the target, the search can start there; an equal one may not be the first.
        number = self.last_at_most(timestamp - 1)
        return self.mark(number) if number >= 0 else None
