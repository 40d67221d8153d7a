"""What is equal in a join's key, the same for every join: nulls match nothing, also not in a part
of a key; NaN is itself and -0.0 is 0.0. And which columns a join has of those it was joined on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.processing.operators import joins
from millstream.processing.operators.changelog_columns import mark_key
from millstream.processing.reading.event_time import mark_event_time
from tests.spark.feeds import Feed, noon, run_to_the_end

KEY = ["k", "s"]
LEFT, RIGHT = "k DOUBLE, s STRING, l INT, at TIMESTAMP", "k DOUBLE, s STRING, r INT, at TIMESTAMP"
LEFT_KEYS = [(float("nan"), "a"), (-0.0, "a"), (None, "a"), (1.0, None), (None, None), (2.0, "b")]
RIGHT_KEYS = [(float("nan"), "a"), (0.0, "a"), (None, "a"), (1.0, None), (None, None), (3.0, "b")]
MATCHES = {(0, 0), (1, 1)}
HOWS: list[Any] = ["inner", "left", "right", "full"]


def expected(how: str) -> set[tuple[int | None, int | None]]:
    alone: set[tuple[int | None, int | None]] = set()
    if how in ("left", "full"):
        alone |= {(place, None) for place in range(2, 6)}
    if how in ("right", "full"):
        alone |= {(None, place) for place in range(2, 6)}
    return MATCHES | alone


def side(keys: list[Any], number: str) -> list[dict[str, Any]]:
    return [{"k": k, "s": s, number: place, "at": noon(0)} for place, (k, s) in enumerate(keys)]


def static(spark: SparkSession, keys: list[Any], number: str) -> DataFrame:
    rows = [(k, s, place) for place, (k, s) in enumerate(keys)]
    frame = spark.createDataFrame(rows, f"k DOUBLE, s STRING, {number} INT")
    return mark_event_time(frame.withColumn("at", F.lit(noon(0)).cast("timestamp")), "at")


def pairs_of(frame: DataFrame) -> set[Any]:
    return {(row["l"], row["r"]) for row in frame.collect()}


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return static(spark, LEFT_KEYS, "l"), static(spark, RIGHT_KEYS, "r")


def as_table(frame: DataFrame, key: Any) -> DataFrame:
    changes = frame.withColumns({"_change": F.lit("upsert"), "_order": F.lit(1).cast("bigint")})
    return mark_key(changes, key)


@pytest.mark.parametrize("how", HOWS)
def test_nulls_match_nothing_and_nan_itself_in_joins_of_equals(
    sides: tuple[DataFrame, DataFrame], how: Any
) -> None:
    left, right = sides
    assert pairs_of(joins.within(left, right, on=KEY, within="1 s", how=how)) == expected(how)
    tables = as_table(left.drop("at"), "l"), as_table(right.drop("at"), "r")
    assert pairs_of(joins.tables(*tables, on=KEY, how=how)) == expected(how)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_nulls_match_nothing_and_nan_itself_in_joins_with_a_table(
    sides: tuple[DataFrame, DataFrame], how: Any
) -> None:
    left, right = sides[0], as_table(sides[1], KEY)
    assert pairs_of(joins.enrich(left, right, on=KEY, how=how)) == expected(how)
    dated = joins.as_of(left, right, on=KEY, at="at", versions="at", how=how)
    assert pairs_of(dated) == expected(how)


def test_a_full_join_of_streams_matches_no_nulls(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own would match them with each other."""
    left, right = Feed(spark, tmp_path / "left", LEFT), Feed(spark, tmp_path / "right", RIGHT)
    beat = {"beat": noon(60), "at": noon(60)}
    for feed, rows in ((left, side(LEFT_KEYS, "l")), (right, side(RIGHT_KEYS, "r"))):
        feed.add(*rows)
        feed.add(beat)
        feed.add()
    streams = [feed.stream(event_time="at") for feed in (left, right)]
    joined = joins.within(*streams, on=KEY, within="1 s", how="full")
    found = run_to_the_end(joined, tmp_path / "checkpoint").rows
    assert {(row["l"], row["r"]) for row in found} == expected("full")
    assert len(found) == len(expected("full"))


# Columns


def test_every_join_keeps_both_columns_of_two_names_and_one_of_one(
    sides: tuple[DataFrame, DataFrame],
) -> None:
    left = sides[0].select("l", "k", "at")
    right = sides[1].select("r", F.col("k").alias("of"), "at")
    table = as_table(left, "l")
    calls: list[Callable[[DataFrame, Any, str], DataFrame]] = [
        lambda right, on, _: joins.within(left, right, on=on, within="1 s"),
        lambda right, on, key: joins.enrich(left, as_table(right, key), on=on),
        lambda right, on, key: joins.as_of(left, as_table(right, key), on=on, versions="at"),
        lambda right, on, key: joins.tables(table, as_table(right, key), on=on),
    ]
    for join in calls:
        assert {"k", "of"} <= set(join(right, {"k": "of"}, "of").columns)
        joined = join(right.withColumnRenamed("of", "k"), "k", "k")
        assert [name for name in joined.columns if name.startswith("k")] == ["k"]


@pytest.mark.parametrize("how", HOWS)
def test_a_row_alone_has_a_null_in_the_other_sides_column(
    sides: tuple[DataFrame, DataFrame], how: Any
) -> None:
    left = sides[0].select("l", "k", "at").filter("k = 2")
    right = sides[1].select("r", F.col("k").alias("of"), "at").filter("k = 3")
    near = joins.within(left, right, on={"k": "of"}, within="1 s", how=how)
    tables = as_table(left, "l"), as_table(right, "r")
    joined = joins.tables(*tables, on={"k": "of"}, how=how)
    alone = {"inner": [], "left": [(2.0, None)], "right": [(None, 3.0)]}
    both = sorted([(2.0, None), (None, 3.0)], key=str)
    for frame in (near, joined):
        found = sorted(((row["k"], row["of"]) for row in frame.collect()), key=str)
        assert found == alone.get(how, both)
