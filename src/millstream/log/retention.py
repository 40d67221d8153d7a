"""Which old segments may go. Pure: it looks at sizes and times and returns a count."""

from collections.abc import Sequence
from typing import Protocol

from millstream.log.config import UNLIMITED, LogConfig


class Aging(Protocol):
    """What retention must know of a segment."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def newest_ms(self) -> int: ...


def expired_count(segments: Sequence[Aging], config: LogConfig, *, now_ms: int) -> int:
    """How many segments, from the oldest on, are past retention by time or by size."""
    if not config.deletes_old_segments:
        return 0
    return max(
        _expired_by_time(segments, config.retention_ms, now_ms),
        _expired_by_size(segments, config.retention_bytes),
    )


def _expired_by_time(segments: Sequence[Aging], retention_ms: int, now_ms: int) -> int:
    if retention_ms == UNLIMITED:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.newest_ms <= retention_ms:
            break
        count += 1
    return count


def _expired_by_size(segments: Sequence[Aging], retention_bytes: int) -> int:
    """A segment goes only if what remains without it still holds `retention_bytes`."""
    if retention_bytes == UNLIMITED:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:-1]:  # the growing one stays
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        count += 1
    return count
