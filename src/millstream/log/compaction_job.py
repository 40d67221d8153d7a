"""The order for one cleaning: everything that the process which carries it out must know.

Made by the owner of the log, which goes on writing meanwhile: a job speaks only of closed segments
below the last stable offset, which do not change but by retention, deletion and our own swaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.log.compaction import (
    Cleanable,
    LastOfProducer,
    SegmentFacts,
    find_cleanable,
    is_worth_it,
)
from millstream.log.config import INT64_MAX
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import HEADER_BYTES, NO_TIMESTAMP, CorruptBatch, read_header
from millstream.log.segment import Segment
from millstream.log.transaction_index import AbortedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What is on disk is read, the rest is here."""

    directory: Path
    segments: Sequence[SegmentFacts]
    first_dirty_offset: int
    epochs: Sequence[tuple[int, int]]
    aborted: Sequence[AbortedTransaction]
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keys_max: int
    bytes_per_second_max: int


def find_work(log: PartitionLog, *, cleaned_offset: int, now_ms: int) -> Cleanable | None:
    """What of a log is to be cleaned now; None if there is nothing, or not enough."""
    cleanable = find_dirty(log, cleaned_offset=cleaned_offset, now_ms=now_ms)
    if cleanable is None:
        return None
    oldest_dirty_ms = _oldest_dirty_ms(log, cleanable.first_dirty_offset)
    is_due = is_worth_it(cleanable, log.config, oldest_dirty_ms=oldest_dirty_ms, now_ms=now_ms)
    return cleanable if is_due else None


def find_dirty(log: PartitionLog, *, cleaned_offset: int, now_ms: int) -> Cleanable | None:
    """What of a log may be cleaned now, worth it or not; None if there is nothing."""
    if not log.config.is_compacted or log.failure is not None:
        return None
    if not log.start_offset <= cleaned_offset <= log.end_offset:
        cleaned_offset = log.start_offset  # the checkpoint is another log's, or was lost
    return find_cleanable(
        map(segment_facts, log.closed_segments),
        log.config,
        cleaned_offset=cleaned_offset,
        stable_offset=log.last_stable_offset,
        now_ms=now_ms,
    )


def make_job(
    log: PartitionLog,
    cleanable: Cleanable,
    *,
    keys_max: int,
    bytes_per_second_max: int,
    now_ms: int,
) -> CompactionJob:
    segments, config = cleanable.segments, log.config
    end_offset = segments[-1].end_offset
    return CompactionJob(
        directory=log.directory,
        segments=segments,
        first_dirty_offset=cleanable.first_dirty_offset,
        epochs=tuple(log.epochs.entries),
        aborted=log.aborted_in(segments[0].base_offset, end_offset),
        last_of_producers=_last_of_producers(log, end_offset),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        keys_max=keys_max,
        bytes_per_second_max=bytes_per_second_max,
    )


def segment_facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        index_bytes=max(segment.offsets.size_bytes, segment.times.size_bytes),
        newest_ms=segment.newest_ms,
    )


def _last_of_producers(log: PartitionLog, end_offset: int) -> dict[int, LastOfProducer]:
    """The producers that the broker remembers whose last batch may be in the cleaned range."""
    return {
        producer_id: LastOfProducer(producer.last.last_offset, producer.epoch)
        for producer_id, producer in log.producers
        if producer.last.last_offset < end_offset
    }


def _oldest_dirty_ms(log: PartitionLog, first_dirty_offset: int) -> int:
    """When the first dirty segment was begun, if anybody asks (`max.compaction.lag.ms`)."""
    if log.config.compaction_lag_max_ms == INT64_MAX:
        return NO_TIMESTAMP
    for segment in log.closed_segments:
        if segment.end_offset > first_dirty_offset:
            try:
                return read_header(segment.log.read(0, HEADER_BYTES)).max_timestamp
            except CorruptBatch:  # the cleaning will say so
                break
    return NO_TIMESTAMP
