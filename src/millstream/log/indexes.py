"""The two sparse indexes of a segment: from offset to position, and from time to offset.

One entry for about every `index.interval.bytes` of the segment, in Kafka's format. An active
segment keeps its entries in memory and writes them when it is closed; those of a closed segment
stay on disk and are read entry by entry (18 small reads in a full segment), so that a long
history costs no memory. Both can always be rebuilt from the segment.
"""

import struct
from typing import NamedTuple

from millstream.base.disk import Bytes, DiskFile

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


class TimeMark(NamedTuple):
    timestamp: int
    offset: int


class EntryTable:
    """Fixed-size entries, sorted by their first field; in memory while growing, else on disk."""

    def __init__(self, entry: struct.Struct, file: DiskFile, *, is_growing: bool) -> None:
        self._entry = entry
        self._file = file
        self._growing = bytearray(file.read(0, file.size)) if is_growing else None

    def __len__(self) -> int:
        size = self._file.size if self._growing is None else len(self._growing)
        return size // self._entry.size

    @property
    def size_bytes(self) -> int:
        return len(self) * self._entry.size

    @property
    def is_whole(self) -> bool:
        return self._file.size % self._entry.size == 0

    def __getitem__(self, number: int) -> tuple[int, int]:
        at = number * self._entry.size
        data: Bytes
        if self._growing is None:
            data, at = self._file.read(at, self._entry.size), 0
        else:
            data = self._growing
        first, second = self._entry.unpack_from(data, at)
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

    def clear(self) -> None:
        self._growing = bytearray()

    def save(self) -> None:
        """Write what grew in memory to the file and sync it."""
        assert self._growing is not None, "a closed index is already saved"
        self._file.overwrite(self._growing)
        self._file.sync()

    def freeze(self) -> None:
        """From now on read entries from the file; `save` came before."""
        self._growing = None

    def close(self) -> None:
        self._file.close()


class OffsetIndex(EntryTable):
    def __init__(self, file: DiskFile, base_offset: int, *, is_growing: bool) -> None:
        super().__init__(OFFSET_ENTRY, file, is_growing=is_growing)
        self._base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append(last_offset - self._base_offset, position)

    def position_for(self, offset: int) -> int:
        """Where to start reading for `offset`: a batch at or before the one that holds it."""
        number = self.last_at_most(offset - self._base_offset)
        return self[number][1] if number >= 0 else 0

    def position_after(self, position: int) -> int | None:
        """The next indexed batch behind `position`: where reading can go on after damage."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][1] <= position:
                low = middle + 1
            else:
                high = middle
        return self[low][1] if low < len(self) else None


class TimeIndex(EntryTable):
    def __init__(self, file: DiskFile, base_offset: int, *, is_growing: bool) -> None:
        super().__init__(TIME_ENTRY, file, is_growing=is_growing)
        self._base_offset = base_offset

    def add(self, mark: TimeMark) -> None:
        """Add an entry, unless its timestamp is no larger than the last one's."""
        if mark.timestamp > self.last.timestamp:
            self.append(mark.timestamp, mark.offset - self._base_offset)

    @property
    def last(self) -> TimeMark:
        if len(self) == 0:
            return TimeMark(-1, self._base_offset)
        timestamp, relative = self[len(self) - 1]
        return TimeMark(timestamp, relative + self._base_offset)

    def offset_for(self, timestamp: int) -> int:
        """An offset at or before the first record with a timestamp >= `timestamp`."""
        # The entry says: everything up to its offset is at most this old. Strictly older than
        # the target, the search can start there; an equal one may not be the first.
        number = self.last_at_most(timestamp - 1)
        return self[number][1] + self._base_offset if number >= 0 else self._base_offset
