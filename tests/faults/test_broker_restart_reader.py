"""A consumer in the middle of a topic goes on when the broker was killed and is back.

Each start is a new leader epoch, which the consumer learns of from the error in its next fetch.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream import Broker

COUNT = 20_000
SECONDS_MAX = 30


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_a_reader_goes_on_where_it_was(tmp_path: Path, strategy: str) -> None:
    with Broker(tmp_path / "data") as broker:
        fill(broker.bootstrap)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "metadata.recovery.strategy": strategy,
                "topic.metadata.refresh.interval.ms": -1,
                "queued.min.messages": 1_000,  # most of it is fetched after the restart
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        values = read(consumer, 2_000)
        broker.kill()
        broker.start()
        values += read(consumer, COUNT - len(values))
        consumer.close()
    assert values == [b"%d" % number for number in range(COUNT)]


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2 * COUNT})
    for number in range(COUNT):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < count and time.monotonic() < deadline:
        messages = consumer.consume(min(500, count - len(values)), timeout=0.5)
        values += [message.value() or b"" for message in messages if message.error() is None]
    return values
