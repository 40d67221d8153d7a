"""Question: how soon is a broker ready, and how much memory does it hold?

Reproduce:  python -m bench.against_kafka --only footprint

Ready is the first answer to an ApiVersions request, polled from the moment the process is
spawned; Kafka's storage is formatted before the clock starts. Memory is the resident set of the
process and its children, one second after it was ready, and the peak after all the other
questions. Kafka runs with a heap of 1 GB, its own script's default.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tests.support.apache_kafka import ApacheKafka

from bench.brokers import (
    SIDES,
    Contender,
    Contenders,
    Mode,
    millstream_process,
    wait_for_answer,
)
from bench.process_usage import usage_of
from bench.results import Metric, Results, ours_below

SETTLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Start a broker in an empty directory, beside the ones that are running."""

    question: ClassVar[str] = "footprint"
    mode: ClassVar[Mode] = "synced"

    is_ours_kafka: bool

    @property
    def name(self) -> str:
        return self.question

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        started = _start_millstream()
        if contender.side == "kafka" or self.is_ours_kafka:
            started = _start_kafka()
        with started as (seconds, pid):
            time.sleep(SETTLE_S)
            resident_mb = usage_of(pid).resident_bytes / 1e6
        ready = Metric(name="spawn to ready", unit="s", goal=ours_below(0.5, "s"))
        memory = Metric(name="resident when ready", unit="MB", goal=ours_below(80, "MB"))
        results.add(ready, contender.side, seconds)
        results.add(memory, contender.side, resident_mb)


@contextmanager
def _start_millstream() -> Iterator[tuple[float, int]]:
    started_s = time.perf_counter()
    with millstream_process("synced") as (process, bootstrap):
        wait_for_answer(bootstrap, process)
        yield time.perf_counter() - started_s, process.pid


@contextmanager
def _start_kafka() -> Iterator[tuple[float, int]]:
    kafka = ApacheKafka()
    try:
        kafka.format()
        started_s = time.perf_counter()
        kafka.start()
        wait_for_answer(kafka.bootstrap)
        yield time.perf_counter() - started_s, kafka.pid
    finally:
        kafka.stop()


def measure_peak(running: Contenders, results: Results) -> None:
    """The most that a process of each side has held; ours is the larger of its two."""
    metric = Metric(name="resident at the peak", unit="MB", goal=ours_below(80, "MB"))
    for side in SIDES:
        pids = {contender.pid for (of, _), contender in running.items() if of == side}
        peak_bytes = max(usage_of(pid).resident_bytes_peak for pid in pids)
        results.add(metric, side, peak_bytes / 1e6)


def cases(*, is_ours_kafka: bool) -> list[Footprint]:
    return [Footprint(is_ours_kafka=is_ours_kafka)]
