"""Compaction in the test's own process: the steps of broker/compactor.py, without the broker."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.base.disk import Disk
from millstream.base.record import Record
from millstream.log.compaction import Cleanable, find_cleanable
from millstream.log.compaction_job import CompactionJob, make_job, segment_facts
from millstream.log.compaction_run import CleanedSegment, CompactionDone, CompactionRun
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import decode_records, encode_batch, read_header, read_marker
from tests.support.batches import NOW_MS, read_batches

KEYS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What one cleaning did."""

    segments: Sequence[CleanedSegment]
    done: CompactionDone

    @property
    def offset(self) -> int:
        return self.done.cleaned_offset


def all_cleanable(log: PartitionLog, *, cleaned_offset: int = 0) -> Cleanable | None:
    """Every closed segment below the last stable offset, however little of it is dirty."""
    return find_cleanable(
        map(segment_facts, log.closed_segments),
        log.config,
        cleaned_offset=max(cleaned_offset, log.start_offset),
        stable_offset=log.last_stable_offset,
        now_ms=1 << 62,
    )


def job_for(
    log: PartitionLog,
    *,
    cleaned_offset: int = 0,
    now_ms: int = NOW_MS,
    keys_max: int = KEYS_MAX,
) -> CompactionJob | None:
    cleanable = all_cleanable(log, cleaned_offset=cleaned_offset)
    if cleanable is None:
        return None
    return make_job(log, cleanable, keys_max=keys_max, bytes_per_second_max=-1, now_ms=now_ms)


def compact(
    disk: Disk,
    log: PartitionLog,
    *,
    cleaned_offset: int = 0,
    now_ms: int = NOW_MS,
    keys_max: int = KEYS_MAX,
) -> Cleaned | None:
    """Clean once, and swap each segment in; None if nothing is dirty."""
    job = job_for(log, cleaned_offset=cleaned_offset, now_ms=now_ms, keys_max=keys_max)
    if job is None:
        return None
    segments: list[CleanedSegment] = []
    for result in CompactionRun(disk, job).run():
        if isinstance(result, CompactionDone):
            return Cleaned(segments=segments, done=result)
        swap_in(log, result)
        segments.append(result)
    raise AssertionError("it came to no end")


def swap_in(log: PartitionLog, cleaned: CleanedSegment) -> None:
    swap = log.begin_swap(cleaned.base_offset, cleaned.end_offset, now_ms=NOW_MS)
    assert swap is not None
    swap.run()
    log.complete_swap(swap)


def keyed(
    *pairs: tuple[bytes | None, bytes | None], timestamp_ms: int = NOW_MS, **batch: int
) -> memoryview:
    """One batch as a producer sends it: a record per key and value."""
    records = [Record(key=key, value=value, timestamp_ms=timestamp_ms) for key, value in pairs]
    return memoryview(encode_batch(records, **batch))  # type: ignore[arg-type] # all are numbers


def committed_records(log: PartitionLog) -> list[Record]:
    """What a `read_committed` reader sees, by the list of aborted transactions that it is given."""
    aborted = log.aborted_in(log.start_offset, log.high_watermark)
    seen: list[Record] = []
    for batch in read_batches(log):
        header = read_header(batch)
        if header.is_control:
            if header.record_count:
                assert read_marker(batch) is not None
            continue
        is_aborted = header.is_transactional and any(
            one.producer_id == header.producer_id
            and one.first_offset <= header.base_offset <= one.last_offset
            for one in aborted
        )
        if not is_aborted:
            seen += [one for one in decode_records(batch) if one.offset >= log.start_offset]
    return seen


def state_of(records: Sequence[Record]) -> dict[bytes, bytes]:
    """The last value of each key, as a reader builds it from the start."""
    state: dict[bytes, bytes] = {}
    for record in records:
        key = record.key or b""
        state.pop(key, None)
        if record.value is not None:
            state[key] = record.value
    return state
