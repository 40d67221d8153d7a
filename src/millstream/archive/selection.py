"""Which archived records are meant: a range of offsets, a range of times, or both. Pure."""

from dataclasses import dataclass

from millstream.archive.manifest import ArchivedFile, ArchivedPartition
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offsets [start, end) of every partition, and of these the times [since_ms, until_ms)."""

    start: int = 0
    end: int = INT64_MAX
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def by_time(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None

    def may_hold(self, file: ArchivedFile) -> bool:
        """Whether a file can have such records; its ranges in the manifest tell without a read."""
        return self._meets_offsets(file.offsets) and self._meets_times(file)

    def _meets_offsets(self, offsets: OffsetRange) -> bool:
        return offsets.start < self.end and self.start < offsets.end

    def _meets_times(self, file: ArchivedFile) -> bool:
        if not self.by_time:
            return True
        if file.time_min_ms is None or file.time_max_ms is None:
            return False
        after = self.since_ms is None or file.time_max_ms >= self.since_ms
        before = self.until_ms is None or file.time_min_ms < self.until_ms
        return after and before


def keeps_offsets(partition: ArchivedPartition, selection: Selection) -> bool:
    """Whether records restored to an empty partition get the offsets that they had."""
    return partition.is_complete and selection.start == 0 and not selection.by_time
