"""DataFrames into topics, exactly once: real Spark, a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.query import StreamingQuery

from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics, stream_topics
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.receipts import Writer
from millstream.processing.writing.row_transaction import AttemptFenced, Row
from millstream.processing.writing.topic_sink import (
    TASKS_EXPECTED,
    claim_epoch,
    stream_into_topic,
    write_once,
)
from millstream.processing.writing.topic_write import BadWrite, TopicWrite
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.spark.steps import WITHIN_S, error_of, numbered, values_in
from tests.support.waiting import eventually


@pytest.fixture
def topics(admin: AdminClient) -> tuple[str, str]:
    """Two new topics: one to read, of two partitions, and one to write."""
    source, target = unique_name("in"), unique_name("out")
    create_topic(admin, source, partitions=2)
    create_topic(admin, target)
    return source, target


@pytest.fixture
def job() -> str:
    return unique_name("job")


def source(spark: SparkSession, bootstrap: str, topic: str, **terms: int) -> DataFrame:
    read = TopicRead(brokers=bootstrap, topics=(topic,), **terms)  # type: ignore[arg-type]
    return stream_topics(spark, read, name="in")


def copied(frame: DataFrame, write: TopicWrite, checkpoint: Path) -> StreamingQuery:
    """Run a copy of what is there now to its end."""
    writer = stream_into_topic(frame.select("key", "value"), write, BatchLog(checkpoint))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"
    return query


def written(spark: SparkSession, bootstrap: str, topic: str) -> list[bytes]:
    frame = read_topics(spark, TopicRead(brokers=bootstrap, topics=(topic,)))
    return sorted(values_in([frame.collect()]), key=int)


def produce_numbers(bootstrap: str, topic: str, count: int, *, start: int = 0) -> None:
    values = numbered(count, start=start)
    produce(bootstrap, topic, [Sent(value=v, partition=n % 2) for n, v in enumerate(values)])


def forget_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the tasks of its last batch, before it noted that."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_rows_arrive_with_all_they_have(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    produce(bootstrap, topics[0], [Sent(value=b"1", key=b"k", partition=1)])
    rows = source(spark, bootstrap, topics[0]).select(
        F.col("key").cast("string"),
        "value",
        F.array(F.struct(F.lit("h").alias("key"), F.lit(b"x").alias("value"))).alias("headers"),
        F.lit(topics[1]).alias("topic"),
        F.lit(0).alias("partition"),
        F.timestamp_millis(F.lit(1_234_567)).alias("timestamp"),
    )
    write = TopicWrite(brokers=bootstrap, job=job)
    writer = stream_into_topic(rows, write, BatchLog(tmp_path))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(WITHIN_S)
    read = TopicRead(brokers=bootstrap, topics=(topics[1],))
    (row,) = read_topics(spark, read).withColumn("ms", F.unix_millis("timestamp")).collect()
    assert (bytes(row.key), bytes(row.value), row.ms) == (b"k", b"1", 1_234_567)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"x")]


def test_a_batch_that_spark_repeats_is_not_written_again(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    produce_numbers(bootstrap, topics[0], 20)
    copied(source(spark, bootstrap, topics[0], records_max=10), write, tmp_path)
    forget_the_last_commit(tmp_path)
    produce_numbers(bootstrap, topics[0], 10, start=20)
    again = copied(source(spark, bootstrap, topics[0], records_max=10), write, tmp_path)
    assert again.recentProgress[0].numInputRows > 0, "the last batch was repeated"
    assert written(spark, bootstrap, topics[1]) == numbered(30)


def test_a_job_that_starts_over_with_a_new_checkpoint_writes_all_again(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    produce_numbers(bootstrap, topics[0], 4)
    for checkpoint in (tmp_path / "first", tmp_path / "second"):
        copied(source(spark, bootstrap, topics[0]), write, checkpoint)
    assert written(spark, bootstrap, topics[1]) == sorted(numbered(4) * 2, key=int)


def failing_once(marker: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A step of a job that passes rows on and breaks down after them, the first time."""

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if b"13" in batch["value"].to_pylist() and not marker.exists():
                marker.touch()
                raise RuntimeError("planned breakdown")

    return check


def test_a_job_goes_on_after_a_task_has_failed(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    produce_numbers(bootstrap, topics[0], 20)
    step = failing_once(tmp_path / "failed")

    def run() -> StreamingQuery:
        rows = source(spark, bootstrap, topics[0]).select("key", "value")
        return copied(rows.mapInArrow(step, rows.schema), write, tmp_path / "checkpoint")

    assert "planned breakdown" in error_of(run)
    run()
    assert written(spark, bootstrap, topics[1]) == numbered(20)


# Attempts of one task, without Spark


def attempt(write: TopicWrite, rows: Iterator[Row]) -> int:
    """Task 0 of batch 7 writes its rows."""
    writer = Writer(job=write.job, epoch=1, query="q", batch=7, task=0)
    return write_once(write, writer, next(rows), rows)


def rows_for(topic: str, count: int) -> Iterator[Row]:
    return iter([(topic, None, value, None, -1, 0) for value in numbered(count)])


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """All records that can be seen."""
    read = TopicRead(brokers=bootstrap, topics=(topic,))
    ranges = batch_ranges(read)
    return [m.value() for found in ranges for some in RangeReader(read).read(*found) for m in some]


def test_rows_of_an_attempt_that_fails_are_not_seen_and_the_next_writes_them(
    bootstrap: str, topics: tuple[str, str], job: str
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)

    def breaking_down() -> Iterator[Row]:
        yield from rows_for(topics[1], 10)
        raise RuntimeError("planned breakdown")

    with pytest.raises(RuntimeError, match="planned breakdown"):
        attempt(write, breaking_down())
    assert committed(bootstrap, topics[1]) == []
    assert attempt(write, rows_for(topics[1], 20)) == 20
    assert attempt(write, rows_for(topics[1], 20)) == 0, "the receipt is there"
    assert committed(bootstrap, topics[1]) == numbered(20)


def test_an_attempt_that_was_overtaken_cannot_commit(
    bootstrap: str, topics: tuple[str, str], job: str
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)

    def overtaken() -> Iterator[Row]:
        yield from rows_for(topics[1], 10)
        assert attempt(write, rows_for(topics[1], 20)) == 20

    with pytest.raises(AttemptFenced, match=f"{job}/0: another attempt of this task has begun"):
        attempt(write, overtaken())
    assert committed(bootstrap, topics[1]) == numbered(20)


def test_a_job_that_grows_gets_receipts_for_its_new_tasks(
    bootstrap: str, topics: tuple[str, str], job: str
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    assert claim_epoch(write) == 1
    many = Writer(job=job, epoch=1, query="q", batch=0, task=TASKS_EXPECTED + 3)
    for count in (5, 0):
        rows = rows_for(topics[1], 5)
        assert write_once(write, many, next(rows), rows) == count


# Runs of one job


def test_a_run_that_was_replaced_is_fenced(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    rows = source(spark, bootstrap, topics[0]).select("value")
    writer = stream_into_topic(rows, write, BatchLog(tmp_path))
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        produce_numbers(bootstrap, topics[0], 2)
        eventually(
            lambda: len(written(spark, bootstrap, topics[1])) == 2, what="a batch", within_s=60
        )
        assert claim_epoch(write) == 2
        produce_numbers(bootstrap, topics[0], 2, start=2)
        error = error_of(lambda: query.awaitTermination(WITHIN_S))
    finally:
        query.stop()
    assert f"job {job}: a newer run of it has started (epoch 2, this one has 1)" in error
    assert written(spark, bootstrap, topics[1]) == numbered(2)


def test_rows_that_do_not_fit_are_refused_before_they_run(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], job: str, tmp_path: Path
) -> None:
    rows = source(spark, bootstrap, topics[0]).select("value", "offset")
    write = TopicWrite(brokers=bootstrap, topic=topics[1], job=job)
    produce_numbers(bootstrap, topics[0], 1)
    with pytest.raises(BadWrite, match="column offset cannot be written into a topic"):
        stream_into_topic(rows, write, BatchLog(tmp_path))
