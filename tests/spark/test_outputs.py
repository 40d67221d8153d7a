"""Rows of jobs into views and topics, in real Spark."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import DeclaredTable, DeclaredTopic, EventTime
from millstream.declarations import declared_topic
from millstream.processing.reading.frames import Reading, batch_frame, stream_frame
from millstream.processing.writing.output import start_topic, start_view
from millstream.publishing import Publisher
from millstream.schemas.declaration import schema_of
from millstream.values.row_records import RowsDoNotFit
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from tests.clients.steps import Sent, create_topic, produce, read, unique_name
from tests.spark.conftest import OURS_ALONE
from tests.spark.steps import WITHIN_S, error_of
from tests.support.sale_message import Sale

CLICK = "url STRING, user STRING, at TIMESTAMP"


@dataclass
class Clicks:
    """A topic of clicks, which only some runs of a job see more of."""

    bootstrap: str
    declared: DeclaredTopic
    publisher: Publisher

    @property
    def without_time(self) -> DeclaredTopic:
        """No batch follows that only moves the watermark."""
        return replace(self.declared, event_time=None)

    def add(self, *urls: str, second: int = 0) -> None:
        at = f"2026-07-01T12:00:{second:02}Z"
        records = [{"url": url, "user": "ada", "at": at} for url in urls]
        produce(
            self.bootstrap,
            self.declared.name,
            [Sent(key=b"ada", value=json.dumps(record).encode()) for record in records],
        )


@pytest.fixture
def clicks(bootstrap: str, admin: AdminClient) -> Iterator[Clicks]:
    declared = DeclaredTopic(
        name=unique_name("clicks"),
        schema=schema_of(CLICK),
        event_time=EventTime(column="at", ahead_ms_max=1 << 50),
    )
    create_topic(admin, declared.name, partitions=2)
    publisher = Publisher({"bootstrap.servers": bootstrap})
    yield Clicks(bootstrap, declared, publisher)
    publisher.close()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[ViewReader]:
    with ViewReader(tmp_path / "view.sqlite", view="counts") as reader:
        yield reader


def stream(spark: SparkSession, declared: DeclaredTopic | DeclaredTable, at: str) -> DataFrame:
    return stream_frame(spark, declared, Reading(brokers=at))


def run_view(frame: DataFrame, directory: Path, *, key: list[str], mode: str = "update") -> None:
    """Run a job over what is there now, into the view of this directory."""
    store = SqliteView(directory / "view.sqlite", view="counts", key=key)
    checkpoint = directory / "checkpoint"
    writer = start_view(frame, store, job="counts", checkpoint=checkpoint)
    run(writer.outputMode(mode), checkpoint)
    store.close()


def run(writer: Any, checkpoint: Path) -> None:
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"


def forget_the_commit(checkpoint: Path) -> None:
    """Of the only batch so far: it is repeated."""
    (last,) = (file for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    last.unlink()


@OURS_ALONE
def test_windowed_counts_become_a_view(
    spark: SparkSession, clicks: Clicks, bootstrap: str, view: ViewReader, tmp_path: Path
) -> None:
    counts = (
        stream(spark, clicks.declared, bootstrap)
        .groupBy(F.window("at", "10 seconds"), "url")
        .agg(F.count("*").alias("count"))
    )
    clicks.add("/", "/", "/a", second=1)
    run_view(counts, tmp_path, key=["window", "url"])
    clicks.add("/", second=2)
    clicks.add("/", second=12)
    run_view(counts, tmp_path, key=["window", "url"])
    found = [(row["window"]["start"].second, row["url"], row["count"]) for row in view.scan()]
    assert found == [(0, "/", 3), (0, "/a", 1), (10, "/", 1)]
    window = view.scan(limit=1)[0]["window"]
    assert view.get((window["start"], window["end"]), "/a") is not None
    positions = view.position()[clicks.declared.name]
    assert sum(positions.values()) == 5


@OURS_ALONE
def test_a_batch_that_spark_repeats_changes_nothing(
    spark: SparkSession, clicks: Clicks, bootstrap: str, view: ViewReader, tmp_path: Path
) -> None:
    """As after a kill between the store and Spark's log."""
    counts = stream(spark, clicks.without_time, bootstrap).groupBy("url").count()
    clicks.add("/", "/")
    run_view(counts, tmp_path, key=["url"])
    forget_the_commit(tmp_path / "checkpoint")
    with closing(sqlite3.connect(tmp_path / "view.sqlite")) as db, db:
        db.execute("UPDATE rows_1 SET count = 99")  # the count of the repeat would replace it
    clicks.add("/a")
    run_view(counts, tmp_path, key=["url"])
    assert view.scan() == [{"url": "/", "count": 99}, {"url": "/a", "count": 1}]


def test_a_table_becomes_a_view_of_itself(
    spark: SparkSession, clicks: Clicks, bootstrap: str, view: ViewReader, tmp_path: Path
) -> None:
    table = DeclaredTable(
        name=unique_name("people"), schema=schema_of("id BIGINT, name STRING"), key=("id",)
    )
    people = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}, {"id": 1, "name": "Ada L."}]
    clicks.publisher.publish(table, people)
    clicks.publisher.publish(table, {"id": 2, "_change": "delete"})
    run_view(stream(spark, table, bootstrap), tmp_path, key=["id"], mode="append")
    assert view.scan() == [{"id": 1, "name": "Ada L."}]


@OURS_ALONE
@pytest.mark.parametrize("stateful", [True, False])
def test_a_job_goes_on_when_its_topic_has_a_new_schema(
    spark: SparkSession, clicks: Clicks, view: ViewReader, tmp_path: Path, stateful: bool
) -> None:
    """A field is added and a type widened between two runs; old and new records are read."""
    name = unique_name("sales")
    old, new = (
        DeclaredTopic(name=name, schema=schema_of(ddl), key=("item",))
        for ddl in ("item STRING, n INT", "item STRING, n BIGINT, note STRING")
    )
    published = [
        (old, [{"item": "tea", "n": 1}, {"item": "rum", "n": 2}]),
        (new, [{"item": "tea", "n": 1 << 40, "note": "much"}]),
    ]
    for declared, rows in published:
        publisher = Publisher({"bootstrap.servers": clicks.bootstrap})
        publisher.publish(declared, rows)
        publisher.close()
        sold = stream(spark, declared, clicks.bootstrap)
        frame = sold.groupBy("item").agg(F.sum("n").alias("n")) if stateful else sold
        run_view(frame, tmp_path, key=["item"], mode="update")
    sold_tea = (1 << 40) + stateful  # counted together, or the last one alone
    assert [(row["item"], row["n"], row.get("note")) for row in view.scan()] == [
        ("rum", 2, None),
        ("tea", sold_tea, None if stateful else "much"),
    ]


def test_rows_become_records_of_the_schema(
    spark: SparkSession, clicks: Clicks, bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    output = DeclaredTopic(
        name=unique_name("out"),
        schema=schema_of("url STRING NOT NULL, at TIMESTAMP, price DECIMAL(10, 2), n BIGINT"),
        key=("url",),
        partitions=3,
    )
    frame = stream(spark, clicks.declared, bootstrap).select(
        "url", "at", F.lit("1.50").cast("DECIMAL(5, 2)").alias("price"), F.lit(7).alias("n")
    )
    clicks.add("/")
    run(
        start_topic(frame, output, job=output.name, brokers=bootstrap, checkpoint=tmp_path),
        tmp_path,
    )
    (record,) = read(bootstrap, output.name, 1, partitions=3)
    assert record.key() == b"/"
    assert json.loads(record.value() or b"") == {
        "url": "/",
        "at": "2026-07-01T12:00:00Z",
        "price": "1.50",
        "n": 7,
    }
    topic = admin.list_topics(output.name, timeout=30).topics[output.name]
    assert len(topic.partitions) == 3


def test_changes_become_a_compacted_topic_that_is_a_table_again(
    spark: SparkSession, clicks: Clicks, bootstrap: str, tmp_path: Path
) -> None:
    schema = schema_of("url STRING, user STRING, n INT")
    output = DeclaredTopic(
        name=unique_name("out"), schema=schema, key=("url", "user"), partitions=1
    )
    change = F.when(F.col("at") > "2026-07-01T12:00:05Z", "delete").otherwise("upsert")
    frame = (
        stream(spark, clicks.declared, bootstrap)
        .withColumn("_change", change)
        .select("url", "user", F.lit(1).alias("n"), "_change")
    )
    clicks.add("/", "/a")
    clicks.add("/a", second=9)
    run(
        start_topic(frame, output, job=output.name, brokers=bootstrap, checkpoint=tmp_path),
        tmp_path,
    )
    table = DeclaredTable(name=output.name, schema=schema, key=("url", "user"))
    found = batch_frame(spark, table, Reading(brokers=bootstrap)).drop("_order").collect()
    assert sorted(map(tuple, found), key=str) == [
        ("/", "ada", 1, "upsert"),
        ("/a", "ada", 1, "upsert"),
        ("/a", "ada", None, "delete"),
    ]


def test_updates_of_rows_go_into_a_topic_once(
    spark: SparkSession, clicks: Clicks, bootstrap: str, tmp_path: Path
) -> None:
    """As after a kill between the topic and Spark's log."""
    schema = schema_of("url STRING, count BIGINT")
    output = DeclaredTopic(name=unique_name("out"), schema=schema, key=("url",), partitions=1)
    counts = stream(spark, clicks.without_time, bootstrap).groupBy("url").count()

    def run_job(*urls: str) -> None:
        clicks.add(*urls)
        writer = start_topic(
            counts, output, job=output.name, brokers=bootstrap, checkpoint=tmp_path, is_update=True
        )
        run(writer.outputMode("update"), tmp_path)

    run_job("/", "/")
    forget_the_commit(tmp_path)
    run_job("/a")
    run_job("/")
    found = [json.loads(one.value() or b"") for one in read(bootstrap, output.name, 3)]
    assert found == [
        {"url": "/", "count": 2},
        {"url": "/a", "count": 1},
        {"url": "/", "count": 3},
    ]


@OURS_ALONE
def test_columns_that_do_not_fit_the_topic_are_told_before_the_start(
    spark: SparkSession, clicks: Clicks, bootstrap: str, tmp_path: Path
) -> None:
    output = DeclaredTopic(name=unique_name("out"), schema=schema_of("url BIGINT"))
    frame = stream(spark, clicks.declared, bootstrap).select("url", "user")
    with pytest.raises(RowsDoNotFit, match="column url is STRING, the schema has BIGINT; column"):
        start_topic(frame, output, job="job", brokers=bootstrap, checkpoint=tmp_path)


@OURS_ALONE
def test_a_row_that_does_not_fit_is_named(
    spark: SparkSession, clicks: Clicks, bootstrap: str, tmp_path: Path
) -> None:
    schema = schema_of("url STRING NOT NULL")
    output = DeclaredTopic(name=unique_name("out"), schema=schema)
    nulled = F.when(F.col("url") != "/bad", F.col("url")).alias("url")
    frame = stream(spark, clicks.declared, bootstrap).select(nulled)
    clicks.add("/", "/bad")
    writer = start_topic(frame, output, job=output.name, brokers=bootstrap, checkpoint=tmp_path)
    message = error_of(lambda: run(writer, tmp_path))
    assert f"topic {output.name}: the row {{'url': None}} cannot be written" in message


@OURS_ALONE
def test_topics_of_protobuf_are_read_and_written(
    spark: SparkSession, clicks: Clicks, bootstrap: str, tmp_path: Path
) -> None:
    """A value that is no message becomes a dead letter, as in other encodings."""
    terms: dict[str, Any] = {"encoding": "protobuf", "message": Sale, "partitions": 1}
    sales = declared_topic(unique_name("sales"), event_time="at", **terms)
    dear = declared_topic(unique_name("dear"), key="id", schema="id BIGINT, item STRING", **terms)
    rows = [{"id": n, "item": f"tea {n}", "at": datetime.now(UTC)} for n in range(3)]
    clicks.publisher.publish(sales, rows)
    produce(bootstrap, sales.name, [Sent(value=b"\xff")])
    frame = stream(spark, sales, bootstrap).filter("id > 0").drop("at")
    checkpoint = tmp_path / "checkpoint"
    job = unique_name("job")
    writer = start_topic(frame, dear, job=job, brokers=bootstrap, checkpoint=checkpoint)
    run(writer.outputMode("append"), checkpoint)
    found = {
        one.key(): Sale.FromString(one.value() or b"") for one in read(bootstrap, dear.name, 2)
    }
    assert found == {b"1": Sale(id=1, item="tea 1"), b"2": Sale(id=2, item="tea 2")}
    (letter,) = read(bootstrap, f"{sales.name}.dead", 1)
    assert letter.value() == b"\xff"
