"""What is late for an operator in real Spark: open windows take what is behind the watermark."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import DeclaredTopic, EventTime
from millstream.processing.jobs.plan_reader import read_plan
from millstream.processing.jobs.plan_uses import uses_of
from millstream.processing.operators import joins, windows
from millstream.processing.reading.event_time import mark_event_time
from millstream.processing.reading.last_use import BY_EVENT, LastUse, Uses
from millstream.processing.reading.late_events import count_late
from millstream.processing.steps.script import StepScript
from millstream.processing.steps.stage import Stage
from millstream.schemas.ddl import schema_from_ddl

SCHEMA = schema_from_ddl("user STRING, at TIMESTAMP")
# In order and with no lateness: the watermark is the greatest time of the batches before.
CLICKS = DeclaredTopic(
    name="clicks", schema=SCHEMA, event_time=EventTime(column="at", lateness_ms=0)
)
HOUR = ("12:00", "13:00")


def click(at: str, user: str = "ada") -> dict[str, Any]:
    return {"user": user, "at": at}


def late(steps: StepScript) -> int:
    counted = count_late(steps._brokers, {}, job=steps._reading.job)
    return sum(sum(by_fate.values()) for by_fate in counted.values())


def native(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(windows.tumbling("1 hour", "at")).agg(F.count("*").alias("n"))


def ours(clicks: DataFrame) -> DataFrame:
    return windows.aggregate(clicks, windows.tumbling("1 hour"), of={"n": windows.count()})


EPOCH = "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("job", [native, ours])
def test_an_open_window_takes_what_is_behind_the_watermark_and_a_closed_one_does_not(
    millstream_steps: Stage, job: Callable[..., DataFrame]
) -> None:
    steps = millstream_steps(job, inputs=[CLICKS], key="window")
    # Before there is a watermark nothing is late: Spark's first one, 0, is none.
    steps.add("clicks", click("12:10"), click(EPOCH))
    steps.run()
    steps.add("clicks", click("12:09:45"), click("12:10"), click("12:00"), click("13:00"))
    first = {"window": (EPOCH, "1970-01-01T01:00:00Z"), "n": 1}
    steps.expect([first, {"window": HOUR, "n": 4}, {"window": ("13:00", "14:00"), "n": 1}])
    # The watermark is exactly at the end of the window: it is over, and the next one is not.
    steps.add("clicks", click("12:59:59"), click("13:00"), click("11:00"))
    steps.expect([first, {"window": HOUR, "n": 4}, {"window": ("13:00", "14:00"), "n": 2}])
    assert late(steps) == 2


def hopping_in_grace(clicks: DataFrame) -> DataFrame:
    kind = windows.hopping("10 minutes", "5 minutes")
    return windows.aggregate(clicks, kind, of={"n": windows.count()}, grace="1 minute")


@pytest.mark.full
def test_an_event_counts_in_those_of_its_windows_that_are_open(millstream_steps: Stage) -> None:
    steps = millstream_steps(hopping_in_grace, inputs=[CLICKS], key="window")
    steps.add("clicks", click("12:07"))
    steps.advance("clicks", "12:10:59")
    steps.add("clicks", click("12:08"))
    early, later = ("12:00", "12:10"), ("12:05", "12:15")
    steps.expect([{"window": early, "n": 2}, {"window": later, "n": 2}])
    steps.advance("clicks", "12:11")
    steps.add("clicks", click("12:09"), click("12:04"))
    steps.expect([{"window": early, "n": 2}, {"window": later, "n": 3}])
    assert late(steps) == 1


def visits(clicks: DataFrame) -> DataFrame:
    of = {"n": windows.count()}
    return windows.aggregate(clicks, windows.session("10 minutes"), by="user", of=of)


@pytest.mark.full
def test_a_session_takes_an_event_that_would_be_an_open_session_alone(
    millstream_steps: Stage,
) -> None:
    steps = millstream_steps(visits, inputs=[CLICKS], key=["user", "session_start"])
    steps.add("clicks", click("12:00"), click("12:00", "bob"))
    steps.advance("clicks", "12:12")
    steps.add("clicks", click("12:05"), click("12:02", "bob"))
    ada = {"user": "ada", "session_start": "12:00", "session_end": "12:15", "n": 2}
    bob = {"user": "bob", "session_start": "12:00", "session_end": "12:10", "n": 1}
    steps.expect([ada, bob])
    assert late(steps) == 1


def counted_for_ever(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("user").agg(F.count("*").alias("n"))


def test_nothing_is_late_for_a_job_that_does_not_go_by_time(millstream_steps: Stage) -> None:
    steps = millstream_steps(counted_for_ever, inputs=[CLICKS], key="user")
    steps.add("clicks", click("1969-12-31T23:59:59Z"), click("1970-01-01T00:00:00Z"))
    steps.advance("clicks", "12:00")
    steps.add("clicks", click("11:00"), click("1970-01-01T00:00:00Z"))
    steps.expect([{"user": "ada", "n": 4}])
    assert late(steps) == 0


def by_day(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(F.to_date("at").alias("day")).agg(F.count("*").alias("n"))


@pytest.mark.full
def test_a_group_that_is_made_of_the_time_takes_every_event(millstream_steps: Stage) -> None:
    """Spark keeps such groups for ever: only a time or a window has a watermark."""
    steps = millstream_steps(by_day, inputs=[CLICKS], key="day")
    steps.add("clicks", click("12:10"))
    steps.run()
    steps.add("clicks", click("12:00"), click("12:30"))
    steps.run()
    assert [row["n"] for row in steps.rows()] == [3]
    assert late(steps) == 0


def in_with(clicks: DataFrame) -> DataFrame:
    clicks.createOrReplaceTempView("clicks_in_test")
    return clicks.sparkSession.sql(
        "WITH seen AS (SELECT * FROM clicks_in_test) "
        "SELECT window, count(*) AS n FROM seen GROUP BY window(at, '1 hour')"
    )


@pytest.mark.full
def test_what_is_late_for_a_query_with_with_is_counted(millstream_steps: Stage) -> None:
    steps = millstream_steps(in_with, inputs=[CLICKS], key="window")
    steps.add("clicks", click("13:10"))
    steps.run()
    steps.add("clicks", click("12:59"), click("13:00"))
    steps.expect([{"window": ("13:00", "14:00"), "n": 2}])
    assert late(steps) == 1


def unread(spark: SparkSession, name: str) -> DataFrame:
    """A stream to look at: no query is started."""
    stream = spark.readStream.name(name).format("rate").load()
    timed = stream.select(F.lit("ada").alias("user"), F.col("timestamp").alias("at"))
    return mark_event_time(timed.withWatermark("at", "0 seconds"), "at")


def unused(key: Any, frames: Any, state: Any) -> Any:
    return frames


def test_what_operators_use_is_read_off_real_plans(spark: SparkSession) -> None:
    clicks = unread(spark, "clicks")
    of = {"n": windows.count()}
    minute = 60_000_000

    def used(frame: DataFrame) -> Uses:
        (found,) = uses_of(read_plan(frame)).values()
        return found

    hopping = F.window("at", "5 minutes", "1 minute", "15 seconds")
    use = LastUse(span_us=5 * minute, every_us=minute, start_us=15_000_000)
    assert used(clicks.groupBy(hopping, "user").count()) == (use,)
    renamed = clicks.withColumnRenamed("at", "t").withColumn("w", F.window("t", "1 minute"))
    tumbling = LastUse(span_us=minute, every_us=minute)
    assert used(renamed.groupBy("w").count()) == (tumbling,)
    odd = clicks.withColumn("my-Time w", F.window("at", "1 minute"))
    assert used(odd.groupBy("my-Time w").count()) == (tumbling,)
    assert used(odd.groupBy(F.col("my-Time w").alias("w")).count()) == (tumbling,)
    assert used(odd.select("my-Time w", "user").dropDuplicates()) == (tumbling,)
    first = clicks.select(F.lit(1).alias("a-T"), "at")
    assert used(first.dropDuplicates()) == BY_EVENT
    assert used(in_with(clicks)) == (LastUse(span_us=60 * minute, every_us=60 * minute),)
    session = clicks.groupBy(F.session_window("at", "10 minutes")).count()
    assert used(session) == (LastUse(span_us=10 * minute),)
    hours = clicks.groupBy(F.window("at", "1 minute")).count()
    assert used(hours.groupBy(F.window("window", "1 hour")).count()) == (tumbling,)
    ours = windows.aggregate(clicks, windows.session("5 minutes"), of=of, grace="1 minute")
    assert used(ours) == (LastUse(span_us=6 * minute, from_1970=False),)
    by_state = clicks.groupBy("user").applyInPandasWithState
    of_state = ("n INT", "n INT", "append")
    assert used(by_state(unused, *of_state, "EventTimeTimeout")) == BY_EVENT
    assert used(by_state(unused, *of_state, "NoTimeout")) is None
    for alone in (
        clicks.dropDuplicates(["user", "at"]),
        clicks.dropDuplicatesWithinWatermark(["user"]),
        clicks.groupBy("at").count(),
    ):
        assert used(alone) == BY_EVENT
    for whole in (
        clicks,
        clicks.select("user").dropDuplicates(),
        clicks.groupBy("user").count(),
        clicks.groupBy(F.to_date("at")).count(),
        clicks.groupBy(F.date_trunc("hour", "at").alias("hour")).count(),
        clicks.groupBy(F.window("at", "1 hour").start.alias("start")).count(),
    ):
        assert used(whole) is None


def test_both_sides_of_a_join_of_streams_are_judged_alone(spark: SparkSession) -> None:
    sides = [unread(spark, name) for name in ("shown", "clicked")]
    joined = joins.within(*sides, on="user", within="1 minute")
    assert uses_of(read_plan(joined)) == {"shown": BY_EVENT, "clicked": BY_EVENT}
