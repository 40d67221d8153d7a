"""Devices with wrong clocks, in real Spark: as a stream in batches and as a static frame."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from millstream.base.declared import BadDeclaration
from millstream.processing.operators.clock_skew import correct_clock
from millstream.processing.reading.event_time import event_time_of
from tests.spark.feeds import Feed, noon, run_to_the_end, seconds_of

SCHEMA = (
    "device STRING, at TIMESTAMP, sent_at TIMESTAMP, received_at TIMESTAMP, happened DOUBLE, "
    "note STRUCT<text: STRING, digits: DECIMAL(38,0)>"
)
DELAY_MAX_S = 60
DIGITS = 12345678901234567890123456789012345678


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "readings", SCHEMA)


def reading(device: str, happened: float, *, kept_s: float, delay_s: float, skew_s: float) -> Any:
    """Happened at a true time, which the device's clock shows as `skew_s` later."""
    return {
        "device": device,
        "at": noon(happened + skew_s),
        "sent_at": noon(happened + kept_s + skew_s),
        "received_at": noon(happened + kept_s + delay_s),
        "happened": happened,
        "note": {"text": device, "digits": DIGITS},
    }


def random_readings(seed: int) -> list[Any]:
    chance = random.Random(seed)
    readings = []
    for number in range(20):
        skew_s = chance.choice([0, -86_400, 3_600, 0.25])
        readings += [
            reading(
                f"device-{number}",
                chance.randrange(600),
                kept_s=chance.choice([0, 0, 45]),
                delay_s=chance.randrange(DELAY_MAX_S * 1000) / 1000,
                skew_s=skew_s,
            )
            for _count in range(chance.randrange(1, 12))
        ]
    return sorted(readings, key=lambda one: str(one["received_at"]))


def corrected(frame: DataFrame) -> DataFrame:
    return correct_clock(frame, delay_max=DELAY_MAX_S, slots=4)


def in_order(rows: Sequence[Row]) -> list[str]:
    return sorted(map(repr, rows))


def test_a_stream_in_batches_and_a_static_frame_are_within_the_bounds_and_keep_the_order(
    feed: Feed, tmp_path: Path
) -> None:
    readings = random_readings(seed=3)
    feed.add(*readings[:30])
    feed.add(*readings[30:60])
    rows = run_to_the_end(corrected(feed.stream()), tmp_path / "checkpoint", mode="update").rows
    feed.add(*readings[60:])
    rows += run_to_the_end(corrected(feed.stream()), tmp_path / "checkpoint", mode="update").rows
    assert len(rows) == len(readings)
    for row in rows:
        at = seconds_of(row.corrected_at)
        assert at is not None
        assert at - row.uncertainty_ms / 1000 <= row.happened <= at
        assert (row.clock_restarts, row.note.digits) == (0, DIGITS)
    assert reordered(rows, "corrected_at") == 0
    assert in_order(corrected(feed.static()).collect()) == in_order(rows)


def reordered(rows: Sequence[Row], time: str) -> int:
    """How many pairs of a device's events have another order by `time` than by its clock."""
    return sum(
        one["at"] < other["at"] and one[time] > other[time]
        for one in rows
        for other in rows
        if one.device == other.device
    )


def test_the_naive_formula_reorders_what_this_keeps(feed: Feed) -> None:
    feed.add(*random_readings(seed=3))
    frame = corrected(feed.static())
    naive = frame.selectExpr("*", "at + (received_at - sent_at) AS naive_at").collect()
    assert reordered(naive, "naive_at") > 0
    assert reordered(naive, "corrected_at") == 0


def test_a_clock_that_was_set_anew_and_a_row_without_a_time(feed: Feed) -> None:
    before = [reading("ada", at, kept_s=0, delay_s=1, skew_s=0) for at in (0, 10)]
    after = [reading("ada", at, kept_s=0, delay_s=2, skew_s=7200) for at in (20, 30)]
    lost = {"device": "ada", "at": noon(5), "received_at": noon(25)}
    feed.add(*before, *after, lost)
    frame = corrected(feed.static())
    assert event_time_of(frame) == "corrected_at"
    rows = frame.orderBy("received_at").collect()
    told = [(seconds_of(row.corrected_at), row.clock_restarts) for row in rows]
    assert told == [(1, 0), (11, 0), (22, 1), (25, 1), (32, 1)]


def test_what_is_missing_is_named(feed: Feed) -> None:
    frame = feed.static()
    with pytest.raises(BadDeclaration, match="there is no column sent: the frame has device, at"):
        correct_clock(frame, sent="sent")
    with pytest.raises(BadDeclaration, match="event='happened' is double: cast it"):
        correct_clock(frame, event="happened")
    with pytest.raises(BadDeclaration, match="there is a column uncertainty_ms already"):
        correct_clock(frame.selectExpr("*", "1 AS uncertainty_ms"))
