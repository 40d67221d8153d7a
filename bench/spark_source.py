"""How fast Spark reads a topic through our source: raw, decoded, and counted by window.

    python -m bench.spark_source [RECORDS]

One broker on loopback, a topic of two partitions with small JSON records, Spark with two cores.
The first round warms Spark up and is not counted; each figure is the best of three, as a batch
and as one run of a stream over what is there. The stream's includes its checkpoint and start.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import Broker
from millstream.processing.session import open_session
from millstream.processing.topic_read import TopicRead
from millstream.processing.topic_source import read_topics, stream_topics
from millstream.values.json_decoder import JsonDecoder

RECORDS = 1_000_000
ROUNDS = 3
SCHEMA = "user STRING, url STRING, at TIMESTAMP, amount DOUBLE"
TOPIC = "clicks"
FIRST_MS = 1_780_000_000_000


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with Broker(durability="relaxed", default_partitions=2) as broker:
        fill(broker.bootstrap, records)
        session = open_session("bench", master="local[2]")
        raw = TopicRead(brokers=broker.bootstrap, topics=(TOPIC,), columns=("value",))
        typed = TopicRead(brokers=broker.bootstrap, topics=(TOPIC,), decoder=JsonDecoder(SCHEMA))
        batch = read_topics
        measure("read", records, lambda: drained(batch(session, raw)))
        measure("read + decode", records, lambda: drained(batch(session, typed)))
        measure("... + windowed count", records, lambda: drained(counted(batch(session, typed))))
        measure("... as a stream", records, lambda: streamed(session, typed))
        session.stop()


def fill(bootstrap: str, records: int) -> None:
    AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(TOPIC, timeout=10)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(records):
        value = json.dumps(
            {
                "user": f"user-{number % 1000}",
                "url": f"/page/{number % 50}",
                "at": FIRST_MS + number,
                "amount": number / 100,
            }
        )
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "1 minute"), "url").count()


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def streamed(session: SparkSession, read: TopicRead) -> None:
    frame = counted(stream_topics(session, read, name="clicks"))
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as checkpoint:
        writer = frame.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def measure(what: str, records: int, run: Callable[[], None]) -> None:
    run()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    print(f"{what:22} {records / min(seconds):>12,.0f} records/s   ({min(seconds):.2f} s)")


if __name__ == "__main__":
    main()
