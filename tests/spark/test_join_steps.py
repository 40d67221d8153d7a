"""Two streams in real Spark by the step table of Kafka Streams, each step a batch of its own."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millstream.processing.operators import joins
from millstream.processing.operators.stream_join import How
from tests.golden.join_steps import JoinStep, join_steps
from tests.spark.feeds import Feed, noon, run_to_the_end

SCHEMA = "k STRING, v STRING, at TIMESTAMP"
# From here on, time decides. Spark gives a row alone when the watermark is beyond its time, Kafka
# Streams when it has reached it: a millisecond more, and a batch to show what that brought about.
TIMED_FROM = 40


@pytest.mark.full
@pytest.mark.parametrize(("join", "how"), [("inner", "inner"), ("left", "left"), ("outer", "full")])
def test_every_step_gives_what_kafka_streams_gives(
    spark: SparkSession, tmp_path: Path, join: str, how: How
) -> None:
    left, right = Feed(spark, tmp_path / "left", SCHEMA), Feed(spark, tmp_path / "right", SCHEMA)
    steps = join_steps("two_streams")
    for step in steps:
        left.add(*rows_of(step, step.left))
        right.add(*rows_of(step, step.right))
        if step.time >= TIMED_FROM:
            for feed in (left, right):
                feed.add(beat(step.time + 0.001))
                feed.add()
    streams = [feed.stream(event_time="at", lateness="5 seconds") for feed in (left, right)]
    joined = joins.within(*streams, on="k", within="15 seconds", how=how)
    batches = run_to_the_end(joined, tmp_path / "checkpoint").batches
    for step in steps:
        taken = 3 if step.time >= TIMED_FROM else 1
        given = [pair_of(row) for batch in batches[:taken] for row in batch]
        assert sorted(given) == step.answers[join], f"at {step.time}"
        del batches[:taken]
    assert not any(batches)


def rows_of(step: JoinStep, value: str | None) -> list[dict[str, Any]]:
    """Both sides hear of the time, as an idle one does; a record without a value is no row."""
    at = noon(step.time)
    rows = [] if value in (None, "null") else [{"k": "key", "v": value, "at": at}]
    return [*rows, beat(step.time)]


def beat(time: float) -> dict[str, Any]:
    return {"beat": noon(time), "at": noon(time)}


def pair_of(row: Row) -> str:
    return f"{row.v or '-'}{row.v_right or '-'}"
