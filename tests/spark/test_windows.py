"""Windows in real Spark: as streams with restarts, as static frames, against Spark's own."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration
from millstream.processing.operators import windows
from millstream.processing.operators.window_changes import Emit
from millstream.processing.reading.event_time import current_event_time, mark_event_time
from tests.spark.feeds import NOON, Feed, noon, run_to_the_end, seconds_of
from tests.support.naive_windows import naive_rows

SCHEMA = "user STRING, at TIMESTAMP, amount BIGINT"
OF = {
    "n": windows.count(),
    "total": windows.sum("amount"),
    "mean": windows.avg("amount"),
    "least": windows.min("amount"),
    "greatest": windows.max("amount"),
    "earliest": windows.first("amount"),
    "latest": windows.last("amount"),
    "every": windows.collect("amount"),
    "kinds": windows.count_distinct("amount"),
}
COUNTED = {"n": windows.count(), "total": windows.sum("amount")}
# Of one user, nothing is later than this after what it follows.
LATENESS = "2 minutes"
USERS = 30
NOON_US = round(NOON.timestamp()) * 1_000_000


def click(user: str, seconds: float, amount: int | None = 1) -> dict[str, Any]:
    return {"user": user, "at": noon(seconds), "amount": amount}


def beat(seconds: float) -> dict[str, Any]:
    return {"beat": noon(seconds), "at": noon(seconds)}


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "clicks", SCHEMA)


# Random events in random batches


def random_clicks(seed: int) -> list[dict[str, Any]]:
    """Many users in one run: a case for each, at the price of one."""
    chance = random.Random(seed)
    clicks = [
        click(f"user-{user}", chance.randrange(100), chance.choice([None, 2**62, *range(-3, 9)]))
        for user in range(USERS)
        for _number in range(chance.randrange(1, 9))
    ]
    # Their sum must fit.
    seen: set[str] = set()
    for one in clicks:
        if one["amount"] == 2**62:
            one["amount"] = 2**62 if one["user"] not in seen else 7
            seen.add(one["user"])
    chance.shuffle(clicks)
    return clicks


def naive_table(window: Any, clicks: list[dict[str, Any]]) -> list[Any]:
    rows = []
    for user in sorted({one["user"] for one in clicks}):
        events = [
            (microseconds(datetime.fromisoformat(one["at"])), one["amount"])
            for one in clicks
            if one["user"] == user
        ]
        found = naive_rows(window.kind, events)
        rows += [(user, start, end, *values) for start, end, values in found]
    return sorted(rows)


def microseconds(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def plain(row: Row, window: Any) -> tuple[Any, ...]:
    """(user, start, end, values...), whatever the window's columns are called."""
    if "window" in row:
        start, end = map(microseconds, row.window)
    elif "session_start" in row:
        start, end = microseconds(row.session_start), microseconds(row.session_end)
    else:
        end = microseconds(row["at"])
        start = end - window.kind.size_us
    return (row.user, start, end, *[row[name] for name in OF])


def final_table(rows: list[Row], window: Any) -> list[Any]:
    """Apply the changes, as a view would."""
    table: dict[tuple[Any, ...], Any] = {}
    inserted: Counter[str] = Counter()
    for row in rows:
        told = plain(row, window)
        change = row.asDict().get("_change", "upsert")
        if change in ("insert", "retract"):
            inserted[repr(told)] += 1 if change == "insert" else -1
        if change in ("upsert", "insert"):
            table[told[:2]] = told
        elif change == "delete" or repr(table.get(told[:2])) == repr(told):
            del table[told[:2]]
    assert set(inserted.values()) <= {0, 1}, "retracted what was not inserted"
    return sorted(table.values())


@pytest.mark.parametrize(
    ("window", "emit"),
    [
        pytest.param(lambda: windows.tumbling("10s", start="3s"), "upsert", id="tumbling-upsert"),
        pytest.param(lambda: windows.session("5s"), "retract", id="session-retract"),
        pytest.param(lambda: windows.sliding("10s"), "upsert", id="sliding-upsert"),
        pytest.param(
            lambda: windows.hopping("10s", "4s"),
            "final",
            id="hopping-final",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda: windows.session("5s"), "upsert", id="session-upsert", marks=pytest.mark.full
        ),
        pytest.param(
            lambda: windows.sliding("10s"), "final", id="sliding-final", marks=pytest.mark.full
        ),
    ],
)
def test_random_batches_and_a_restart_end_as_a_static_frame_and_as_the_naive_model(
    feed: Feed, tmp_path: Path, window: Any, emit: Emit
) -> None:
    clicks = random_clicks(seed=6)
    wanted = window()

    def aggregated(frame: DataFrame) -> DataFrame:
        return windows.aggregate(frame, window(), by="user", of=OF, emit=emit, slots=8)

    def run() -> list[Row]:
        stream = aggregated(feed.stream(event_time="at", lateness=LATENESS))
        return run_to_the_end(stream, tmp_path / "checkpoint", mode="update").rows

    cut = len(clicks) // 2
    feed.add(*clicks[: cut // 3])
    feed.add(*clicks[cut // 3 : cut])
    rows = run()
    feed.add(*clicks[cut:])
    if emit == "final":
        feed.add(beat(1000))
    rows += run()

    expected = naive_table(wanted, clicks)
    assert final_table(rows, wanted) == expected
    assert final_table(aggregated(feed.static(event_time="at")).collect(), wanted) == expected
    if emit == "final":
        assert len(rows) == len(expected), "each window once"


# Step by step


def test_a_late_event_corrects_and_state_goes_when_the_watermark_passes(
    feed: Feed, tmp_path: Path
) -> None:
    """Two sessions merge. Spark drops the last click, which would join them: it is late by then.

    For a stream that is not of our source, Spark's own line for the late is one batch behind.
    """
    feed.add(click("ada", 0), click("ada", 20))
    feed.add(click("ada", 10))
    feed.add(beat(200))
    feed.add(beat(201))
    feed.add(click("ada", 30))
    stream = windows.aggregate(
        feed.stream(event_time="at", lateness="1 minute"),
        windows.session("10s"),
        by="user",
        of={"n": windows.count()},
    )
    run = run_to_the_end(stream, tmp_path / "checkpoint", mode="update")
    told = [
        [(r["_change"], seconds_of(r.session_start), seconds_of(r.session_end), r.n) for r in batch]
        for batch in run.batches
        if batch
    ]
    assert told == [
        [("upsert", 0, 10, 1), ("upsert", 20, 30, 1)],
        [("upsert", 0, 30, 3), ("delete", 20, 30, 1)],
    ]


# Static frames, against Spark's own windows


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> Iterator[DataFrame]:
    rows = [
        (one["user"], datetime.fromisoformat(one["at"]), one["amount"])
        for one in random_clicks(seed=7)
    ]
    frame = spark.createDataFrame(rows, SCHEMA).where("abs(amount) < 100").cache()
    yield frame
    frame.unpersist()


def in_order(frame: DataFrame) -> list[Any]:
    return sorted(map(tuple, frame.collect()))


def test_fixed_windows_are_those_of_spark(clicks: DataFrame) -> None:
    for window in (
        windows.tumbling("10s", on="at"),
        windows.hopping("10s", "3s", on="at", start="1s"),
    ):
        ours = windows.aggregate(clicks, window, by="user", of=COUNTED)
        native = clicks.groupBy("user", window).agg(F.count("*"), F.sum("amount"))
        assert in_order(ours) == in_order(native)


def test_sessions_are_those_of_spark(clicks: DataFrame) -> None:
    ours = windows.aggregate(clicks, windows.session("5s", on="at"), by="user", of=COUNTED)
    native = clicks.groupBy("user", F.session_window("at", "5 seconds")).agg(
        F.count("*"), F.sum("amount")
    )
    spread = native.select("user", "session_window.*", "count(1)", "sum(amount)")
    assert in_order(ours.drop("_change")) == in_order(spread)


def test_sliding_windows_are_those_of_a_range_in_sql(clicks: DataFrame) -> None:
    ours = windows.aggregate(clicks, windows.sliding("10s", on="at"), by="user", of=COUNTED)
    at = F.unix_micros("at")
    over = Over.partitionBy("user").orderBy(at).rangeBetween(-10_000_000 + 1, 0)
    native = clicks.select(
        "user", "at", F.count("*").over(over).alias("n"), F.sum("amount").over(over).alias("total")
    )
    assert in_order(ours) == in_order(native.distinct())


def test_values_cross_into_python_and_back_unchanged(spark: SparkSession) -> None:
    """An hour of autumn that is there twice, digits that a float would lose, bytes, structs."""
    twice = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    schema = (
        "day DATE, since TIMESTAMP, at TIMESTAMP, number BIGINT, price DECIMAL(38,18), "
        "raw BINARY, pair STRUCT<a: INT, b: STRING>"
    )
    price = Decimal("12345678901234567890.123456789012345678")
    rows = [
        (NOON.date(), NOON, at, number, price, b"\x00\xff", (1, None))
        for at, number in zip(twice, (2**53 + 1, None), strict=True)
    ]
    frame = spark.createDataFrame(rows, schema)
    [row] = windows.aggregate(
        frame,
        windows.tumbling("1 day", on="at"),
        by=["day", "since"],
        of={
            "last_at": windows.max("at"),
            "number": windows.sum("number"),
            "price": windows.sum("price"),
            "raw": windows.collect("raw"),
            "pair": windows.first("pair"),
        },
    ).collect()
    assert (row.day, microseconds(row.since)) == (NOON.date(), NOON_US)
    assert microseconds(row.last_at) == microseconds(twice[1])
    twice_the_price = Decimal("24691357802469135780.246913578024691356")
    assert (row.number, row.price) == (2**53 + 1, twice_the_price)
    assert [*map(bytes, row.raw)] == [b"\x00\xff"] * 2
    assert (row.pair.a, row.pair.b) == (1, None)


def test_without_a_key_all_events_are_of_one(clicks: DataFrame) -> None:
    [row] = windows.aggregate(
        clicks, windows.tumbling("1 hour", on="at"), of={"n": windows.count()}
    ).collect()
    assert row.n == clicks.count()


def test_an_event_without_a_time_is_in_no_window(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("ada", None, 1), ("ada", NOON, 1)], SCHEMA)
    [row] = windows.aggregate(
        frame, windows.sliding("1s", on="at"), by="user", of=COUNTED
    ).collect()
    assert row.n == 1


def test_the_event_time_of_a_job_is_the_one_of_its_windows(clicks: DataFrame) -> None:
    token = current_event_time.set("at")
    try:
        assert clicks.groupBy(windows.tumbling("1 hour")).count().columns == ["window", "count"]
    finally:
        current_event_time.reset(token)


# What is refused


def test_a_window_without_a_time_asks_for_one(clicks: DataFrame) -> None:
    with pytest.raises(BadDeclaration, match="which column is the event time"):
        clicks.groupBy(windows.tumbling("1 hour"))
    with pytest.raises(BadDeclaration, match="which of user, at, amount is the event time"):
        windows.aggregate(clicks, windows.session("1 hour"), of=COUNTED)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"by": "nobody"}, "there is no column nobody: the frame has user, at, amount"),
        ({"of": {"n": windows.sum("user")}}, "sum.'user'.: the column is string"),
        ({"of": {"n": windows.max("id")}}, "there is no column id"),
        ({"window": windows.sliding("1s", on="amount")}, "the event time amount is bigint"),
        ({"emit": "now"}, "emit='now': one of upsert, retract, final"),
    ],
)
def test_what_cannot_be_computed_is_said(
    clicks: DataFrame, wrong: dict[str, Any], says: str
) -> None:
    asked: dict[str, Any] = {"window": windows.sliding("1s", on="at"), "by": "user", "of": COUNTED}
    with pytest.raises(BadDeclaration, match=says):
        windows.aggregate(clicks, **(asked | wrong))


def test_a_key_that_is_not_equal_to_itself_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, NOON)], "size DOUBLE, at TIMESTAMP")
    with pytest.raises(BadDeclaration, match="by='size' is double: a key is text"):
        windows.aggregate(frame, windows.sliding("1s", on="at"), by="size", of={})


def test_a_stream_without_a_watermark_is_refused(feed: Feed) -> None:
    with pytest.raises(BadDeclaration, match="the stream has no watermark on at"):
        windows.aggregate(feed.stream(), windows.sliding("1s", on="at"), by="user", of=COUNTED)


def test_corrections_and_final_rows_exclude_one_another(clicks: DataFrame) -> None:
    corrected = mark_event_time(clicks, "at", late="correct")
    with pytest.raises(BadDeclaration, match="tells a window once"):
        windows.aggregate(corrected, windows.session("1s"), of=COUNTED, emit="final")
