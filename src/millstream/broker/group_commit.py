"""Group commit: one sync for every request that waits for it.

Appends mark their partition. At the end of the loop's round each marked partition gets one sync,
in a thread, at most one at a time; whatever is appended meanwhile waits for the next. So under
load a sync serves many requests, and an idle broker syncs at once.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.base.errors import MillstreamError
from millstream.broker.metrics.histogram import BYTES_BOUNDS, SECONDS_BOUNDS, Histogram
from millstream.broker.partition import ServedPartition
from millstream.log.partition_log import Appended, SyncJob

logger = logging.getLogger(__name__)

# Syncs of different files overlap in the device's queue: 4 threads sync 12 files in half the
# time of one, more gain nothing (docs/decisions/0003-acknowledged-means-synced.md).
SYNC_THREADS = 4


@dataclass(slots=True)
class SyncCounts:
    """What was done so far, for telemetry and tests."""

    syncs: int = 0
    failures: int = 0
    durations: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    sizes: Histogram = field(default_factory=lambda: Histogram(BYTES_BOUNDS))


class GroupCommit:
    """Runs sync jobs off the loop and brings their results back to it.

    `unsynced_bytes` is what was appended and is not durable yet; past `unsynced_bytes_max` the
    connections that produce are not read until it has fallen again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        now_ms: Callable[[], int],
        unsynced_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._marked: dict[ServedPartition, None] = {}
        self._is_scheduled = False
        self._jobs: queue.SimpleQueue[tuple[ServedPartition, SyncJob, int] | None] = (
            queue.SimpleQueue()
        )
        self._unsynced_bytes_max = unsynced_bytes_max
        self._unsynced: dict[ServedPartition, int] = {}
        self._when_drained: list[Callable[[], None]] = []
        self.unsynced_bytes = 0
        self._in_flight = 0
        self.counts = SyncCounts()
        self._threads = [
            threading.Thread(target=self._run, name=f"sync-{number}", daemon=True)
            for number in range(SYNC_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_waiting(self) -> bool:
        """Whether someone waits for a sync that is under way or about to start."""
        return self._in_flight > 0 or bool(self._marked)

    @property
    def is_full(self) -> bool:
        return self.unsynced_bytes > self._unsynced_bytes_max

    def when_drained(self, callback: Callable[[], None]) -> None:
        """Call back once when there is room for unsynced data again."""
        self._when_drained.append(callback)

    def mark(self, partition: ServedPartition, appended_bytes: int) -> None:
        """The partition has new data. Sync it soon if its settings want that."""
        self.unsynced_bytes += appended_bytes
        self._unsynced[partition] = self._unsynced.get(partition, 0) + appended_bytes
        self._marked[partition] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def durable(self, partition: ServedPartition, appended: Appended) -> "asyncio.Future[None]":
        """Done when what was appended is synced, whatever the partition's settings say."""
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(error: MillstreamError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        partition.when_synced(appended.end_offset, settle)
        self.mark(partition, appended.size_bytes)
        return future

    def sync_due(self) -> None:
        """Start what the flush intervals ask for. Called by the clock."""
        for partition in tuple(self._unsynced):
            if self._must_sync(partition):
                self._submit(partition)

    def _must_sync(self, partition: ServedPartition) -> bool:
        """Its settings want it; or someone waits although they do not, since they were changed."""
        return (
            partition.has_waiting
            or partition.is_closed
            or self._is_filling
            or partition.log.is_sync_due(now_ms=self._now_ms())
        )

    @property
    def _is_filling(self) -> bool:
        """Half full: sync everything now, so that nobody has to wait for room."""
        return self.unsynced_bytes > self._unsynced_bytes_max // 2

    def _start(self) -> None:
        self._is_scheduled = False
        marked, self._marked = self._marked, {}
        for partition in marked:
            partition.settle()  # a roll may have synced it already
        for partition in tuple(self._unsynced) if self._is_filling else marked:
            if self._must_sync(partition):
                self._submit(partition)

    def _submit(self, partition: ServedPartition) -> None:
        job = partition.log.sync_job()
        if job is not None:
            self._in_flight += 1
            self._jobs.put((partition, job, self._unsynced.pop(partition, 0)))
        elif not partition.log.has_unsynced or partition.log.failure is not None:
            self._release(self._unsynced.pop(partition, 0))

    def _release(self, size_bytes: int) -> None:
        self.unsynced_bytes -= size_bytes
        if self._when_drained and not self.is_full:
            waiting, self._when_drained = self._when_drained, []
            for callback in waiting:
                callback()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            self._sync(*item)
            del item  # a thread that waits must not keep the files of a deleted topic open

    def _sync(self, partition: ServedPartition, job: SyncJob, size_bytes: int) -> None:
        started = time.perf_counter()
        error: MillstreamError | None = None
        try:
            job.run()
        except MillstreamError as failure:
            error = failure
        seconds = time.perf_counter() - started
        self._loop.call_soon_threadsafe(self._finish, partition, job, size_bytes, error, seconds)

    def _finish(
        self,
        partition: ServedPartition,
        job: SyncJob,
        size_bytes: int,
        error: MillstreamError | None,
        seconds: float,
    ) -> None:
        log = partition.log
        self._in_flight -= 1
        self.counts.durations.observe(seconds)
        if error is None:
            self.counts.syncs += 1
            self.counts.sizes.observe(size_bytes)
            log.complete(job, now_ms=self._now_ms())
        else:
            self.counts.failures += 1
            log.fail(error)
        partition.settle()
        self._release(size_bytes)
        if partition in self._unsynced and self._must_sync(partition):
            self._submit(partition)

    def close(self) -> None:
        """Let the threads finish what they have; the loop still runs."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
