"""Joins in real Spark: of streams, and of streams with tables."""

import random
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration
from millstream.processing.operators import joins
from millstream.processing.operators.changelog_columns import mark_key
from millstream.processing.reading.event_time import mark_event_time
from tests.spark.feeds import Feed, noon, run_to_the_end, seconds_of

AD = "ad_id STRING, at TIMESTAMP"
TABLE = "customer STRING, name STRING, _change STRING, _order BIGINT"
ORDER = "order_id INT, customer STRING, at TIMESTAMP"
RATE = "country STRING, since TIMESTAMP, percent INT, _change STRING, _order BIGINT"
SALE = "sale_id INT, country STRING, at TIMESTAMP"

SPAN_S = 10
FULL: Any = "full"
Sent = tuple[str, int]
Pair = tuple[Any, ...]


def beat(seconds: float) -> dict[str, Any]:
    return {"beat": noon(seconds), "at": noon(seconds)}


# Two streams


def joined_pairs(rows: Iterable[Row]) -> Counter[Pair]:
    return Counter((row.ad_id, seconds_of(row.at), seconds_of(row.at_right)) for row in rows)


def naive_join(lefts: list[Sent], rights: list[Sent]) -> Counter[Pair]:
    """Every pair that is near, and whatever is left alone."""
    near = [(left, right) for left in lefts for right in rights if is_near(left, right)]
    pairs: Counter[Pair] = Counter((left[0], left[1], right[1]) for left, right in near)
    met = [{left for left, _ in near}, {right for _, right in near}]
    pairs.update((*left, None) for left in lefts if left not in met[0])
    pairs.update((right[0], None, right[1]) for right in rights if right not in met[1])
    return pairs


def is_near(left: Sent, right: Sent) -> bool:
    return left[0] == right[0] and abs(left[1] - right[1]) <= SPAN_S


def of_join(how: str, pairs: Counter[Pair]) -> Counter[Pair]:
    """Who may be alone in it."""
    alone = {"inner": (), "left": ("left",), "right": ("right",), "full": ("left", "right")}[how]
    who = {pair: "left" if pair[2] is None else "right" for pair in pairs if None in pair}
    return Counter({pair: n for pair, n in pairs.items() if pair not in who or who[pair] in alone})


@pytest.mark.parametrize(
    "how",
    [
        "full",
        pytest.param("inner", marks=pytest.mark.full),
        pytest.param("left", marks=pytest.mark.full),
        pytest.param("right", marks=pytest.mark.full),
    ],
)
def test_two_streams_in_any_batches_join_as_static_frames_do(
    spark: SparkSession, tmp_path: Path, how: Any
) -> None:
    """Random rows of many keys in batches that are out of order by less than the lateness."""
    chance = random.Random(7)
    feeds = [Feed(spark, tmp_path / name, AD) for name in ("shown", "clicked")]
    sent: list[list[Sent]] = [[], []]
    for number in range(3):
        for feed, rows in zip(feeds, sent, strict=True):
            span = range(number * 30, number * 30 + 30)
            new = [(f"ad{chance.randrange(8)}", chance.choice(span)) for _ in range(20)]
            feed.add(*({"ad_id": ad, "at": noon(at)} for ad, at in new))
            rows += new
    for feed in feeds:
        feed.add(beat(1000))
    streams = [feed.stream(event_time="at", lateness="30 seconds") for feed in feeds]
    statics = [feed.static(event_time="at") for feed in feeds]
    stream = joins.within(*streams, on="ad_id", within="10 seconds", how=how)
    static = joins.within(*statics, on="ad_id", within="10 seconds", how=how)
    expected = of_join(how, naive_join(*sent))
    assert joined_pairs(static.collect()) == expected
    assert joined_pairs(run_to_the_end(stream, tmp_path / "checkpoint").rows) == expected


def test_a_time_before_and_a_time_after_are_told_apart(spark: SparkSession) -> None:
    left = marked(spark, [(1, "a", 100)], "id INT, ad_id STRING, at INT")
    right = marked(spark, [("a", at) for at in (89, 90, 100, 105, 106)], "ad_id STRING, at INT")
    rows = joins.within(left, right, on="ad_id", within=("10 seconds", "5 seconds")).collect()
    assert sorted(str(seconds_of(row.at_right)) for row in rows) == ["100.0", "105.0", "90.0"]


def marked(spark: SparkSession, rows: list[Any], schema: str) -> DataFrame:
    """A static frame with event time, given in seconds after noon."""
    frame = spark.createDataFrame(rows, schema)
    seconds = F.lit(noon(0)).cast("timestamp").cast("bigint") + F.col("at")
    return mark_event_time(frame.withColumn("at", F.timestamp_seconds(seconds)), "at")


# A stream and a table


@pytest.mark.parametrize(
    ("how", "as_they_came", "at_the_end"),
    [
        (
            "left",
            "1 Ada, 2 Bob, 3 None, 4 None, 5 Robert",
            "1 None, 2 Robert, 3 None, 4 None, 5 Robert",
        ),
        ("inner", "1 Ada, 2 Bob, 5 Robert", "2 Robert, 5 Robert"),
    ],
    ids=["left", "inner"],
)
def test_a_stream_is_enriched_with_the_table_as_it_is(
    spark: SparkSession, tmp_path: Path, how: Any, as_they_came: str, at_the_end: str
) -> None:
    orders = Feed(spark, tmp_path / "orders", ORDER)
    customers = Feed(spark, tmp_path / "customers", TABLE)
    orders.add(order(1, "ada", 1), order(2, "bob", 2), order(3, None, 3))
    customers.add(customer("bob", "Bob", 1), customer("ada", "Ada", 0), customer("bob", "B.", 0))
    orders.add(order(4, "ada", 4), order(5, "bob", 5))
    customers.add(customer("ada", None, 1), customer("bob", "Robert", 2))
    streams = orders.stream(event_time="at"), customers.stream()
    stream = joins.enrich(*streams, on="customer", how=how)
    assert stream.columns == ["order_id", "customer", "at", "name"]
    assert names_of(run_to_the_end(stream, tmp_path / "checkpoint").rows) == as_they_came
    statics = orders.static(event_time="at"), customers.static()
    assert names_of(joins.enrich(*statics, on="customer", how=how).collect()) == at_the_end


def names_of(rows: Iterable[Row]) -> str:
    return ", ".join(sorted(f"{row.order_id} {row.name}" for row in rows))


def order(order_id: int, customer: str | None, at: float) -> dict[str, Any]:
    return {"order_id": order_id, "customer": customer, "at": noon(at)}


def customer(key: str, name: str | None, change: int) -> dict[str, Any]:
    row = {"customer": key, "_order": change}
    return row | ({"_change": "upsert", "name": name} if name else {"_change": "delete"})


def test_a_row_waits_for_the_tables_row_and_no_longer(spark: SparkSession, tmp_path: Path) -> None:
    orders = Feed(spark, tmp_path / "orders", ORDER)
    customers = Feed(spark, tmp_path / "customers", TABLE)
    orders.add(order(1, "ada", 10), order(2, "eve", 10))
    customers.add()
    orders.add(beat(39))
    customers.add()
    orders.add()
    customers.add(customer("ada", "Ada", 0))
    orders.add(beat(40))
    customers.add()
    orders.add()
    customers.add()
    orders.add()
    customers.add(customer("eve", "Eve", 0))
    streams = orders.stream(event_time="at"), customers.stream()
    waiting = joins.enrich(*streams, on="customer", wait="30 seconds")
    batches = run_to_the_end(waiting, tmp_path / "checkpoint").batches
    assert [names_of(batch) for batch in batches] == ["", "", "1 Ada", "", "2 None", ""]


def test_an_enriched_stream_is_counted_in_windows(spark: SparkSession, tmp_path: Path) -> None:
    orders = Feed(spark, tmp_path / "orders", ORDER)
    customers = Feed(spark, tmp_path / "customers", TABLE)
    orders.add(order(1, "ada", 1), order(2, "ada", 2), order(3, "ada", 61))
    customers.add(customer("ada", "Ada", 0))
    enriched = joins.enrich(orders.stream(event_time="at"), customers.stream(), on="customer")
    counted = enriched.groupBy(F.window("at", "1 minute"), "name").count()
    rows = run_to_the_end(counted, tmp_path / "checkpoint").rows
    assert [(row.name, row["count"]) for row in rows] == [("Ada", 2)]


# As of then


def sale(sale_id: int, country: str, at: float) -> dict[str, Any]:
    return {"sale_id": sale_id, "country": country, "at": noon(at)}


def rate(country: str, since: float, percent: int | None, change: int) -> dict[str, Any]:
    row = {"country": country, "since": noon(since), "_order": change}
    return row | ({"_change": "upsert", "percent": percent} if percent else {"_change": "delete"})


def test_a_sale_gets_the_rate_of_its_time_once(spark: SparkSession, tmp_path: Path) -> None:
    sales, rates = Feed(spark, tmp_path / "sales", SALE), Feed(spark, tmp_path / "rates", RATE)
    rates.add(rate("de", -100, 16, 0), rate("de", 50, 19, 1))
    sales.add(sale(1, "de", 49), sale(2, "de", 50), sale(3, "fr", 10))
    rates.add(rate("fr", 5, 20, 0))
    sales.add(beat(45), sale(4, "de", 60))
    rates.add()
    sales.add(beat(100))
    rates.add()
    sales.add()
    rates.add(rate("de", 55, 7, 2), rate("es", 1, 21, 0))
    sales.add(sale(5, "de", 200), beat(300))
    frames = sales.stream(event_time="at"), rates.stream()
    run = run_to_the_end(
        joins.as_of(*frames, on="country", at="at", versions="since"), tmp_path / "checkpoint"
    )
    answers = sorted((row.sale_id, row.percent) for row in run.rows)
    assert answers == [(1, 16), (2, 19), (3, 20), (4, 19), (5, 7)]
    assert run.counts["late_versions"] == 1, "one came after the sale that it was for"
    statics = sales.static(event_time="at"), rates.static()
    static = joins.as_of(*statics, on="country", versions="since").collect()
    in_time = {(row.sale_id, row.percent) for row in static}
    assert in_time == {(1, 16), (2, 19), (3, 20), (4, 7), (5, 7)}


@pytest.mark.parametrize("how", ["inner", pytest.param("left", marks=pytest.mark.full)])
def test_corrected_sales_end_as_static_frames_do_in_any_batches_and_over_a_restart(
    spark: SparkSession, tmp_path: Path, how: Any
) -> None:
    """Rates of twenty countries come, change and go before, with and after the sales."""
    sales, rates = Feed(spark, tmp_path / "sales", SALE), Feed(spark, tmp_path / "rates", RATE)
    chance = random.Random(11)
    view: dict[int, int | None] = {}
    for part in range(2):
        for number in range(2):
            sales.add(*(random_sale(chance, part, number, n) for n in range(30)))
            rates.add(*(random_rate(chance, part * 200 + number * 50 + n) for n in range(30)))
        frames = sales.stream(event_time="at"), rates.stream()
        corrected = joins.as_of(
            *frames, on="country", versions="since", late_versions="correct", keep="1 hour", how=how
        )
        run = run_to_the_end(corrected, tmp_path / "checkpoint")
        for batch in run.batches:
            assert len(batch) == len({row.sale_id for row in batch}), "the net change of a batch"
            apply_changes(view, batch)
    statics = sales.static(event_time="at"), rates.static()
    static = joins.as_of(*statics, on="country", versions="since", how=how).collect()
    assert view == {row.sale_id: row.percent for row in static}
    assert run.counts["late_versions"] == 0


def random_sale(chance: random.Random, part: int, number: int, n: int) -> dict[str, Any]:
    time = part * 100 + number * 50
    return sale(time * 100 + n, f"c{chance.randrange(20)}", chance.randrange(time, time + 50))


def random_rate(chance: random.Random, change: int) -> dict[str, Any]:
    percent = chance.choice([None, 7, 16, 19])
    return rate(f"c{chance.randrange(20)}", chance.randrange(0, 200, 10), percent, change)


def apply_changes(view: dict[int, int | None], rows: Iterable[Row]) -> None:
    for row in rows:
        if row["_change"] == "delete":
            del view[row.sale_id]
        else:
            view[row.sale_id] = row.percent


# What cannot be joined


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda s, t: joins.enrich(s, t, on="id"), "on='id' is no column of the left side"),
        (lambda s, t: joins.enrich(s, t, on=[]), "on is empty"),
        (lambda s, t: joins.enrich(s, t, on="country", how=FULL), "one of left, inner"),
        (lambda s, t: joins.enrich(s, s, on="country"), "the right side is no table"),
        (lambda s, t: joins.enrich(s, t, on="country", wait="1 minute"), "goes by event time"),
        (lambda s, t: joins.as_of(s, t, on="country", at="at"), "versions=None: name the column"),
        (lambda s, t: joins.as_of(s, t, on="country", at="on"), "at='on' is no column"),
        (lambda s, t: joins.within(s, s, on="country", within="1s"), "left side has no event time"),
    ],
)
def test_a_join_that_cannot_be_says_why(spark: SparkSession, wrong: Any, reason: str) -> None:
    sales, rates = spark.createDataFrame([], SALE), spark.createDataFrame([], RATE)
    with pytest.raises(BadDeclaration, match=re.escape(reason)):
        wrong(sales, rates)


@pytest.mark.parametrize(
    "join", [joins.enrich, partial(joins.as_of, at="at", versions="since")], ids=["now", "then"]
)
def test_a_table_is_joined_by_its_key_alone(spark: SparkSession, join: Any) -> None:
    sales, rates = spark.createDataFrame([], SALE), spark.createDataFrame([], RATE)
    with pytest.raises(BadDeclaration, match=r"is not the key of the table \(percent\)"):
        join(sales, mark_key(rates, "percent"), on="country")


def test_a_stream_is_asked_as_of_its_event_time_alone(spark: SparkSession, tmp_path: Path) -> None:
    sales, rates = Feed(spark, tmp_path / "sales", SALE), Feed(spark, tmp_path / "rates", RATE)
    with pytest.raises(BadDeclaration, match="is not the event time of the stream"):
        joins.as_of(sales.stream(), rates.stream(), on="country", at="at", versions="since")
