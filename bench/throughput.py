"""Question: how fast do batches of records go in and come out, and what does it cost the broker?

Reproduce:  python -m bench.against_kafka --only throughput

The same librdkafka client produces to a fresh topic, acks=all, until everything is acknowledged,
then reads it back from the page cache. CPU is what the broker's processes used meanwhile, per GB
of payload. The disk is synced before each measurement, so that none pays for the last one.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from bench.brokers import MODES, Contender, Mode
from bench.client import Work, run_client
from bench.process_usage import usage_of
from bench.results import Metric, Results, ratio_at_least, ratio_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Produce and consume `count` records of one shape."""

    question: ClassVar[str] = "throughput"

    shape: str
    mode: Mode
    count: int
    record_bytes: int
    partitions: int = 1
    codec: str = "none"

    @property
    def name(self) -> str:
        return f"{self.question}: {self.shape}, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        work = Work(
            bootstrap=contender.bootstrap,
            topic=topic,
            partitions=self.partitions,
            count=self.count,
            record_bytes=self.record_bytes,
            codec=self.codec,
        )
        contender.create_topic(topic, partitions=self.partitions)
        for verb, task in (("produce", "produce_batches"), ("consume", "consume_batches")):
            self._measure_one(contender, work, verb, task, results)
        contender.delete_topic(topic)

    def _measure_one(
        self, contender: Contender, work: Work, verb: str, task: str, results: Results
    ) -> None:
        os.sync()
        cpu_before_s = usage_of(contender.pid).cpu_s
        seconds = run_client(task, work)["seconds"]
        cpu_s = usage_of(contender.pid).cpu_s - cpu_before_s
        megabytes = self.count * self.record_bytes / 1e6

        name = f"{verb} {self.shape}"
        rate = Metric(name=name, unit="MB/s", mode=self.mode, goal=ratio_at_least(1.0))
        cost = Metric(
            name=f"{name}: broker CPU", unit="s/GB", mode=self.mode, goal=ratio_at_most(0.5)
        )
        results.add(rate, contender.side, megabytes / seconds)
        results.add(cost, contender.side, cpu_s / megabytes * 1000)


def cases(*, is_quick: bool) -> list[Throughput]:
    many, few = (100_000, 30_000) if is_quick else (1_000_000, 300_000)
    return [
        case
        for mode in MODES
        for case in (
            Throughput(shape="100 B", mode=mode, count=many, record_bytes=100),
            Throughput(shape="1 KB", mode=mode, count=few, record_bytes=1000),
            Throughput(shape="1 KB, lz4", mode=mode, count=few, record_bytes=1000, codec="lz4"),
            Throughput(
                shape="100 B, 12 partitions", mode=mode, count=many, record_bytes=100, partitions=12
            ),
        )
    ]
