"""Replay: a log is read again, from an offset or from a time, and nobody else notices.

    python examples/replay.py

Five readings are written, an hour apart by their own timestamps. It prints

    from offset 3: 21.5, 20.0
    from 10:30:    19.5, 21.0, 21.5, 20.0
    all of it:     18.0, 19.5, 21.0, 21.5, 20.0
"""

from datetime import UTC, datetime, timedelta

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from millstream import Broker

TEN = datetime.now(UTC).replace(hour=10, minute=0, second=0, microsecond=0) - timedelta(days=1)
READINGS = ["18.0", "19.5", "21.0", "21.5", "20.0"]


def milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for hour, reading in enumerate(READINGS):
        at = TEN + timedelta(hours=hour)
        producer.produce("readings", reading, timestamp=milliseconds(at))
    producer.flush()


def read_from(consumer: Consumer, offset: int) -> str:
    """To the end that the log has now. Nothing is committed: it can be done again and again."""
    place = TopicPartition("readings", 0, offset)
    first, end = consumer.get_watermark_offsets(place)
    consumer.assign([place])
    found: list[str] = []
    at = max(first, offset)
    while at < end:
        record = consumer.poll(1)
        if record is not None and not record.error():
            found.append(record.value().decode())
            at = record.offset() + 1
    return ", ".join(found)


if __name__ == "__main__":
    with Broker() as broker:
        write(broker.bootstrap)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "replay"})
        half_past = milliseconds(TEN + timedelta(minutes=30))
        [found] = consumer.offsets_for_times([TopicPartition("readings", 0, half_past)])
        print("from offset 3:", read_from(consumer, 3))
        print("from 10:30:   ", read_from(consumer, found.offset))
        print("all of it:    ", read_from(consumer, OFFSET_BEGINNING))
        consumer.close()
