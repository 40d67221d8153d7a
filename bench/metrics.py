"""What does it cost to count requests, and to be scraped?

    .venv/bin/python -m bench.metrics

Counts a million answers as a connection does, and writes the metrics of a broker with 1,000
partitions, all of which one group reads, in both formats. The longest slice is for how long a
scrape keeps the broker's clients waiting. Times are those of the CPU. Nothing is sent.
"""

import asyncio
import tempfile
import time
from pathlib import Path

from millstream.base.clock import system_clock
from millstream.broker.config import BrokerConfig
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.metrics.counts import ApiCounts
from millstream.broker.metrics.exposition import Exposition
from millstream.broker.node import Node
from millstream.broker.server import BrokerServer
from millstream.broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

ANSWERS = 1_000_000
TOPICS, PARTITIONS = 10, 100
FORMATS = {"text": "", "OpenMetrics": "application/openmetrics-text; version=1.0.0"}


def main() -> None:
    print(f"to count one request: {count_seconds() * 1e6:.2f} us")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(scrape(Path(directory)))


def count_seconds() -> float:
    partition = PartitionProduceResponse(index=0)
    topic = TopicProduceResponse(name="orders", partition_responses=[partition])
    answer, counts = ProduceResponse(responses=[topic]), ApiCounts()
    started = time.thread_time()
    for _ in range(ANSWERS):
        received_s = time.perf_counter()
        counts.note_request(100)
        seconds = time.perf_counter() - received_s
        counts.note_answer(answer, size_bytes=sum(map(len, [b"52 bytes"])), seconds=seconds)
    return (time.thread_time() - started) / ANSWERS


async def scrape(directory: Path) -> None:
    config = BrokerConfig(port=0, is_relaxed=True)
    server = BrokerServer(directory, config, now_ms=system_clock)
    await server.start()
    assert server.node is not None
    await fill(server.node)
    for name, accept in FORMATS.items():
        seconds, size_bytes = slice_seconds(Exposition(server.node, accept))
        print(
            f"{name}, {TOPICS * PARTITIONS} partitions: {sum(seconds) * 1e3:.0f} ms in all, "
            f"longest slice {max(seconds) * 1e3:.1f} ms, {size_bytes / 1000:.0f} kB"
        )
    await server.stop()


async def fill(node: Node) -> None:
    group = node.groups.find_or_create("billing")
    for number in range(TOPICS):
        topic = await node.topics.create(f"orders-{number}", PARTITIONS, {})
        for partition in range(PARTITIONS):
            where = TopicPartition(topic.name, partition)
            group.offsets.commit(where, CommittedOffset(offset=0, committed_ms=0))


def slice_seconds(exposition: Exposition) -> tuple[list[float], int]:
    seconds, size_bytes = [], 0
    slices = exposition.slices()
    while True:
        started = time.thread_time()
        some = next(slices, None)
        seconds.append(time.thread_time() - started)
        if some is None:
            return seconds, size_bytes
        size_bytes += len(some)


if __name__ == "__main__":
    main()
