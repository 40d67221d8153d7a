"""Topics as DataFrames: real Spark, a real broker."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewPartitions,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.processing.reading.dead_letters import count_letters
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics, stream_topics
from millstream.values.decoder import Bad, Decoded
from millstream.values.json_decoder import JsonDecoder
from tests.clients.steps import Sent, create_topic, produce, read, unique_name
from tests.spark.steps import WITHIN_S, error_of, numbered, run_to_the_end, start, values_in
from tests.support.waiting import eventually

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)


def sent(*values: bytes, partition: int = 0) -> list[Sent]:
    return [Sent(value=value, partition=partition) for value in values]


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A new topic of two partitions."""
    name = unique_name("orders")
    create_topic(admin, name, partitions=2)
    return name


# Batch reads


def test_a_record_has_all_its_columns(spark: SparkSession, bootstrap: str, topic: str) -> None:
    headers = (("trace", b"\x00\xff"), ("empty", None))
    produce(
        bootstrap,
        topic,
        [
            Sent(value=b"v", key=b"k", headers=headers, timestamp_ms=NOON_MS, partition=1),
            Sent(value=None, timestamp_ms=NOON_MS + 1, partition=1),
        ],
    )
    frame = read_topics(spark, TopicRead(brokers=bootstrap, topics=(topic,)))
    full, empty = frame.orderBy("offset").collect()
    assert (bytes(full.key), bytes(full.value)) == (b"k", b"v")
    assert [(h.key, h.value and bytes(h.value)) for h in full.headers] == list(headers)
    assert (full.topic, full.partition, full.offset) == (topic, 1, 0)
    assert full.timestamp.astimezone(UTC) == NOON
    assert (empty.key, empty.value, empty.headers) == (None, None, [])


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = read_topics(spark, TopicRead(brokers=bootstrap, topics=(topic,)))
    assert frame.count() == 0
    assert "offset" in frame.columns


def test_only_the_columns_that_were_asked_for_are_read(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, sent(b"a"))
    read = TopicRead(brokers=bootstrap, topics=(topic,), columns=("offset", "value"))
    assert read_topics(spark, read).columns == ["offset", "value"]


def test_a_read_starts_and_ends_by_offset_or_by_time(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    records = [
        Sent(value=value, partition=0, timestamp_ms=NOON_MS + number * 1000)
        for number, value in enumerate(numbered(10))
    ]
    produce(bootstrap, topic, records)
    by_offset = TopicRead(
        brokers=bootstrap,
        topics=(topic,),
        starting=json.dumps({topic: {"0": 2}}),
        ending=json.dumps({topic: {"0": 5}}),
    )
    by_time = TopicRead(
        brokers=bootstrap,
        topics=(topic,),
        starting="2026-07-01T12:00:02Z",
        ending="2026-07-01T12:00:05Z",
        tasks_min=3,
    )
    for wanted in (by_offset, by_time):
        assert values_in([read_topics(spark, wanted).collect()]) == [b"2", b"3", b"4"]


def test_a_pattern_means_topics_of_the_application(
    spark: SparkSession, bootstrap: str, admin: AdminClient
) -> None:
    stem = unique_name("shop")
    for name in (f"{stem}-a", f"{stem}-b", f"{stem}-a.dead", f"_{stem}"):
        create_topic(admin, name)
        produce(bootstrap, name, sent(name.encode()))
    frame = read_topics(spark, TopicRead(brokers=bootstrap, pattern=f".*{stem}.*"))
    assert values_in([frame.collect()]) == [f"{stem}-a".encode(), f"{stem}-b".encode()]


def test_a_topic_that_does_not_exist_is_named_with_its_likeness(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    near = TopicRead(brokers=bootstrap, topics=(topic + "x",))
    error = error_of(lambda: read_topics(spark, near).count())
    assert f"Topic {topic}x does not exist. Did you mean {topic}?" in error


def test_an_offset_that_is_not_there_is_refused(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    beyond = TopicRead(brokers=bootstrap, topics=(topic,), starting=json.dumps({topic: {"0": 5}}))
    error = error_of(lambda: read_topics(spark, beyond).count())
    assert f"offset 5 of {topic}[0] is not there, it has [0, 0)" in error


def test_what_was_aborted_is_not_read_and_an_open_transaction_is_not_waited_for(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("t")})
    producer.init_transactions()
    for value, ends in [(b"a", "commit"), (b"lost", "abort"), (b"b", "commit"), (b"open", "")]:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        if ends == "commit":
            producer.commit_transaction()
        elif ends == "abort":
            producer.abort_transaction()
    committed = TopicRead(brokers=bootstrap, topics=(topic,))
    everything = TopicRead(brokers=bootstrap, topics=(topic,), read_committed=False)
    assert values_in([read_topics(spark, committed).collect()]) == [b"a", b"b"]
    assert values_in([read_topics(spark, everything).collect()]) == [b"a", b"lost", b"b", b"open"]
    producer.abort_transaction()
    # The last offsets hold no record: the read ends all the same.
    assert values_in([read_topics(spark, committed).collect()]) == [b"a", b"b"]


# Streams


def stream(spark: SparkSession, read: TopicRead) -> DataFrame:
    return stream_topics(spark, read, name="orders")


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    read = TopicRead(brokers=bootstrap, topics=(topic,))
    produce(bootstrap, topic, sent(b"a", b"b"))
    assert values_in(run_to_the_end(stream(spark, read), tmp_path)) == [b"a", b"b"]
    produce(bootstrap, topic, sent(b"c"))
    assert values_in(run_to_the_end(stream(spark, read), tmp_path)) == [b"c"]
    assert run_to_the_end(stream(spark, read), tmp_path) == []


def test_a_batch_has_no_more_records_than_the_limit(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    values = numbered(100)
    produce(bootstrap, topic, sent(*values[:50]) + sent(*values[50:], partition=1))
    read = TopicRead(brokers=bootstrap, topics=(topic,), records_max=40)
    batches = run_to_the_end(stream(spark, read), tmp_path)
    assert values_in(batches) == values
    assert len(batches) == 3
    assert max(map(len, batches)) <= 40


def test_a_batch_has_about_as_many_bytes_as_the_limit(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, sent(*[b"x" * 1_000] * 100))
    read = TopicRead(brokers=bootstrap, topics=(topic,), bytes_max=40_000)
    batches = run_to_the_end(stream(spark, read), tmp_path)
    assert [len(batch) for batch in batches] == [40, 40, 20]


def test_a_stream_ends_where_it_was_told_to(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, sent(*numbered(10)))
    read = TopicRead(
        brokers=bootstrap,
        topics=(topic,),
        starting=json.dumps({topic: {"0": 3}}),
        ending=json.dumps({topic: {"0": 6, "1": 1_000}}),
    )
    assert values_in(run_to_the_end(stream(spark, read), tmp_path)) == [b"3", b"4", b"5"]


def test_a_running_stream_finds_new_partitions_and_new_topics(
    spark: SparkSession, bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    stem = unique_name("shop")
    create_topic(admin, f"{stem}-a")
    seen: list[bytes] = []

    def keep(batch: DataFrame, _number: int) -> None:
        seen.extend(bytes(row.value) for row in batch.collect())

    read = TopicRead(brokers=bootstrap, pattern=f"{stem}-.*", starting="latest")
    produce(bootstrap, f"{stem}-a", sent(b"before"))
    query = start(stream(spark, read), tmp_path, keep)
    try:
        eventually(lambda: bool(query.recentProgress), what="a first plan", within_s=60)
        produce(bootstrap, f"{stem}-a", sent(b"first"))
        admin.create_partitions([NewPartitions(f"{stem}-a", 2)])[f"{stem}-a"].result(20)
        create_topic(admin, f"{stem}-b")
        produce(bootstrap, f"{stem}-a", sent(b"second", partition=1))
        produce(bootstrap, f"{stem}-b", sent(b"third"))
        eventually(lambda: len(seen) >= 3, what="three records", within_s=60)
    finally:
        query.stop()
    assert sorted(seen) == [b"first", b"second", b"third"]


# Losses


def lose_the_first(admin: AdminClient, topic: str, offset: int) -> None:
    """As retention would."""
    place = TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(20)


def test_records_that_retention_took_are_an_error_that_says_so(
    spark: SparkSession, bootstrap: str, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    read = TopicRead(brokers=bootstrap, topics=(topic,))
    produce(bootstrap, topic, sent(b"a"))
    run_to_the_end(stream(spark, read), tmp_path)
    produce(bootstrap, topic, sent(b"b", b"c", b"d"))
    lose_the_first(admin, topic, 3)
    error = error_of(lambda: run_to_the_end(stream(spark, read), tmp_path))
    assert f"{topic}[0]: offsets [1, 3) were deleted by retention" in error
    assert "set on_loss to skip" in error
    skipping = TopicRead(brokers=bootstrap, topics=(topic,), on_loss="skip")
    assert values_in(run_to_the_end(stream(spark, skipping), tmp_path)) == [b"d"]


def test_another_topic_of_the_same_name_is_an_error_that_says_so(
    spark: SparkSession, bootstrap: str, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    read = TopicRead(brokers=bootstrap, topics=(topic,))
    produce(bootstrap, topic, sent(b"a"))
    run_to_the_end(stream(spark, read), tmp_path)
    admin.delete_topics([topic])[topic].result(20)
    create_topic(admin, topic)
    produce(bootstrap, topic, sent(b"b", b"c"))
    error = error_of(lambda: run_to_the_end(stream(spark, read), tmp_path))
    assert f"{topic}: the topic was deleted, and another one of that name made since" in error
    skipping = TopicRead(brokers=bootstrap, topics=(topic,), on_loss="skip")
    assert values_in(run_to_the_end(stream(spark, skipping), tmp_path)) == [b"b", b"c"]


# Decoding


@dataclass(frozen=True)
class Numbers:
    """Decodes values that are numbers."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([pa.field("number", pa.int64())])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        found = values.to_pylist()
        good = [int(value) if value and value.isdigit() else None for value in found]
        bad = [
            Bad(row, f"{value!r} is not a number")
            for row, value in enumerate(found)
            if value is not None and good[row] is None
        ]
        return Decoded(pa.RecordBatch.from_arrays([pa.array(good)], schema=self.arrow_schema), bad)


def test_a_value_that_cannot_be_decoded_becomes_a_dead_letter(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    broken = Sent(value=b"\xff{", key=b"k", headers=(("h", b"1"),), partition=0)
    produce(bootstrap, topic, [*sent(b"1"), broken, *sent(b"2"), *sent(b"3", partition=1)])
    wanted = TopicRead(
        brokers=bootstrap, topics=(topic,), decoder=Numbers(), columns=("offset",), job="sum"
    )
    (batch,) = run_to_the_end(stream(spark, wanted), tmp_path)
    assert sorted((row.number, row._offset) for row in batch) == [(1, 0), (2, 2), (3, 0)]
    (letter,) = read(bootstrap, f"{topic}.dead", 1)
    assert (letter.key(), letter.value()) == (b"k", b"\xff{")
    assert dict(letter.headers() or ()) == {
        "h": b"1",
        "__dlq.errors.topic": topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": b"sum",
        "__dlq.errors.message": b"b'\\xff{' is not a number",
        "__dlq.errors.timestamp": str(letter_time(bootstrap, topic)).encode(),
    }


def test_typed_events_are_counted_by_window(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    clicks = [(0, "/a"), (59, "/a"), (60, "/a"), (30, "/b")]
    values = [json.dumps({"url": url, "at": NOON_MS + 1000 * s}).encode() for s, url in clicks]
    produce(bootstrap, topic, sent(*values, b"not JSON"))
    typed = TopicRead(
        brokers=bootstrap, topics=(topic,), decoder=JsonDecoder("url STRING, at TIMESTAMP")
    )
    per_minute = stream(spark, typed).groupBy(F.window("at", "1 minute"), "url").count()
    counts: dict[tuple[int, str], int] = {}

    def keep(batch: DataFrame, _number: int) -> None:
        minute = ((F.unix_millis("window.start") - NOON_MS) / 60_000).cast("int")
        for row in batch.select(minute.alias("minute"), "url", "count").collect():
            counts[row.minute, row.url] = row["count"]

    writer = per_minute.writeStream.foreachBatch(keep).outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN_S)
    assert counts == {(0, "/a"): 2, (1, "/a"): 1, (0, "/b"): 1}
    (letter,) = read(bootstrap, f"{topic}.dead", 1)
    assert letter.value() == b"not JSON"


def letter_time(bootstrap: str, topic: str) -> int:
    return int(read(bootstrap, topic, 2)[1].timestamp()[1])


def test_a_record_that_is_read_twice_is_one_dead_letter(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    wanted = TopicRead(brokers=bootstrap, topics=(topic,), decoder=Numbers())
    produce(bootstrap, topic, sent(b"1", b"x", b"y"))
    assert count_letters(wanted, topic) == 0
    for _ in range(2):
        assert read_topics(spark, wanted).count() == 1
    assert count_letters(wanted, topic) == 2
    letters = replace(wanted, topics=(f"{topic}.dead",), decoder=None)
    assert read_topics(spark, letters).count() == 2


def test_who_wants_no_dead_letters_gets_an_error(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, sent(b"1", b"x"))
    strict = TopicRead(brokers=bootstrap, topics=(topic,), decoder=Numbers(), on_bad="fail")
    error = error_of(lambda: read_topics(spark, strict).collect())
    assert f"{topic}[0]: the value at offset 1 cannot be decoded: b'x' is not a number" in error
