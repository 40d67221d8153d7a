"""Scripts of steps, as an application's tests write them: over real topics and real Spark."""

import re
import traceback
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic, EventTime
from millstream.base.errors import Rejected
from millstream.processing.jobs.prepared_job import FunctionRaised
from millstream.processing.operators import changelog, windows
from millstream.processing.steps.query import CrashPoint
from millstream.processing.steps.script import BadStep, JobFailed, NotAsExpected
from millstream.processing.steps.stage import Stage
from millstream.schemas.ddl import schema_from_ddl

CLICKS = DeclaredTopic(
    name="clicks",
    schema=schema_from_ddl("url STRING, user BIGINT, at TIMESTAMP"),
    event_time=EventTime(column="at", lateness_ms=10_000),
)
USERS = DeclaredTable(
    name="users", schema=schema_from_ddl("id BIGINT NOT NULL, name STRING"), key=("id",)
)


def clicks_by_url(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("url").agg(F.count("*").alias("clicks"))


def clicks_a_minute(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(F.window("at", "1 minute"), "url").agg(F.count("*").alias("clicks"))


def names(users: DataFrame) -> DataFrame:
    return users


def test_rows_that_were_added_are_in_the_output(millstream_steps: Stage) -> None:
    steps = millstream_steps(clicks_by_url, inputs=[CLICKS], key="url")
    steps.add("clicks", {"url": "/a", "at": "12:00"}, {"url": "/b", "at": "12:00:05"})
    steps.run()
    steps.expect([{"url": "/a", "clicks": 1}, {"url": "/b", "clicks": 1}])
    steps.add("clicks", {"url": "/a", "at": "12:00:07.5"})
    steps.expect([{"url": "/a", "clicks": 2}, {"url": "/b", "clicks": 1}])
    steps.expect_same_as_batch()


def test_a_window_closes_when_time_has_advanced(millstream_steps: Stage) -> None:
    steps = millstream_steps(clicks_a_minute, inputs=[CLICKS], key=["window", "url"], mode="append")
    steps.add("clicks", {"url": "/a", "at": "12:00"}, {"url": "/a", "at": "12:00:59"})
    steps.expect([])
    steps.advance("clicks", "12:01")
    steps.expect([{"window": ("12:00", "12:01"), "url": "/a", "clicks": 2}])


def test_a_late_row_is_judged_by_the_time_before_it(millstream_steps: Stage) -> None:
    steps = millstream_steps(clicks_a_minute, inputs=[CLICKS], key=["window", "url"])
    steps.add("clicks", {"url": "/a", "at": "12:00"})
    steps.advance("clicks", "12:05")
    steps.add("clicks", {"url": "/late", "at": "12:04:59.999"}, {"url": "/b", "at": "12:05"})
    steps.expect(
        [
            {"window": ("12:00", "12:01"), "url": "/a", "clicks": 1},
            {"window": ("12:05", "12:06"), "url": "/b", "clicks": 1},
        ]
    )


def test_a_row_of_a_table_is_replaced_and_deleted(millstream_steps: Stage) -> None:
    steps = millstream_steps(names, inputs=[USERS], key="id")
    steps.add("users", {"id": 1, "name": "ada"}, {"id": 2, "name": "bob"})
    steps.run()
    steps.add("users", {"id": 1, "name": "Ada"})
    steps.delete("users", {"id": 2})
    steps.expect([{"id": 1, "name": "Ada"}])


@pytest.mark.parametrize("point", ["before write", "after write"])
def test_a_batch_that_crashed_counts_once(millstream_steps: Stage, point: CrashPoint) -> None:
    steps = millstream_steps(clicks_by_url, inputs=[CLICKS], key="url")
    steps.add("clicks", {"url": "/a", "at": "12:00"})
    steps.crash(point)
    assert len(steps.rows()) == (point == "after write")
    steps.expect([{"url": "/a", "clicks": 1}])
    steps.add("clicks", {"url": "/a", "at": "12:01"})
    steps.expect([{"url": "/a", "clicks": 2}])


def test_a_difference_is_shown_as_a_table(millstream_steps: Stage) -> None:
    steps = millstream_steps(clicks_by_url, inputs=[CLICKS], key="url")
    steps.add("clicks", {"url": "/a", "at": "12:00"}, {"url": "/a"})
    with pytest.raises(NotAsExpected, match=r"- +/a +2 +expected, and not there") as found:
        steps.expect([{"url": "/a", "clicks": 2}])
    reason = "clicks: it has no event time: at is null"
    assert str(found.value).endswith(f"\n\n1 record reached no operator:\n  {reason}")


def test_time_advances_beyond_the_wall_clock(millstream_steps: Stage) -> None:
    steps = millstream_steps(clicks_a_minute, inputs=[CLICKS], key=["window", "url"], mode="append")
    steps.add("clicks", {"url": "/a", "at": "12:00"})
    steps.advance("clicks", "2400-01-01T00:00:00Z")
    steps.expect([{"window": ("12:00", "12:01"), "url": "/a", "clicks": 1}])
    steps.add("clicks", {"url": "/b", "at": "2400-01-01T00:00:30Z"})
    steps.advance("clicks", "2400-01-01T00:01:00Z")
    then = ("2400-01-01T00:00:00Z", "2400-01-01T00:01:00Z")
    new = {"window": then, "url": "/b", "clicks": 1}
    steps.expect([{"window": ("12:00", "12:01"), "url": "/a", "clicks": 1}, new])
    with pytest.raises(BadDeclaration, match=r"clicks cannot be advanced to 1969.*after 1970"):
        steps.advance("clicks", "1969-01-01T00:00:00Z")


def in_two_sizes(short: DataFrame, long: DataFrame) -> DataFrame:
    """Each input is judged by its own windows."""
    of = {"n": windows.count()}
    minutes = windows.aggregate(short, windows.tumbling("1 minute"), of=of)
    return minutes.union(windows.aggregate(long, windows.tumbling("1 hour"), of=of))


def test_a_topic_that_two_parameters_name_comes_to_both(millstream_steps: Stage) -> None:
    inputs = {"short": CLICKS, "long": CLICKS}
    steps = millstream_steps(in_two_sizes, inputs=inputs, key="window")
    steps.add("clicks", {"url": "/a", "at": "12:00:10"})
    steps.advance("clicks", "12:01")
    steps.add("clicks", {"url": "/a", "at": "12:00:20"})
    minute, hour = ("12:00", "12:01"), ("12:00", "13:00")
    steps.expect([{"window": minute, "n": 1}, {"window": hour, "n": 2}])


def refused(clicks: DataFrame) -> DataFrame:
    return clicks.select(F.udf(lambda url: {"/b": "b"}[url], "string")("url").alias("url"))


def unknown_column(clicks: DataFrame) -> DataFrame:
    return clicks.select("uri")


def test_a_failure_is_one_sentence_without_the_stack_of_java(millstream_steps: Stage) -> None:
    raised: list[tuple[Any, type[Rejected], str]] = [
        (refused, JobFailed, r"refused failed: KeyError: '/a' \(at .*test_testing_kit\.py:\d+\)"),
        (unknown_column, FunctionRaised, r"job unknown_column: its function raised .*`uri`.*"),
    ]
    for function, error, sentence in raised:
        steps = millstream_steps(function, inputs=[CLICKS])
        steps.add("clicks", {"url": "/a", "at": "12:00"})
        with pytest.raises(error) as found:
            steps.run()
        assert re.fullmatch(sentence, str(found.value)), str(found.value)
        shown = "".join(traceback.format_exception(found.value))
        assert "org.apache.spark" not in shown
        assert "Py4J" not in shown


def greeted(clicks: DataFrame, users: DataFrame) -> DataFrame:
    """Rows of both, so that a batch tells which of them came together."""
    clicked = clicks.select(F.concat(F.lit("click "), "url").alias("what"))
    came = changelog.events(users)
    return clicked.union(came.select(F.concat(F.lit("user "), "name")))


def test_what_was_added_to_several_topics_is_in_one_batch(millstream_steps: Stage) -> None:
    steps = millstream_steps(greeted, inputs=[CLICKS, USERS])
    for number in range(3):
        steps.add("clicks", {"url": f"/{number}", "at": "12:00"})
        steps.add("users", {"id": number, "name": f"{number}"})
        steps.run()
        assert steps.batches() == number + 1
    steps.expect_changes(
        [{"what": f"{kind}{number}"} for kind in ("click /", "user ") for number in range(3)]
    )


def test_a_topic_that_the_job_does_not_read_is_named(millstream_steps: Stage) -> None:
    steps = millstream_steps(names, inputs=[USERS], key="id")
    with pytest.raises(BadStep, match="names does not read 'clicks', but users"):
        steps.add("clicks", {"url": "/a"})
    with pytest.raises(BadStep, match="nothing has run yet"):
        steps.expect([])
