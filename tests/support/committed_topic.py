"""All records of a topic that are committed, as a reader sees them now."""

import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer


def committed(bootstrap: str, topic: str, *, partitions: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, up to where it ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    ended: set[int | None] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1_000, 1.0):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                yield message.key() or b"", message.value() or b""
    consumer.close()
