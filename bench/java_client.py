"""Question: does the comparison look the same to Kafka's own Java client?

Reproduce:  python -m bench.against_kafka --java --only java_client

ProducerPerformance and ConsumerPerformance, which count their own time. Behind a flag: a JVM for
the client takes its share of a small machine.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from tests.support.java_tools import ToolRun, run_tool

from bench.brokers import MODES, Contender, Mode
from bench.results import Metric, Results, ratio_at_least

TOOL_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClient:
    """Produce and consume `count` records of one size."""

    question: ClassVar[str] = "java_client"

    mode: Mode
    count: int
    record_bytes: int

    @property
    def name(self) -> str:
        return f"{self.question}: {self.record_bytes} B, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        contender.create_topic(topic, partitions=1)
        os.sync()
        self._add(contender, "produce", self._produce(contender.bootstrap, topic), results)
        os.sync()
        self._add(contender, "consume", self._consume(contender.bootstrap, topic), results)
        contender.delete_topic(topic)

    def _add(self, contender: Contender, verb: str, records_per_s: float, results: Results) -> None:
        name = f"{verb} {self.record_bytes} B, Java client"
        metric = Metric(name=name, unit="MB/s", mode=self.mode, goal=ratio_at_least(1.0))
        results.add(metric, contender.side, records_per_s * self.record_bytes / 1e6)

    def _produce(self, bootstrap: str, topic: str) -> float:
        size = str(self.record_bytes)
        arguments = ["--topic", topic, "--num-records", str(self.count), "--record-size", size]
        run = self._run("ProducerPerformance", bootstrap, *arguments, "--throughput", "-1")
        # "1000000 records sent, 623441.396509 records/sec (59.46 MB/sec), ..."
        return float(run.lines[-1].split(", ")[1].split()[0])

    def _consume(self, bootstrap: str, topic: str) -> float:
        arguments = ["--topic", topic, "--num-records", str(self.count), "--timeout", "60000"]
        run = self._run("ConsumerPerformance", bootstrap, *arguments)
        names, figures = (line.split(", ") for line in run.lines[-2:])
        # Without the time to join a group, which is not what is asked here.
        return float(dict(zip(names, figures, strict=True))["fetch.nMsg.sec"])

    def _run(self, tool: str, bootstrap: str, *arguments: str) -> ToolRun:
        return run_tool(tool, *arguments, bootstrap=bootstrap, timeout_s=TOOL_TIMEOUT_S).checked()


def cases(*, is_quick: bool) -> list[JavaClient]:
    megabytes = 10 if is_quick else 100
    # Java batches 16 KB where librdkafka batches 1 MB: with a sync for each, a tenth is plenty.
    payload_bytes: dict[Mode, int] = {"synced": megabytes * 10**5, "relaxed": megabytes * 10**6}
    return [
        JavaClient(mode=mode, count=payload_bytes[mode] // record_bytes, record_bytes=record_bytes)
        for mode in MODES
        for record_bytes in (100, 1000)
    ]
