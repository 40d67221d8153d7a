"""Question: how many single records a second do sixteen clients get acknowledged?

Reproduce:  python -m bench.against_kafka --only small_requests

Sixteen librdkafka producers, acks=all, one record per request and one request in flight each:
services that write one event and wait. Counted on the broker, by how far the ends of the
partitions move in a fixed time. One partition shows how syncs are shared; with sixteen, each
client has its own.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from bench.brokers import MODES, Contender, Mode
from bench.client import Work, run_client
from bench.results import Metric, Results, ratio_at_least

CONNECTIONS = 16
# More than a connection can send in the time, so that none runs dry.
RECORDS_PER_CONNECTION = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRequests:
    """Keep the connections busy for a while."""

    question: ClassVar[str] = "small_requests"

    mode: Mode
    partitions: int
    seconds: float

    @property
    def shape(self) -> str:
        return f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"

    @property
    def name(self) -> str:
        return f"{self.question}: {self.shape}, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        contender.create_topic(topic, partitions=self.partitions)
        os.sync()
        work = Work(
            bootstrap=contender.bootstrap,
            topic=topic,
            partitions=self.partitions,
            count=RECORDS_PER_CONNECTION,
            connections=CONNECTIONS,
            seconds=self.seconds,
        )
        measured = run_client("produce_one_per_request", work)
        metric = Metric(
            name=f"one record per request, {CONNECTIONS} connections, {self.shape}",
            unit="records/s",
            mode=self.mode,
            goal=ratio_at_least(10.0 if self.mode == "synced" else 1.0),
        )
        results.add(metric, contender.side, measured["records"] / measured["seconds"])
        contender.delete_topic(topic)


def cases(*, is_quick: bool) -> list[SmallRequests]:
    seconds = 1.0 if is_quick else 3.0
    return [
        SmallRequests(mode=mode, partitions=partitions, seconds=seconds)
        for mode in MODES
        for partitions in (1, CONNECTIONS)
    ]
