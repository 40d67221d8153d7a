"""All that is committed in a topic now, partition by partition."""

import contextlib
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

WITHIN_S = 60.0
AWAY = ("_TRANSPORT", "_ALL_BROKERS_DOWN")


def committed_records(bootstrap: str, topic: str) -> list[Message]:
    """None of a topic that is not there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed-records",  # asked for by the client; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    with contextlib.closing(consumer):
        known = consumer.list_topics(timeout=WITHIN_S).topics.get(topic)
        return _read(consumer, topic, set(known.partitions)) if known else []


def _read(consumer: Consumer, topic: str, unread: set[int]) -> list[Message]:
    consumer.assign([TopicPartition(topic, number, 0) for number in unread])
    found: list[Message] = []
    deadline = time.monotonic() + WITHIN_S
    while unread:
        assert time.monotonic() < deadline, f"{topic}: no end of {unread}"
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif not error.retriable() and error.name() not in AWAY:
                raise KafkaException(error)
    return found
