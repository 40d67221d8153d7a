"""Keeps compacted topics clean: chooses the log that needs it most, has it cleaned, swaps it in.

The loop only plans and swaps; reading and writing is done by a process of its own
(compactor_process.py), renaming in a thread. One log at a time. A log that cannot be cleaned is
left as it is, is reported, and is looked at again much later.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from millstream.base.disk import DiskFull, TooManyOpenFiles
from millstream.base.errors import MillstreamError
from millstream.base.quantity import KIB
from millstream.broker.compactor_process import CompactorProcess, Result
from millstream.broker.config import BrokerConfig
from millstream.broker.partition import ServedPartition
from millstream.broker.topics import Topic, Topics
from millstream.log.compaction import Cleanable
from millstream.log.compaction_filter import ENTRY_BYTES
from millstream.log.compaction_job import CompactionJob, find_dirty, find_work, make_job
from millstream.log.compaction_run import CleanedSegment, CompactionCounts, CompactionDone
from millstream.log.compaction_swap import CLEANED, discard, discard_cleaned
from millstream.log.log_directory import LogDirectory
from millstream.log.log_directory import Partition as PartitionKey
from millstream.log.partition_log import SwapJob

logger = logging.getLogger(__name__)
T = TypeVar("T")

# A log that could not be cleaned is tried again after this long, then twice that, up to a day.
RETRY_MS = 60_000
RETRY_MS_MAX = 24 * 3600 * 1000
# A swap found no space or no descriptor. It is half done, and goes on by itself.
SWAP_RETRY_SECONDS = 1.0


class Cleaner(Protocol):
    """Who carries out jobs: CompactorProcess."""

    def begin(self, job: CompactionJob) -> None: ...

    def next_result(self) -> Result: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCleaning:
    """What the last cleaning of one log did, for telemetry."""

    ended_ms: int
    seconds: float
    cleaned_offset: int
    bytes_before: int
    bytes_after: int
    counts: CompactionCounts

    @property
    def bytes_per_second(self) -> float:
        return self.bytes_before / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class CompactionTotals:
    """What was done since the start, for telemetry and tests."""

    cleanings: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_saved: int = 0
    records_removed: int = 0
    seconds: float = 0.0
    last: dict[PartitionKey, LastCleaning] = field(default_factory=dict)


@dataclass(slots=True)
class _Setback:
    """A log that could not be cleaned, and when it is tried again."""

    wait_ms: int
    until_ms: int


class _LetGo(Exception):
    """The log that is being cleaned is about to go, or the broker stops."""


class Compactor:
    """Owned by the broker's loop."""

    def __init__(
        self,
        topics: Topics,
        directory: LogDirectory,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        cleaner: Cleaner | None = None,
    ) -> None:
        self._topics = topics
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self.cleaner: Cleaner = cleaner or CompactorProcess()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compactor")
        self._setbacks: dict[ServedPartition, _Setback] = {}
        self._is_stopped = False
        # Held while a log is being cleaned, so that others can wait for the end of that.
        self._turn = asyncio.Lock()
        self._cleaned: ServedPartition | None = None
        self._must_let_go = False
        self.totals = CompactionTotals()

    # --- choose -------------------------------------------------------------------------------

    async def clean_all(self) -> None:
        """Clean one log after the other, until none needs it."""
        while await self.clean_dirtiest():
            pass

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if none does."""
        async with self._turn:
            partition = None if self._is_stopped else await self._dirtiest()
            # Looked at once more: the loop went on meanwhile.
            found = self._find_work(partition) if partition is not None else None
            if partition is None or found is None or self._is_stopped:
                return False
            await self._clean(partition, found)
            return True

    async def _dirtiest(self) -> ServedPartition | None:
        dirtiest, ratio = None, -1.0
        for topic in tuple(self._topics):
            if topic.is_internal:  # rewritten by its owner (log/state_log.py)
                continue
            for partition in topic.partitions:
                found = self._find_work(partition)
                if found is not None and found.dirty_ratio > ratio:
                    dirtiest, ratio = partition, found.dirty_ratio
            await asyncio.sleep(0)  # a log can have many segments: let others go on
        return dirtiest

    def _find_work(self, partition: ServedPartition) -> Cleanable | None:
        log, now_ms = partition.log, self._now_ms()
        if not log.config.is_compacted or log.failure is not None or partition.is_closed:
            return None
        setback = self._setbacks.get(partition)
        if setback is not None and setback.until_ms > now_ms:
            return None
        try:
            log.roll_if_old(now_ms=now_ms)
        except MillstreamError as error:
            logger.warning("%s: %s", log.name, error)
        partition.settle()
        cleaned_offset = self._directory.cleaned_offset(partition.key)
        return find_work(log, cleaned_offset=cleaned_offset, now_ms=now_ms)

    def dirty_ratio(self, partition: ServedPartition) -> float:
        """Which part of what may be cleaned is dirty, whether that is worth it or not."""
        cleaned_offset = self._directory.cleaned_offset(partition.key)
        dirty = find_dirty(partition.log, cleaned_offset=cleaned_offset, now_ms=self._now_ms())
        return dirty.dirty_ratio if dirty is not None else 0.0

    # --- clean --------------------------------------------------------------------------------

    async def _clean(self, partition: ServedPartition, cleanable: Cleanable) -> None:
        self._cleaned, self._must_let_go, is_done = partition, False, False
        try:
            await self._carry_out(partition, cleanable)
            is_done = True
            self._setbacks.pop(partition, None)
        except _LetGo:
            pass
        except MillstreamError as error:
            if not self._must_let_go:
                self._set_back(partition, error)
        finally:
            self._cleaned = None
            if not is_done:  # it may still be at work
                self.cleaner.end()
                self._tidy(partition)

    async def _carry_out(self, partition: ServedPartition, cleanable: Cleanable) -> None:
        started = time.perf_counter()
        job = make_job(
            partition.log,
            cleanable,
            keys_max=max(1, self._config.compaction_map_bytes // ENTRY_BYTES),
            bytes_per_second_max=self._config.compaction_bytes_per_second,
            now_ms=self._now_ms(),
        )
        await self._in_thread(lambda: self.cleaner.begin(job))
        swapped: list[CleanedSegment] = []
        while True:
            result = await self._in_thread(self.cleaner.next_result)
            if isinstance(result, CompactionDone):
                break
            await self._swap(partition, result)
            swapped.append(result)
        self._directory.save_cleaned_offset(partition.key, result.cleaned_offset)
        self._report(partition, swapped, result, time.perf_counter() - started)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        if self._must_let_go:
            raise _LetGo
        return result

    # --- swap ---------------------------------------------------------------------------------

    async def _swap(self, partition: ServedPartition, cleaned: CleanedSegment) -> None:
        """Exchange segments for a cleaned one, or let go: those behind it may not come before."""
        log = partition.log
        self._directory.check_ownership()
        job = log.begin_swap(cleaned.base_offset, cleaned.end_offset, now_ms=self._now_ms())
        if job is None:
            closed = log.closed_segments
            if closed and closed[0].base_offset < cleaned.end_offset:
                raise _LetGo
            # Retention has taken all of them meanwhile.
            discard(self._directory.disk, log.directory, cleaned.base_offset, CLEANED)
            return
        await self._run_swap(partition, job)
        log.complete_swap(job)

    async def _run_swap(self, partition: ServedPartition, job: SwapJob) -> None:
        """To its end, whatever else is wanted meanwhile: it is never left half done."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, job.run)
                return
            except (DiskFull, TooManyOpenFiles) as error:
                if self._must_let_go:  # the next start goes on with it, if the topic is still there
                    partition.log.fail(error)
                    raise
                logger.warning("%s: the swap goes on later: %s", partition.log.name, error)
                await asyncio.sleep(SWAP_RETRY_SECONDS)
            except MillstreamError as error:
                partition.log.fail(error)
                raise

    # --- afterwards ---------------------------------------------------------------------------

    def _report(
        self,
        partition: ServedPartition,
        swapped: list[CleanedSegment],
        done: CompactionDone,
        seconds: float,
    ) -> None:
        last = LastCleaning(
            ended_ms=self._now_ms(),
            seconds=seconds,
            cleaned_offset=done.cleaned_offset,
            bytes_before=sum(one.bytes_before for one in swapped),
            bytes_after=sum(one.bytes_after for one in swapped),
            counts=done.counts,
        )
        totals, counts = self.totals, done.counts
        totals.cleanings += 1
        totals.bytes_read += counts.bytes_read
        totals.bytes_written += counts.bytes_written
        totals.bytes_saved += last.bytes_before - last.bytes_after
        totals.records_removed += counts.records_read - counts.records_kept
        totals.seconds += seconds
        totals.last[partition.key] = last
        logger.info(
            "%s: compacted up to offset %d: %d of %d records kept, %.1f of %.1f KiB, in %.1f s",
            partition.log.name, done.cleaned_offset, counts.records_kept, counts.records_read,
            last.bytes_after / KIB, last.bytes_before / KIB, seconds,
        )  # fmt: skip

    def _set_back(self, partition: ServedPartition, error: MillstreamError) -> None:
        self.totals.failures += 1
        before = self._setbacks.get(partition)
        wait_ms = min(before.wait_ms * 2 if before else RETRY_MS, RETRY_MS_MAX)
        self._setbacks[partition] = _Setback(wait_ms, self._now_ms() + wait_ms)
        logger.error(
            "%s: not compacted, tried again in %d s: %s", partition.log.name, wait_ms // 1000, error
        )

    def _tidy(self, partition: ServedPartition) -> None:
        """Remove what an unfinished job has left. Nothing else writes such files meanwhile."""
        disk, directory = self._directory.disk, partition.log.directory
        if not partition.is_closed and disk.exists(directory):
            try:
                discard_cleaned(disk, directory)
            except MillstreamError as error:
                logger.warning("%s: unfinished files stay until the next start: %s",
                               directory, error)  # fmt: skip

    # --- let go -------------------------------------------------------------------------------

    async def let_go(self, topic: Topic) -> None:
        """The topic's files are about to be removed: return when nothing here uses them."""
        for partition in topic.partitions:
            self._setbacks.pop(partition, None)
            self.totals.last.pop(partition.key, None)
        if self._cleaned in topic.partitions:
            await self._interrupt()

    async def stop(self) -> None:
        """End the process, and wait for a swap that is under way."""
        self._is_stopped = True
        if self._cleaned is not None:
            await self._interrupt()
        self.cleaner.end()
        self._thread.shutdown(wait=True)

    async def _interrupt(self) -> None:
        self._must_let_go = True
        self.cleaner.end()
        async with self._turn:
            pass
