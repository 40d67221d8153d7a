"""Question: how fast do the members of a share group take records and accept them?

Reproduce:  python -m bench.against_kafka --only share_groups

A topic is filled with records of 100 B (batches as librdkafka makes them), then librdkafka's
share consumers, one process each, take them all: with each poll they accept what the last one
brought. The rate is all records by the time from the first that any member got to the last. With
`--java` also ShareConsumerPerformance, one consumer, by its own account: with its joining.

Synced is meant for the acknowledgements too: Kafka's `__share_group_state` gets flush.messages=1
for these lines. Ours syncs it in both modes.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.support.java_tools import run_tool

from bench.brokers import Contender, Mode
from bench.client import Work, run_client
from bench.process_usage import usage_of
from bench.results import Metric, Results, ratio_at_least, ratio_at_most

RECORD_BYTES = 100
STATE_TOPIC = "__share_group_state"
# A member that got nothing by then gets nothing any more.
FIRST_WITHIN_S = 8.0
TOOL_TIMEOUT_S = 180.0
# Kafka makes its coordinators when the first group asks for them: that takes a while.
TOOL_PATIENCE_MS = "60000"
SHAPES: tuple[tuple[Mode, int, int], ...] = (
    ("synced", 1, 1),
    ("synced", 4, 1),
    ("synced", 4, 4),
    ("relaxed", 4, 4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroups:
    """`members` take `count` records out of `partitions` partitions."""

    question: ClassVar[str] = "share_groups"

    mode: Mode
    members: int
    partitions: int
    count: int

    @property
    def shape(self) -> str:
        return f"{_counted(self.members, 'member')} of {_counted(self.partitions, 'partition')}"

    @property
    def name(self) -> str:
        return f"{self.question}: {self.shape}, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        work = fill(contender, topic, partitions=self.partitions, count=self.count)
        cpu_before_s = usage_of(contender.pid).cpu_s
        with ThreadPoolExecutor(self.members) as pool:
            shares = [*pool.map(lambda _: run_client("share_records", work), range(self.members))]
        cpu_s = usage_of(contender.pid).cpu_s - cpu_before_s
        busy = [share for share in shares if share["records"]]
        got = sum(share["records"] for share in busy)
        if got != self.count:
            raise RuntimeError(f"{got} of {self.count} records came out of {topic}")
        seconds = max(one["last_s"] for one in busy) - min(one["first_s"] for one in busy)
        rate = Metric(
            name=f"queue 100 B: {self.shape}",
            unit="records/s",
            mode=self.mode,
            goal=ratio_at_least(1.0),
        )
        results.add(rate, contender.side, got / seconds)
        name = f"queue 100 B: {self.shape}: CPU of the broker"
        cpu = Metric(name=name, unit="s/GB", mode=self.mode, goal=ratio_at_most(1.0))
        results.add(cpu, contender.side, cpu_s / (got * RECORD_BYTES / 1e9))
        contender.delete_topic(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaShareGroups:
    """Kafka's own share consumer takes `count` records."""

    question: ClassVar[str] = "share_groups"

    mode: Mode
    count: int

    @property
    def name(self) -> str:
        return f"{self.question}: Java client, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        fill(contender, topic, partitions=1, count=self.count)
        run = run_tool(
            "ShareConsumerPerformance",
            *("--topic", topic, "--group", topic, "--num-records", str(self.count)),
            *("--hide-header", "--timeout", TOOL_PATIENCE_MS),
            bootstrap=contender.bootstrap,
            timeout_s=TOOL_TIMEOUT_S,
        ).checked()
        metric = Metric(
            name="queue 100 B: Java client",
            unit="records/s",
            mode=self.mode,
            goal=ratio_at_least(1.0),
        )
        # start, end, MB, MB/s, records/s, records, ms: from before it has joined
        results.add(metric, contender.side, float(run.lines[-1].split(", ")[4]))
        contender.delete_topic(topic)


def fill(contender: Contender, topic: str, *, partitions: int, count: int) -> Work:
    """Records, and a group of the topic's name that begins with the first of them."""
    contender.create_topic(topic, partitions=partitions)
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[entry])
    contender.configure(group)
    work = Work(
        bootstrap=contender.bootstrap,
        topic=topic,
        partitions=partitions,
        count=count,
        record_bytes=RECORD_BYTES,
        seconds=FIRST_WITHIN_S,
    )
    run_client("produce_batches", work)
    if contender.has_topic(STATE_TOPIC):
        contender.set_flush(STATE_TOPIC)
    os.sync()
    return work


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def cases(*, is_quick: bool, has_java: bool) -> list[ShareGroups | JavaShareGroups]:
    count = 20_000 if is_quick else 500_000
    found: list[ShareGroups | JavaShareGroups] = [
        ShareGroups(mode=mode, members=members, partitions=partitions, count=count)
        for mode, members, partitions in SHAPES
    ]
    if has_java:
        found.append(JavaShareGroups(mode="synced", count=count))
    return found
