"""How far jobs are behind that do not measure it themselves: they have ended, wait, or begin.

What such a job has read is in its checkpoint; how far its topics are by now the broker knows. A job
without a batch has all of its topics to read.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.base.ports import Positions
from millstream.jobs import NOT_FOR_TASKS
from millstream.processing.jobs.checkpoints import JobDirectory
from millstream.processing.jobs.lag import Lag
from millstream.processing.jobs.lag_meter import LagMeter
from millstream.processing.writing.batch_log import BatchLog


def positions_read(directory: Path, job: str) -> Positions | None:
    """After the last batch that was done; empty if there is none, None if it cannot be read."""
    kept = JobDirectory(directory, job=job)
    try:
        manifest = kept.manifest()
        if manifest is None:
            return {}
        log = BatchLog(kept.checkpoint(manifest.generation))
        batch = log.last_done()
        return {} if batch < 0 else log.positions(batch) or None
    except (MillstreamError, OSError, ValueError, LookupError):
        return None  # the run that needs it says what is wrong with it


class MeasuredLags:
    """Thread-safe: of one job one thread at a time."""

    def __init__(
        self, jobs: Path, client_config: Callable[[], Mapping[str, Any]], now_ms: Clock
    ) -> None:
        self._jobs, self._client_config, self._now_ms = jobs, client_config, now_ms
        self._lock = threading.Lock()
        self._measuring: dict[str, threading.Lock] = {}
        self._known: dict[str, Lag] = {}
        self._meters: dict[str, tuple[frozenset[str], LagMeter]] = {}

    def of(self, job: str, topics: Iterable[str]) -> Lag:
        """Empty where it is not known. `topics`: what it reads, of those that exist."""
        found = positions_read(self._jobs / job, job)
        positions = {topic: {} for topic in topics} if found == {} else found
        if not positions:
            return Lag()
        with self._lock:
            lock = self._measuring.setdefault(job, threading.Lock())
        with lock:
            meter = self._meter(job, frozenset(positions))
            if meter.is_due():
                with contextlib.closing(meter):  # of its consumer, which it rarely needs
                    reached = {topic: {topic: positions[topic]} for topic in positions}
                    self._known[job] = meter.look(reached)
            return self._known.get(job, Lag())

    def _meter(self, job: str, topics: frozenset[str]) -> LagMeter:
        """It remembers when records were written that wait."""
        known = self._meters.get(job)
        if known is None or known[0] != topics:
            config = self._client_config()
            client = {name: str(config[name]) for name in config if name not in NOT_FOR_TASKS}
            brokers = str(config["bootstrap.servers"])
            known = topics, LagMeter(brokers, client, topics, now_ms=self._now_ms)
            self._meters[job] = known
        return known[1]
