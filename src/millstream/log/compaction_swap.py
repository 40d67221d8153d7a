"""Putting a cleaned segment in the place of those it was made from, so that a crash at any step
leaves either all of the old ones or the new one.

    1  <base>.*.cleaned   complete and synced, names too; a crash removes them
    2  <base>.*.swap      renamed, directory synced: from here on the new one counts
    3  the others gone, indexes renamed to their final names, directory synced
    4  <base>.log         renamed last, directory synced

Recovery: with a `.log.swap` it goes on from 3, however far that came; without one, `.cleaned` and
`.swap` files are removed. Which segments are to go is in the new one itself: its last batch ends
where they ended, always. The names and the order are Kafka's.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from millstream.base.disk import Disk
from millstream.base.errors import Corrupt
from millstream.log.batch_walk import BrokenAt, Walk
from millstream.log.config import INT64_MAX
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, segment_name
from millstream.log.transaction_index import TXN_INDEX_SUFFIXES

CLEANED = ".cleaned"
SWAP = ".swap"
# Every file of a cleaned segment, the one that decides last.
INDEX_SUFFIXES = (*(one for one in SEGMENT_SUFFIXES if one != LOG_SUFFIX), *TXN_INDEX_SUFFIXES)
ALL_SUFFIXES = (*INDEX_SUFFIXES, LOG_SUFFIX)
UNFINISHED_FILE = re.compile(r"(\d{20})(\.[a-z.]+)(\.cleaned|\.swap)")
SEGMENT_FILE = re.compile(r"(\d{20})\.log")


class BrokenSwap(Corrupt):
    """A `.log.swap` file cannot be read to its end, so nobody knows what it replaces."""

    def __init__(self, *, path: Path, position: int, reason: str) -> None:
        super().__init__(
            f"{path}: damaged at byte {position} ({reason}) before it was in its place; restore "
            "the directory from a copy, or move this file away if the segments from its offset on "
            "are all there"
        )
        self.path, self.position, self.reason = path, position, reason


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{segment_name(base_offset)}{suffix}{CLEANED}"


@dataclass(frozen=True, slots=True)
class Swap:
    """The exchange of the segments with offsets [base_offset, end_offset) for the cleaned one.

    Each step can be done again: after a failure, and by recovery.
    """

    disk: Disk
    directory: Path
    base_offset: int
    end_offset: int

    def run(self) -> None:
        """All of it. May block: call it in a thread."""
        if self._has(LOG_SUFFIX, CLEANED):
            for suffix in ALL_SUFFIXES:
                self._rename(suffix, CLEANED, SWAP)
            self.disk.sync_directory(self.directory)
        if self._has(LOG_SUFFIX, SWAP):
            self.finish()

    def finish(self) -> None:
        """The new segment counts already: remove what it replaces, and give it its names."""
        for base_offset in self._replaced():
            for suffix in ALL_SUFFIXES:
                _remove_if_there(self.disk, self.directory / (segment_name(base_offset) + suffix))
        for suffix in INDEX_SUFFIXES:
            self._rename(suffix, CLEANED, "")  # a crash can have kept one rename and not another
            self._rename(suffix, SWAP, "")
        self.disk.sync_directory(self.directory)
        self._rename(LOG_SUFFIX, SWAP, "")
        self.disk.sync_directory(self.directory)

    def _replaced(self) -> list[int]:
        """The segments that go; the one with the same name is replaced by the rename."""
        matches = map(SEGMENT_FILE.fullmatch, self.disk.names(self.directory))
        bases = sorted(int(match[1]) for match in matches if match)
        return [base for base in bases if self.base_offset < base < self.end_offset]

    def _has(self, suffix: str, state: str) -> bool:
        return self.disk.exists(self._path(suffix, state))

    def _rename(self, suffix: str, state: str, new_state: str) -> None:
        if self._has(suffix, state):
            self.disk.rename(self._path(suffix, state), self._path(suffix, new_state))

    def _path(self, suffix: str, state: str) -> Path:
        return self.directory / f"{segment_name(self.base_offset)}{suffix}{state}"


def discard(disk: Disk, directory: Path, base_offset: int, state: str) -> None:
    """Remove the files of a segment that will not be swapped in."""
    for suffix in ALL_SUFFIXES:
        _remove_if_there(disk, directory / f"{segment_name(base_offset)}{suffix}{state}")


def discard_cleaned(disk: Disk, directory: Path) -> None:
    """Remove what a cleaning left that did not come to its end."""
    for name in disk.names(directory):
        match = UNFINISHED_FILE.fullmatch(name)
        if match and match[3] == CLEANED:
            disk.remove(directory / name)


def recover_swaps(disk: Disk, directory: Path) -> None:
    """After a crash: finish the exchanges that count, remove the files of all others."""
    found = map(UNFINISHED_FILE.fullmatch, disk.names(directory))
    matches = [match for match in found if match]
    if not matches:
        return
    decided = {int(match[1]) for match in matches if match[2] + match[3] == LOG_SUFFIX + SWAP}
    for base_offset in sorted(decided):
        end_offset = _end_of(disk, directory / f"{segment_name(base_offset)}{LOG_SUFFIX}{SWAP}")
        Swap(disk, directory, base_offset, end_offset).finish()
    for match in matches:
        _remove_if_there(disk, directory / match[0])
    disk.sync_directory(directory)


def _end_of(disk: Disk, path: Path) -> int:
    """Where the last batch of a segment ends. Reads all of it, which only a crash asks for."""
    file = disk.open(path)
    try:
        walk = Walk(file.read, file.size, INT64_MAX, LeaderEpochs(), file.size, True)
        end_offset = 0
        for _, header in walk.batches(0, int(path.name[:20])):
            end_offset = header.last_offset + 1
    except BrokenAt as broken:
        raise BrokenSwap(
            path=path, position=broken.position, reason=broken.error.reason
        ) from broken
    finally:
        file.close()
    return end_offset


def _remove_if_there(disk: Disk, path: Path) -> None:
    if disk.exists(path):
        disk.remove(path)
