"""Joins of tables in real Spark: streams of changes, restarts, and the same answer as in batch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.base.declared import DeclaredTable
from millstream.base.errors import Rejected
from millstream.processing.operators import changelog, windows
from millstream.processing.operators.table_join import tables
from millstream.processing.reading.frames import Reading, stream_frame
from millstream.schemas.ddl import schema_from_ddl
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.spark.change_files import ChangeFiles, gone
from tests.spark.conftest import OURS_ALONE
from tests.spark.steps import WITHIN_S

# Two steps with a state each: a query takes seconds to start, on a busy machine many.
pytestmark = pytest.mark.timeout(600)

TWEETS = "tweet_id BIGINT, author DECIMAL(4,1), said STRUCT<text: STRING, at: TIMESTAMP>"
FOLLOWS = "follower STRING, followee DECIMAL(6,3)"
Row = dict[str, Any]


@dataclass
class Answer:
    """The rows that the changes of a stream have made, and every change by batch."""

    key: tuple[str, ...]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    batches: dict[int, list[Row]] = field(default_factory=dict)

    def take(self, frame: DataFrame, number: int) -> None:
        changes = [row.asDict(recursive=True) for row in frame.collect()]
        self.batches[number] = changes
        assert all(change[ORDER] == number for change in changes)
        for change in changes:
            self._apply(change)

    def _apply(self, change: Row) -> None:
        key = tuple(change[name] for name in self.key)
        if change[CHANGE] == UPSERT:
            self.rows[key] = table_row(change)
        else:
            assert change[CHANGE] == DELETE
            assert key in self.rows, "what is gone was there"
            del self.rows[key]

    def keys_changed(self, number: int) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in self.key) for row in self.batches[number]]


def table_row(change: Mapping[str, Any]) -> Row:
    return {name: value for name, value in change.items() if name not in (CHANGE, ORDER)}


def run(frame: DataFrame, checkpoint: Path, answer: Answer) -> None:
    """All batches that are there now."""
    writer = frame.writeStream.outputMode("update").foreachBatch(answer.take)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(2 * WITHIN_S), "not done"


def rows_of(frame: DataFrame) -> list[Row]:
    return in_order([table_row(row.asDict(recursive=True)) for row in frame.collect()])


def in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.fixture
def tweets(tmp_path: Path) -> ChangeFiles:
    return ChangeFiles(tmp_path / "tweets", TWEETS)


@pytest.fixture
def follows(tmp_path: Path) -> ChangeFiles:
    return ChangeFiles(tmp_path / "follows", FOLLOWS)


def timelines(left: DataFrame, right: DataFrame, how: Any = "full") -> DataFrame:
    return tables(
        left,
        right,
        {"author": "followee"},
        how=how,
        left_key="tweet_id",
        right_key=["follower", "followee"],
    )


def random_tweet(random: Random) -> Mapping[str, Any]:
    tweet_id = random.randrange(12)
    if random.random() < 0.25:
        return gone(tweet_id=tweet_id)
    said = {"text": f"said {random.randrange(3)}", "at": "2026-07-01T12:00:00.000001Z"}
    return {"tweet_id": tweet_id, "author": random.choice([1.0, 1.5, 2.0, None]), "said": said}


def random_follow(random: Random) -> Mapping[str, Any]:
    key = {"follower": random.choice("abc"), "followee": random.choice([1.0, 1.5, 2.0, 3.125])}
    return gone(**key) if random.random() < 0.3 else key


def add_random_batches(
    random: Random, tweets: ChangeFiles, follows: ChangeFiles, *, count: int
) -> None:
    for _ in range(count):
        tweets.add(*(random_tweet(random) for _ in range(random.randrange(1, 12))))
        follows.add(*(random_follow(random) for _ in range(random.randrange(1, 6))))


def test_a_stream_with_restarts_ends_with_the_join_of_the_latest_rows(
    spark: SparkSession, tweets: ChangeFiles, follows: ChangeFiles, tmp_path: Path
) -> None:
    random, answer = Random(7), Answer(("tweet_id", "follower", "followee"))
    for _ in range(2):  # the second is a restart
        add_random_batches(random, tweets, follows, count=2)
        run(timelines(tweets.stream(spark), follows.stream(spark)), tmp_path / "state", answer)
        static = timelines(tweets.batch(spark), follows.batch(spark))
        assert in_order(answer.rows.values()) == rows_of(static)
    assert len(answer.batches) == 4
    for number in answer.batches:
        changed = answer.keys_changed(number)
        assert len(changed) == len(set(changed)), "a key changes once in a batch"


# Static frames: no state, the same words


def static(session: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    """Rows end with what they do, and in which order."""
    return session.createDataFrame(list(rows), f"{schema}, {CHANGE} STRING, {ORDER} BIGINT")


def orders(session: SparkSession) -> DataFrame:
    return static(
        session,
        "id INT, customer INT, name STRING",
        (1, 7, "old", UPSERT, 1),
        (1, 7, "first", UPSERT, 2),
        (2, 8, "second", UPSERT, 1),
        (3, None, "third", UPSERT, 1),
        (4, 7, "gone", UPSERT, 1),
        (4, None, None, DELETE, 2),
    )


def customers(session: SparkSession) -> DataFrame:
    return static(session, "id BIGINT, name STRING", (7, "ada", UPSERT, 1), (9, "bob", UPSERT, 1))


PAIRED, ALONE, NOBODY = (1, 7, "first", 7, "ada"), (2, 8, "second"), (None, None)
ANSWERS = {
    "inner": [PAIRED],
    "left": [PAIRED, (*ALONE, *NOBODY), (3, None, "third", *NOBODY)],
    "right": [PAIRED, (None, None, None, 9, "bob")],
    "full": [
        PAIRED,
        (*ALONE, *NOBODY),
        (3, None, "third", *NOBODY),
        (None, None, None, 9, "bob"),
    ],
}


@pytest.mark.parametrize("how", ANSWERS)
def test_static_tables_are_joined_as_they_are_now(spark: SparkSession, how: Any) -> None:
    joined = tables(
        orders(spark), customers(spark), {"customer": "id"}, how=how, left_key="id", right_key="id"
    )
    assert joined.columns == ["id", "customer", "name", "id_right", "name_right", CHANGE, ORDER]
    assert changelog.key_of(joined) == ("id", "id_right")
    found = [tuple(row)[:5] for row in joined.collect()]
    assert in_order(found) == in_order(ANSWERS[how])


def test_a_column_that_both_are_joined_by_is_there_once(spark: SparkSession) -> None:
    left = changelog.mark_key(orders(spark).withColumnRenamed("id", "order"), "order")
    right = changelog.mark_key(customers(spark).withColumnRenamed("id", "customer"), "customer")
    joined = tables(left, right, "customer", how="full", key="order")
    assert joined.columns == ["order", "customer", "name", "name_right", CHANGE, ORDER]
    assert changelog.key_of(joined) == ("order",)
    assert dict(joined.dtypes)["customer"] == "bigint", "the wider type of the two"
    assert {row.customer for row in joined.collect()} == {7, 8, 9, None}


def test_a_join_that_cannot_be_is_refused_with_a_reason(spark: SparkSession) -> None:
    left, right = orders(spark), customers(spark)
    keys: Any = {"left_key": "id", "right_key": "id"}
    refused: list[tuple[str, Any]] = [
        ("on='nothing' is no column", lambda: tables(left, right, "nothing", **keys)),
        ("on= names no column", lambda: tables(left, right, [], **keys)),
        ("how='outer': one of inner, left", lambda: tables(left, right, "id", how="outer", **keys)),  # type: ignore[arg-type]
        ("Say it with left_key=", lambda: tables(left, right, "id")),
        ("key='what' is no column", lambda: tables(left, right, "id", key="what", **keys)),
        (
            "maps are not compared",
            lambda: tables(
                left.withColumn("on", F.create_map("id", "id")),
                right.withColumn("on", F.create_map("id", "id")),
                "on",
                **keys,
            ),
        ),
    ]
    for reason, join in refused:
        with pytest.raises(Rejected, match=reason):
            join()


def test_a_stream_is_not_joined_with_a_static_table(
    spark: SparkSession, tweets: ChangeFiles, follows: ChangeFiles
) -> None:
    follows.add({"follower": "a", "followee": 1.0})
    with pytest.raises(Rejected, match="one table is a stream and the other is static"):
        timelines(tweets.stream(spark), follows.batch(spark))


# Totals that go down


def test_totals_of_a_stream_are_those_of_its_latest_rows(
    spark: SparkSession, tweets: ChangeFiles, tmp_path: Path
) -> None:
    random, answer = Random(5), Answer(("author",))
    for _ in range(3):
        tweets.add(*(random_tweet(random) for _ in range(8)))

    def totals(frame: DataFrame) -> DataFrame:
        of = {"tweets": windows.count(), "ids": windows.sum("tweet_id")}
        return changelog.aggregate(frame, by="author", of=of, key="tweet_id")

    run(totals(tweets.stream(spark)), tmp_path / "state", answer)
    assert in_order(answer.rows.values()) == rows_of(totals(tweets.batch(spark)))
    assert any(row[CHANGE] == DELETE for rows in answer.batches.values() for row in rows)


# The whole way, and one join after another


def tweet(tweet_id: int, author: str | None, text: str = "hello") -> Sent:
    """Without an author: it is deleted."""
    value = {"tweet_id": tweet_id, "author": author, "text": text}
    return Sent(key=b"%d" % tweet_id, value=json.dumps(value).encode() if author else None)


def follow(follower: str, followee: str, *, ends: bool = False) -> Sent:
    row = json.dumps({"follower": follower, "followee": followee}).encode()
    return Sent(key=row, value=None if ends else row)


@OURS_ALONE
@pytest.mark.full
def test_timelines_follow_the_topics_of_tweets_and_follows(
    spark: SparkSession, bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    tweets = DeclaredTable(
        name=unique_name("tweets"),
        schema=schema_from_ddl("tweet_id BIGINT, author STRING, text STRING"),
        key=("tweet_id",),
    )
    follows = DeclaredTable(
        name=unique_name("follows"),
        schema=schema_from_ddl("follower STRING, followee STRING"),
        key=("follower", "followee"),
    )
    for table in (tweets, follows):
        create_topic(admin, table.name, partitions=2)
    reading, answer = Reading(brokers=bootstrap), Answer(("tweet_id", "follower", "followee"))

    def timelines_after(*sent: tuple[DeclaredTable, Sent]) -> set[tuple[str, int, str]]:
        for table, record in sent:
            produce(bootstrap, table.name, [record])
        frames = [stream_frame(spark, table, reading) for table in (tweets, follows)]
        joined = tables(frames[0], frames[1], {"author": "followee"})
        run(joined, tmp_path / "state", answer)
        return {(row["follower"], row["tweet_id"], row["text"]) for row in answer.rows.values()}

    assert timelines_after(
        (tweets, tweet(1, "ada")), (tweets, tweet(2, "bob")), (follows, follow("eve", "ada"))
    ) == {("eve", 1, "hello")}
    assert timelines_after(
        (follows, follow("zoe", "ada")), (tweets, tweet(2, "ada")), (tweets, tweet(1, "ada", "hi"))
    ) == {("eve", 1, "hi"), ("eve", 2, "hello"), ("zoe", 1, "hi"), ("zoe", 2, "hello")}
    assert timelines_after(
        (follows, follow("eve", "ada", ends=True)), (tweets, tweet(1, None))
    ) == {("zoe", 2, "hello")}


@pytest.mark.full
def test_a_join_is_a_table_that_can_be_joined_again(spark: SparkSession, tmp_path: Path) -> None:
    orders = ChangeFiles(tmp_path / "orders", "order INT, customer INT, product STRING")
    customers = ChangeFiles(tmp_path / "customers", "customer INT, name STRING")
    products = ChangeFiles(tmp_path / "products", "product STRING, price INT")
    random, answer = Random(3), Answer(("order",))
    for _ in range(3):
        orders.add(*(random_order(random) for _ in range(8)))
        customers.add(*(random_customer(random) for _ in range(3)))
        products.add(*(random_product(random) for _ in range(2)))

    def priced(*frames: DataFrame) -> DataFrame:
        keys = ("order", "customer", "product")
        marked = [changelog.mark_key(*pair) for pair in zip(frames, keys, strict=True)]
        named = tables(marked[0], marked[1], "customer", how="left", key="order")
        return tables(named, marked[2], "product", how="left", key="order")

    sources = (orders, customers, products)
    run(priced(*(source.stream(spark) for source in sources)), tmp_path / "state", answer)
    expected = rows_of(priced(*(source.batch(spark) for source in sources)))
    assert in_order(answer.rows.values()) == expected
    assert any(row["price"] is not None and row["name"] is not None for row in expected)


def random_order(random: Random) -> Mapping[str, Any]:
    order = random.randrange(9)
    if random.random() < 0.2:
        return gone(order=order)
    return {"order": order, "customer": random.randrange(4), "product": random.choice("xyz")}


def random_customer(random: Random) -> Mapping[str, Any]:
    customer = random.randrange(4)
    if random.random() < 0.2:
        return gone(customer=customer)
    return {"customer": customer, "name": random.choice(["ada", "bob"])}


def random_product(random: Random) -> Mapping[str, Any]:
    product = random.choice("xyz")
    return gone(product=product) if random.random() < 0.2 else {"product": product, "price": 5}


@pytest.mark.full
def test_updates_become_rows_that_go_and_come_and_back_again(
    spark: SparkSession, tweets: ChangeFiles, tmp_path: Path
) -> None:
    random = Random(11)
    for _ in range(3):
        tweets.add(*(random_tweet(random) for _ in range(8)))
    replaced = changelog.retracting(tweets.stream(spark), "tweet_id")
    answer = Answer(("tweet_id",))
    run(changelog.upserting(replaced), tmp_path / "state", answer)
    expected = rows_of(changelog.latest(tweets.batch(spark), "tweet_id"))
    assert in_order(answer.rows.values()) == expected


def test_the_latest_rows_keep_columns_of_any_name(spark: SparkSession) -> None:
    changes = [(1, "old", 1), (1, "new", 2)]
    frame = spark.createDataFrame(changes, f"id INT, _last STRING, {ORDER} BIGINT")
    assert rows_of(changelog.latest(frame, "id")) == [{"id": 1, "_last": "new"}]
