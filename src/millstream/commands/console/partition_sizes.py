"""How many bytes partitions take on disk: DescribeLogDirs, which librdkafka has no words for.

A broker that does not tell, or not everybody, leaves them unknown.
"""

import asyncio
from collections.abc import Mapping

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.commands.connecting import Partition
from millstream.queues.access import Access, Address
from millstream.queues.connection import BrokerTooOld, connect, connect_to_any


def partition_sizes(access: Access, topics: Mapping[str, int]) -> dict[Partition, int]:
    """`topics`: how many partitions each has."""
    try:
        return asyncio.run(_sizes(access, topics)) if topics else {}
    except BrokerTooOld:
        return {}


async def _sizes(access: Access, topics: Mapping[str, int]) -> dict[Partition, int]:
    """Each broker tells of its own replicas; of several the largest counts."""
    wanted = [
        DescribableLogDirTopic(topic=name, partitions=list(range(count)))
        for name, count in topics.items()
    ]
    async with await connect_to_any(access) as anyone:
        brokers = (await anyone.call(MetadataRequest(topics=[]), MetadataResponse)).brokers
    sizes: dict[Partition, int] = {}
    for node in brokers:
        async with await connect(Address(node.host, node.port), access) as broker:
            answer = await broker.call(
                DescribeLogDirsRequest(topics=wanted), DescribeLogDirsResponse
            )
        for part, size_bytes in _told(answer).items():
            sizes[part] = max(size_bytes, sizes.get(part, 0))
    return sizes


def _told(answer: DescribeLogDirsResponse) -> dict[Partition, int]:
    return {
        Partition(topic.name, one.partition_index): one.partition_size
        for result in answer.results
        if result.error_code == ErrorCode.NONE
        for topic in result.topics
        for one in topic.partitions
    }
