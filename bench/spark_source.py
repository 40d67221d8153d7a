"""Question: how fast does Spark read a topic through our source, and through its own connector?

    python -m bench.spark_source [--records 2000000] [--rounds 5]

One broker on loopback, a topic of two partitions with small JSON records, one Spark session with
two cores. Ours decodes at the source, in Arrow; the other side is Spark's Kafka connector on the
JVM with `from_json`. The sides take turns, on the same records; the first round warms both up and
is not counted. As a batch, and as one run of a stream over all that is there (`availableNow`):
with its start, in which a Python process is made for ours, and its batches alone, by Spark's own
clock. Both sides must count the same.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark_jars import connector_jars
from millstream import Broker
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics, stream_topics
from millstream.processing.session import open_session
from millstream.values.json_decoder import JsonDecoder

SCHEMA = "user STRING, url STRING, at TIMESTAMP, amount DOUBLE"
# `from_json` takes a number for seconds; this is its quickest way to a time of milliseconds.
CONNECTOR_SCHEMA = "user STRING, url STRING, at BIGINT, amount DOUBLE"
TOPIC = "clicks"
FIRST_MS = 1_780_000_000_000
PARTITIONS = 2
RATIO_MIN = 3.0


@dataclass(frozen=True, slots=True)
class Ours:
    """The topic through Millstream's source."""

    session: SparkSession
    brokers: str

    def raw(self) -> DataFrame:
        columns = ("value",)
        read = TopicRead(brokers=self.brokers, topics=(TOPIC,), columns=columns)
        return read_topics(self.session, read)

    def typed(self) -> DataFrame:
        return read_topics(self.session, self._typed_read())

    def typed_stream(self) -> DataFrame:
        return stream_topics(self.session, self._typed_read(), name=TOPIC)

    def _typed_read(self) -> TopicRead:
        return TopicRead(brokers=self.brokers, topics=(TOPIC,), decoder=JsonDecoder(SCHEMA))


@dataclass(frozen=True, slots=True)
class Connector:
    """The topic through Spark's connector, decoded with `from_json`."""

    session: SparkSession
    brokers: str

    def raw(self) -> DataFrame:
        return self.session.read.format("kafka").options(**self._options()).load().select("value")

    def typed(self) -> DataFrame:
        return from_json(self.raw())

    def typed_stream(self) -> DataFrame:
        stream = self.session.readStream.format("kafka").options(**self._options())
        return from_json(stream.name(TOPIC).load())

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.brokers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }


def from_json(frame: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), CONNECTOR_SCHEMA).alias("row")
    return frame.select(row).select("row.*").withColumn("at", F.timestamp_millis("at"))


Side = Ours | Connector
Work = Callable[[Side], float]  # in seconds


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "1 minute"), "url").count()


def drain(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def drain_stream(frame: DataFrame) -> float:
    started = time.perf_counter()
    _drained_stream(frame)
    return time.perf_counter() - started


def drain_batches(frame: DataFrame) -> float:
    progress = _drained_stream(frame).recentProgress
    return sum(batch.durationMs["triggerExecution"] for batch in progress) / 1000


def _drained_stream(frame: DataFrame) -> StreamingQuery:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as checkpoint:
        writer = frame.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
    return query


COUNTED = "read + decode + windowed count"
WORK: Mapping[str, Work] = {
    "read": lambda side: drain(side.raw()),
    "read + decode": lambda side: drain(side.typed()),
    f"{COUNTED}, batch": lambda side: drain(counted(side.typed())),
    f"{COUNTED}, a stream's batches": lambda side: drain_batches(counted(side.typed_stream())),
    f"{COUNTED}, a stream": lambda side: drain_stream(counted(side.typed_stream())),
}


@dataclass
class Rates:
    """Records per second of both sides in one kind of work, round by round."""

    ours: list[float] = field(default_factory=list)
    connector: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.connector)


def measured(work: Work, ours: Ours, connector: Connector, *, records: int, rounds: int) -> Rates:
    """The sides in turns; the first round is for Java's compiler."""
    rates = Rates()
    for number in range(rounds + 1):
        ours_rate, connector_rate = (records / work(side) for side in (ours, connector))
        if number > 0:
            rates.ours.append(ours_rate)
            rates.connector.append(connector_rate)
    return rates


def fill(bootstrap: str, records: int) -> None:
    AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(TOPIC, timeout=10)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(records):
        send(producer, number)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} of {records} records were not acknowledged in a minute")


def send(producer: Producer, number: int) -> None:
    value = (
        f'{{"user": "user-{number % 1000}", "url": "/page/{number % 50}",'
        f' "at": {FIRST_MS + number}, "amount": {number / 100}}}'
    )
    while True:
        try:
            return producer.produce(TOPIC, value, partition=number % PARTITIONS)
        except BufferError:
            producer.poll(0.05)


def require_equal_counts(ours: Ours, connector: Connector, records: int) -> None:
    """A side that reads less, or other windows, would win unjustly."""
    found = [sorted(counted(side.typed()).collect()) for side in (ours, connector)]
    total = sum(row["count"] for row in found[0])
    if found[0] != found[1] or total != records:
        raise RuntimeError(f"the sides do not count alike: ours {total} of {records} records")


def print_rates(what: str, rates: Rates) -> None:
    print(f"{what:50} {figures(rates.ours)}   {figures(rates.connector)}   {rates.ratio:5.2f}")


def figures(samples: list[float]) -> str:
    low, middle, high = (
        f"{found / 1000:,.0f}" for found in (min(samples), median(samples), max(samples))
    )
    return f"{middle:>6} [{low:>5} - {high:>5}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with Broker(durability="relaxed", default_partitions=PARTITIONS) as broker:
        fill(broker.bootstrap, options.records)
        settings = {"spark.jars": connector_jars()}
        session = open_session("bench", master="local[2]", settings=settings)
        compare(session, broker.bootstrap, records=options.records, rounds=options.rounds)
        session.stop()


def compare(session: SparkSession, bootstrap: str, *, records: int, rounds: int) -> None:
    ours, connector = Ours(session, bootstrap), Connector(session, bootstrap)
    require_equal_counts(ours, connector, records)
    print(f"{'thousand records/s, median':50} {'ours':22}   {'connector':22}   ratio")
    for what, work in WORK.items():
        rates = measured(work, ours, connector, records=records, rounds=rounds)
        print_rates(what, rates)
        if COUNTED in what:
            print(f"{'':50} goal: ratio ≥ {RATIO_MIN:.0f}: {verdict(rates)}")


def verdict(rates: Rates) -> str:
    return "met" if rates.ratio >= RATIO_MIN else "not met"


if __name__ == "__main__":
    main()
