"""Question: how fast does one client commit transactions, and how long does it wait for a commit?

Reproduce:  python -m bench.against_kafka --only transactions

One librdkafka producer (acks=all, the flow of KIP-98), one transaction after the other for a fixed
time, each with its records spread evenly over the partitions. The rate counts whole transactions:
begin, send, wait for the acknowledgements, commit. The wait is for the commit alone. Kafka answers
that before the markers are written, and lets the next transaction wait for them; ours answers
after. With `--java` also ProducerPerformance (the flow of KIP-890), which commits by time.

Synced is meant for all that a transaction writes: Kafka's `__transaction_state` gets
flush.messages=1 for these lines too. Ours syncs it in both modes.
"""

import os
from dataclasses import dataclass
from typing import ClassVar

from tests.support.java_tools import run_tool

from bench.brokers import MODES, Contender, Mode
from bench.client import Work, run_client
from bench.results import Metric, Results, ratio_at_least, ratio_at_most

RECORD_BYTES = 100
STATE_TOPIC = "__transaction_state"
# How often ProducerPerformance commits.
JAVA_TRANSACTION_MS = 20
TOOL_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Commit transactions of `records` records in `partitions` partitions for `seconds`."""

    question: ClassVar[str] = "transactions"

    mode: Mode
    records: int
    partitions: int
    seconds: float

    @property
    def shape(self) -> str:
        return f"{_counted(self.records, 'record')} in {_counted(self.partitions, 'partition')}"

    @property
    def name(self) -> str:
        return f"{self.question}: {self.shape}, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        contender.create_topic(topic, partitions=self.partitions)
        work = Work(
            bootstrap=contender.bootstrap,
            topic=topic,
            partitions=self.partitions,
            count=self.records,
            record_bytes=RECORD_BYTES,
            seconds=self.seconds,
        )
        set_state_topic(contender)
        os.sync()
        measured = run_client("commit_transactions", work)
        rate = Metric(
            name=f"transactions of {self.shape}",
            unit="transactions/s",
            mode=self.mode,
            goal=ratio_at_least(1.0),
        )
        results.add(rate, contender.side, measured["transactions"] / measured["seconds"])
        for percentile in ("p50", "p99"):
            name = f"transactions of {self.shape}: commit, {percentile}"
            wait = Metric(name=name, unit="ms", mode=self.mode, goal=ratio_at_most(1.0))
            results.add(wait, contender.side, measured[f"{percentile}_ms"])
        contender.delete_topic(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTransactions:
    """Produce `count` records with Kafka's own client, in transactions of a fixed duration."""

    question: ClassVar[str] = "transactions"

    mode: Mode
    count: int

    @property
    def name(self) -> str:
        return f"{self.question}: Java client, {self.mode}"

    def measure(self, contender: Contender, topic: str, results: Results) -> None:
        contender.create_topic(topic, partitions=1)
        set_state_topic(contender)
        os.sync()
        run = run_tool(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(self.count), "--throughput", "-1"),
            *("--record-size", str(RECORD_BYTES), "--transactional-id", topic),
            *("--transaction-duration-ms", str(JAVA_TRANSACTION_MS)),
            bootstrap=contender.bootstrap,
            timeout_s=TOOL_TIMEOUT_S,
        ).checked()
        name = f"produce 100 B in transactions of {JAVA_TRANSACTION_MS} ms, Java client"
        metric = Metric(name=name, unit="records/s", mode=self.mode, goal=ratio_at_least(1.0))
        # "100000 records sent, 62344.396509 records/sec (5.94 MB/sec), ..."
        results.add(metric, contender.side, float(run.lines[-1].split(", ")[1].split()[0]))
        contender.delete_topic(topic)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def set_state_topic(contender: Contender) -> None:
    """Let Kafka sync, or not, what its transaction coordinator writes."""
    if contender.side == "ours":
        return
    if not contender.has_topic(STATE_TOPIC):
        run_client("commit_transactions", _first_transaction(contender))
    contender.set_flush(STATE_TOPIC)


def _first_transaction(contender: Contender) -> Work:
    """It makes the coordinator create its topic."""
    topic = "first-transaction"
    contender.create_topic(topic, partitions=1)
    return Work(bootstrap=contender.bootstrap, topic=topic, count=1, seconds=0.2)


def cases(*, is_quick: bool, has_java: bool) -> list[Transactions | JavaTransactions]:
    found: list[Transactions | JavaTransactions] = [
        Transactions(
            mode=mode, records=records, partitions=partitions, seconds=1.0 if is_quick else 3.0
        )
        for mode in MODES
        for records, partitions in ((1, 1), (4, 4), (100, 1), (100, 4))
    ]
    if has_java:
        count = 20_000 if is_quick else 200_000
        found += [JavaTransactions(mode=mode, count=count) for mode in MODES]
    return found
