"""What of a compacted log may be cleaned, whether it is worth it, and what fits one segment.

Pure: facts about closed segments come in, a plan goes out. A log has a clean head, cleaned before,
and a dirty tail up to the first offset that must not be touched yet: the last stable offset, the
growing segment, and what is younger than `min.compaction.lag.ms`. The cleaning itself is in
compaction_run.py, the exchange of the files in compaction_swap.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from millstream.log.config import LogConfig

# Index entries hold offsets relative to the segment in 32 bits, of which Java uses 31.
SEGMENT_OFFSETS_MAX = 1 << 31


class SegmentFacts(NamedTuple):
    """What a plan must know of a closed segment; offsets [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int
    newest_ms: int


class Limits(Protocol):
    """How large a segment may be."""

    @property
    def segment_bytes(self) -> int: ...

    @property
    def segment_index_bytes(self) -> int: ...


class LastOfProducer(NamedTuple):
    """Where the last data of a producer is; NO_DATA if it has written but a marker."""

    offset: int
    epoch: int


NO_DATA = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """Segments from the log's start to the first that must stay; dirty from an offset on."""

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int

    @property
    def dirty_bytes(self) -> int:
        dirty = (one for one in self.segments if one.end_offset > self.first_dirty_offset)
        return sum(one.size_bytes for one in dirty)

    @property
    def dirty_ratio(self) -> float:
        total_bytes = sum(one.size_bytes for one in self.segments)
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def find_cleanable(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    cleaned_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable | None:
    """The closed segments that may be cleaned now; None if nothing in them is dirty."""
    newest_max = now_ms - config.compaction_lag_min_ms
    may_go: list[SegmentFacts] = []
    for segment in segments:
        is_dirty = segment.end_offset > cleaned_offset
        if segment.end_offset > stable_offset or (is_dirty and segment.newest_ms > newest_max):
            break
        may_go.append(segment)
    if not may_go or may_go[-1].end_offset <= cleaned_offset:
        return None
    first_dirty = max(cleaned_offset, may_go[0].base_offset)
    return Cleanable(segments=tuple(may_go), first_dirty_offset=first_dirty)


def is_worth_it(
    cleanable: Cleanable, config: LogConfig, *, oldest_dirty_ms: int, now_ms: int
) -> bool:
    """Whether enough is dirty, or has been for too long (`max.compaction.lag.ms`)."""
    is_overdue = 0 <= oldest_dirty_ms < now_ms - config.compaction_lag_max_ms
    return is_overdue or cleanable.dirty_ratio > config.dirty_ratio_min


def has_room_for(
    segment: SegmentFacts, *, base_offset: int, size_bytes: int, index_bytes: int, limits: Limits
) -> bool:
    """Whether a segment may be joined to the cleaned one before it, if nothing of it goes."""
    return (
        size_bytes + segment.size_bytes <= limits.segment_bytes
        and index_bytes + segment.index_bytes <= limits.segment_index_bytes
        and segment.end_offset - base_offset <= SEGMENT_OFFSETS_MAX
    )
