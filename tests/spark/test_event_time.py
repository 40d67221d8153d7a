"""Event time at the source: what is late, what becomes of it, and what moves the watermark."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.query import StreamingQuery

from millstream.base.declared import (
    LATE_SUFFIX,
    DeclaredTable,
    DeclaredTopic,
    EventTime,
)
from millstream.processing.reading.dead_letters import count_letters, origin_of
from millstream.processing.reading.event_time import event_time_of, mark_event_time
from millstream.processing.reading.frames import Reading, batch_frame, stream_frame
from millstream.processing.reading.heartbeats import CLOCK_HEADER
from millstream.processing.reading.late_events import count_late
from millstream.processing.reading.topic_read import TopicRead
from millstream.schemas.ddl import schema_from_ddl
from tests.clients.steps import Sent, create_topic, end_offset, produce, read, unique_name
from tests.spark.conftest import OURS_ALONE
from tests.spark.steps import WITHIN_S, error_of, run_to_the_end, start
from tests.support.waiting import eventually

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)
SCHEMA = schema_from_ddl("name STRING, at TIMESTAMP")


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = unique_name("clicks")
    create_topic(admin, name)
    return name


def clicks(topic: str, **event_time: Any) -> DeclaredTopic:
    """A topic whose events may be 10 seconds late, and which is never idle."""
    terms: dict[str, Any] = {"column": "at", "lateness_ms": 10_000, "idle_ms": None} | event_time
    return DeclaredTopic(name=topic, schema=SCHEMA, event_time=EventTime(**terms))


def event(second: float | None, *, name: str = "", ahead_ms: int = 0) -> Sent:
    """An event so many seconds after noon; its record is of the same time."""
    if second is None:
        return Sent(value=json.dumps({"name": name}).encode(), timestamp_ms=NOON_MS)
    time_ms = NOON_MS + round(second * 1000)
    value = json.dumps({"name": name or f"{second:g}", "at": time_ms}).encode()
    return Sent(value=value, timestamp_ms=time_ms - ahead_ms)


def clock(second: float, *, ahead_ms: int = 0) -> Sent:
    time_ms = NOON_MS + round(second * 1000)
    headers = ((CLOCK_HEADER, b"%d" % time_ms),)
    return Sent(value=None, headers=headers, timestamp_ms=time_ms - ahead_ms)


@dataclass
class Runs:
    """A job over one topic, which is run to its end again and again from one checkpoint."""

    spark: SparkSession
    bootstrap: str
    declared: DeclaredTopic
    checkpoint: Path

    @property
    def reading(self) -> Reading:
        return Reading(
            brokers=self.bootstrap,
            job=self.declared.name,
            run="r1",
            checkpoint=str(self.checkpoint),
        )

    def add(self, *records: Sent) -> None:
        produce(self.bootstrap, self.declared.name, list(records))

    def run(self, *records: Sent, fail: bool = False) -> list[str]:
        """The names of the events that came through, in order of time."""
        self.add(*records)
        came: list[Row] = []

        def keep(batch: DataFrame, _number: int) -> None:
            came.extend(batch.collect())
            if fail:
                raise RuntimeError("the sink is gone")

        frame = stream_frame(self.spark, self.declared, self.reading)
        query = start(frame, self.checkpoint, keep, availableNow=True)
        if fail:
            assert "the sink is gone" in error_of(query.awaitTermination)
        else:
            assert query.awaitTermination(WITHIN_S)
        return [row.name for row in sorted(came, key=lambda row: row.at)]

    def late(self) -> dict[str, int]:
        counted = count_late(self.bootstrap, {}, job=self.declared.name, run="r1")
        return {
            fate.value: count for by_fate in counted.values() for fate, count in by_fate.items()
        }

    def dead(self) -> int:
        return count_letters(TopicRead(brokers=self.bootstrap, topics=("-",)), self.declared.name)

    def letters(self, count: int) -> list[Message]:
        """What is in quarantine: so many, and no more."""
        name = f"{self.declared.name}{LATE_SUFFIX}"
        assert end_offset(self.bootstrap, name) == count
        return read(self.bootstrap, name, count)

    @contextmanager
    def counting(self, counted: dict[Any, int]) -> Iterator[StreamingQuery]:
        """The same topic in a windowed count that runs on."""
        frame = stream_frame(self.spark, self.declared, self.reading)

        def keep(batch: DataFrame, _number: int) -> None:
            counted.update((row.window.start, row["count"]) for row in batch.collect())

        windows = frame.groupBy(F.window("at", "10 seconds")).count()
        writer = windows.writeStream.outputMode("update").foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()


@pytest.fixture
def job(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Callable[..., Runs]:
    def made(**event_time: Any) -> Runs:
        return Runs(spark, bootstrap, clicks(topic, **event_time), tmp_path / "checkpoint")

    return made


# What is late


def test_an_event_is_late_when_its_time_is_not_after_the_watermark(
    job: Callable[..., Runs],
) -> None:
    runs = job()
    assert runs.run(event(100), event(1)) == ["1", "100"]
    # The watermark is at 90 now; the job was started anew, and knows it at once.
    assert runs.run(event(90), event(90.001), event(3)) == ["90.001"]
    assert runs.late() == {"dropped": 2}


@OURS_ALONE
def test_a_repeated_batch_judges_and_counts_the_same(job: Callable[..., Runs]) -> None:
    runs = job(late="quarantine")
    runs.run(event(100))
    assert runs.run(event(95), event(40), fail=True) == ["95"]
    # Twice in the topic, from one place: it is one event.
    assert runs.run() == ["95"]
    assert runs.late() == {"quarantined": 1}
    letters = runs.letters(2)
    assert {(letter.value(), origin_of(letter)) for letter in letters} == {
        (event(40).value, (runs.declared.name.encode(), b"0", b"2"))
    }


@OURS_ALONE
def test_a_late_event_corrects_as_long_as_state_is_kept(job: Callable[..., Runs]) -> None:
    runs = job(late="correct", keep_ms=60_000)
    runs.run(event(100))
    # State is kept from 40 on; what is not after 90 is late.
    assert runs.run(event(40), event(41), event(90), event(91)) == ["41", "90", "91"]
    assert runs.late() == {"corrected": 2, "quarantined": 1}
    assert [letter.value() for letter in runs.letters(1)] == [event(40).value]


@OURS_ALONE
def test_random_splits_are_judged_as_the_watermark_says(
    job: Callable[..., Runs],
) -> None:
    """A stateful job over random batches against a model of three lines; Spark drops nothing."""
    chance = random.Random(6)
    runs = job()
    batches = [[chance.uniform(0, 100) + 5 * n for _ in range(4)] for n in range(6)]
    counted: dict[Any, int] = {}
    with runs.counting(counted) as query:
        late, watermark = 0, -NOON_MS / 1000
        for batch in batches:
            runs.add(*(event(second) for second in batch))
            query.processAllAvailable()
            late += sum(second <= watermark for second in batch)
            watermark = max(watermark, *(round(second, 3) - 10 for second in batch))
        dropped = [
            operator.numRowsDroppedByWatermark
            for progress in query.recentProgress
            for operator in progress.stateOperators
        ]
    assert late > 3, "a test without late events proves nothing"
    assert runs.late() == {"dropped": late}
    assert sum(counted.values()) == sum(map(len, batches)) - late
    assert set(dropped) == {0}


# What can be believed


@OURS_ALONE
def test_an_event_without_a_time_or_of_the_year_9999_is_a_dead_letter(
    job: Callable[..., Runs],
) -> None:
    runs = job()
    year_9999 = Sent(value=b'{"name": "far", "at": "9999-12-31T23:59:59Z"}', timestamp_ms=NOON_MS)
    assert runs.run(event(50), event(None), year_9999, event(60, ahead_ms=3_600_000)) == [
        "50",
        "60",
    ]
    assert runs.dead() == 2
    assert runs.run(event(51)) == ["51"], "the watermark is at 50 still"
    assert runs.late() == {}


def test_a_frame_of_history_has_the_same_bounds_and_nothing_is_late(
    job: Callable[..., Runs], spark: SparkSession
) -> None:
    runs = job()
    runs.add(event(1000), event(1), event(None), clock(2000))
    frame = batch_frame(spark, runs.declared, runs.reading)
    assert sorted(row.name for row in frame.collect()) == ["1", "1000"]
    assert frame.columns == ["name", "at"]


@OURS_ALONE
def test_another_checkpoint_than_the_jobs_is_an_error(
    job: Callable[..., Runs], tmp_path: Path
) -> None:
    runs = job()
    runs.add(event(1))
    frame = stream_frame(
        runs.spark, runs.declared, replace(runs.reading, checkpoint=str(tmp_path / "other"))
    )
    query = start(frame, runs.checkpoint, lambda _batch, _number: None, availableNow=True)
    error = error_of(lambda: query.awaitTermination(WITHIN_S))
    assert "does not tell the watermark of this batch (it has no batch yet)" in error


# What moves the watermark


def test_a_clock_record_moves_the_watermark_and_is_no_event(job: Callable[..., Runs]) -> None:
    runs = job()
    assert runs.run(event(0), clock(100)) == ["0"]
    too_far = clock(9_000_000, ahead_ms=3_600_001)
    not_a_time = Sent(value=None, headers=((CLOCK_HEADER, b"soon"),), timestamp_ms=NOON_MS)
    assert runs.run(event(90), event(91), too_far, not_a_time) == ["91"]
    assert (runs.late(), runs.dead()) == ({"dropped": 1}, 2)


@pytest.mark.timeout(300)  # two streams with state, and heartbeats: long on a busy machine
def test_an_idle_source_does_not_hold_back_another(
    spark: SparkSession, bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    """The unmatched row of a left join comes while the right side is silent."""
    left, right = unique_name("left"), unique_name("right")
    for name in (left, right):
        create_topic(admin, name)
    reading = Reading(brokers=bootstrap, job=left, checkpoint=str(tmp_path / "checkpoint"))
    sides = [
        stream_frame(spark, clicks(left, idle_ms=300), reading).alias("left"),
        stream_frame(spark, clicks(right, idle_ms=300), reading).alias("right"),
    ]
    near = F.expr(
        "left.name = right.name AND right.at BETWEEN left.at AND left.at + INTERVAL 1 MINUTE"
    )
    joined = (
        sides[0].join(sides[1], near, "left").select("left.name", F.col("right.at").alias("at"))
    )
    rows: list[Row] = []
    produce(bootstrap, right, [event(0, name="early")])
    produce(bootstrap, left, [event(0, name="alone"), event(1, name="met")])
    produce(bootstrap, right, [event(2, name="met")])
    query = start(
        joined, tmp_path / "checkpoint", lambda batch, _number: rows.extend(batch.collect())
    )
    try:
        eventually(
            lambda: len(rows) == 2 or not query.isActive, what="both rows", within_s=2 * WITHIN_S
        )
        assert query.exception() is None
    finally:
        query.stop()
    assert {row.name: row.at and row.at.second for row in rows} == {"met": 2, "alone": None}


# Frames


@OURS_ALONE
def test_a_frame_knows_its_event_time_through_projections(
    job: Callable[..., Runs], spark: SparkSession
) -> None:
    runs = job()
    for frame in (
        stream_frame(spark, runs.declared, runs.reading),
        batch_frame(spark, runs.declared, runs.reading),
    ):
        assert event_time_of(frame.filter("name = 'x'").select("at")) == "at"
        assert event_time_of(frame.select("name")) is None
        later = frame.withColumn("later", F.expr("at + INTERVAL 1 DAY"))
        assert event_time_of(mark_event_time(later, "later")) == "later"


def test_a_table_is_a_changelog_and_its_first_batch_holds_all_of_it(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    table = DeclaredTable(
        name=topic, schema=schema_from_ddl("id BIGINT, name STRING NOT NULL"), key=("id",)
    )
    records = [
        Sent(value=b'{"id": 1, "name": "ada"}', key=b"1"),
        Sent(value=b'{"id": 2, "name": "bob"}', key=b"2"),
        Sent(value=None, key=b"1"),
        Sent(value=None, key=b'{"id": 2}'),
        Sent(value=None, key=b"nobody"),
        Sent(value=b'{"name": "nameless"}', key=b"3"),
        clock(0),
    ]
    produce(bootstrap, topic, records)
    expected = [
        (1, "ada", "upsert", 0),
        (2, "bob", "upsert", 1),
        (1, None, "delete", 2),
        (2, None, "delete", 3),
    ]
    reading = Reading(brokers=bootstrap, records_max=1)
    history = batch_frame(spark, table, reading).orderBy("_order").collect()
    assert [tuple(row) for row in history] == expected
    batches = run_to_the_end(stream_frame(spark, table, reading), tmp_path / "checkpoint")
    assert [sorted(map(tuple, batch), key=lambda row: row[3]) for batch in batches] == [expected]
    assert count_letters(TopicRead(brokers=bootstrap, topics=(topic,)), topic) == 2


@OURS_ALONE
def test_a_topic_without_a_schema_has_the_raw_columns(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, [Sent(value=b"v"), clock(0)])
    frame = batch_frame(spark, DeclaredTopic(name=topic), Reading(brokers=bootstrap))
    assert [row.value for row in frame.orderBy("offset").collect()] == [b"v", None]
