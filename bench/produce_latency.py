"""Question: how long does one client wait for one acknowledgement?

Reproduce:  python -m bench.against_kafka --only latency

One librdkafka producer, acks=all, the next record only after the last one's acknowledgement. The
figure holds the client's own share, which is the same on both sides.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from bench.brokers import MODES, Contender, Mode
from bench.client import Work, run_client
from bench.results import Metric, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Send `count` records one by one."""

    question: ClassVar[str] = "latency"

    mode: Mode
    count: int

    @property
    def name(self) -> str:
        return f"{self.question}: {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        contender.create_topic(topic, partitions=1)
        os.sync()
        work = Work(bootstrap=contender.bootstrap, topic=topic, count=self.count)
        measured = run_client("produce_synchronously", work)
        for percentile in ("p50", "p99"):
            name = f"synchronous produce, {percentile}"
            metric = Metric(name=name, unit="ms", mode=self.mode)
            results.add(metric, contender.side, measured[f"{percentile}_ms"])
        contender.delete_topic(topic)


def cases(*, is_quick: bool) -> list[Latency]:
    return [Latency(mode=mode, count=200 if is_quick else 2_000) for mode in MODES]
