"""The producer snapshots of one partition on disk: `<offset>.snapshot`, complete up to offset."""

import logging
import re
from pathlib import Path

from millstream.base.disk import Disk, read_file, replace_file
from millstream.log.producer_state import BadSnapshot, ProducerStates

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOT_FILE = re.compile(r"(\d{20})\.snapshot")
# Recovery needs the snapshot at the last segment's base; one more in case that one is damaged.
SNAPSHOTS_KEPT = 2


class SnapshotFiles:
    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def save(self, offset: int, producers: ProducerStates) -> None:
        replace_file(self._disk, self._path(offset), producers.to_bytes())

    def load_newest(self, *, end_offset: int) -> tuple[int, ProducerStates] | None:
        """The newest readable snapshot at or below `end_offset`; those beyond it are removed."""
        for offset in reversed(self._offsets()):
            path = self._path(offset)
            if offset > end_offset:
                self._disk.remove(path)
                continue
            try:
                return offset, ProducerStates.from_bytes(read_file(self._disk, path) or b"")
            except BadSnapshot as error:
                logger.warning("%s: not used (%s)", path, error)
        return None

    def drop_old(self) -> None:
        for offset in self._offsets()[:-SNAPSHOTS_KEPT]:
            self._disk.remove(self._path(offset))

    def _offsets(self) -> list[int]:
        names = self._disk.names(self._directory)
        return sorted(int(match[1]) for name in names if (match := SNAPSHOT_FILE.fullmatch(name)))

    def _path(self, offset: int) -> Path:
        return self._directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"
