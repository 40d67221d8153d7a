"""Which traces the records of a batch belong to: their header `traceparent`, of a few of them.

Read apart from the batch, by a consumer of its own, and only if traces are on: batches that are not
traced pay nothing, and a batch of a million records pays for as many as one of ten.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.base.ports import BatchReceipt
from millstream.base.tracing import TRACEPARENT
from millstream.processing.kafka_clients import client_config

# Of each partition its newest records; a span may have some hundred links, readers want few.
RECORDS_OF_PARTITION_MAX = 32
PARTITIONS_MAX = 16
LINKS_MAX = 64
SECONDS_MAX = 2.0


def ranges_of(receipt: BatchReceipt) -> list[tuple[str, int, int, int]]:
    """The newest records of each partition that the batch reads: topic, partition, [start, end)."""
    found = []
    for topic, ends in receipt.positions.items():
        starts = (receipt.start or {}).get(topic, {})
        for partition, end in ends.items():
            start = max(starts.get(partition, 0), end - RECORDS_OF_PARTITION_MAX)
            if start < end:
                found.append((topic, partition, start, end))
    return found[:PARTITIONS_MAX]


def traces_of(receipt: BatchReceipt, *, brokers: str, client: Mapping[str, str]) -> list[str]:
    """Traceparents, each once. A broker that does not answer costs links, and no batch."""
    from confluent_kafka import Consumer, KafkaException

    found: dict[str, None] = {}
    consumer = Consumer(
        {
            **client_config(brokers, client),
            "group.id": "millstream-traces",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        for one in _headers(consumer, ranges_of(receipt)):
            found[one] = None
            if len(found) == LINKS_MAX:
                break
    except KafkaException:
        return list(found)
    finally:
        consumer.close()
    return list(found)


def _headers(consumer: Any, ranges: list[tuple[str, int, int, int]]) -> Iterator[str]:
    from confluent_kafka import TopicPartition

    ends = {(topic, partition): end for topic, partition, _, end in ranges}
    consumer.assign(
        [TopicPartition(topic, partition, start) for topic, partition, start, _ in ranges]
    )
    deadline = time.monotonic() + SECONDS_MAX
    while ends and (left := deadline - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is None or message.error() is not None:
            continue
        place = (message.topic(), message.partition())
        end = ends.get(place)
        if end is None or message.offset() >= end:
            ends.pop(place, None)
            continue
        for name, value in message.headers() or ():
            if name == TRACEPARENT and value is not None:
                yield value.decode("latin-1")
        if message.offset() + 1 == end:
            ends.pop(place)
