"""A view built anew beside the one that readers see: kept current, verified, swapped, put back."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App
from millstream.base.ports import BatchReceipt
from millstream.jobs import JobsFailed, SideEffects
from millstream.processing.jobs.checkpoints import JobDirectory
from millstream.queues.outbox import Receipt
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli
from tests.spark.conftest import OURS_ALONE
from tests.support.waiting import eventually

WITHIN_S = 100
SCHEMA = "user STRING, url STRING"
Shop = Callable[..., App]


def click(url: str, user: str = "ada") -> dict[str, Any]:
    return {"user": user, "url": url}


@pytest.fixture
def topic() -> str:
    return unique_name("clicks")


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, tmp_path: Path, topic: str) -> Iterator[Shop]:
    """Opens an App over the same data and topic, as often as one likes: each is a deployment."""
    opened: list[App] = []

    def open_app(archive: Path | None = None) -> App:
        app = App("shop", data=tmp_path / "shop", brokers=bootstrap)
        app.topic(topic, schema=SCHEMA, key="user", partitions=2, archive=archive)
        opened.append(app)
        return app

    yield open_app
    for app in opened:
        app.close()


def counted(app: App, topic: str, function: Callable[[Any], Any] | None = None) -> App:
    """Declare the view `per_url`: how many clicks each URL has, unless `function` says else."""

    def per_url(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("url").count()

    app.view(key="url", name="per_url", inputs={"clicks": topic})(function or per_url)
    return app


def gated(gate: Path) -> Callable[[DataFrame], DataFrame]:
    """Tenfold counts, which come to nothing before the gate is there."""

    def per_url(clicks: DataFrame) -> DataFrame:
        def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            while not gate.exists():
                time.sleep(0.05)
            yield from batches

        passed = clicks.mapInArrow(through, SCHEMA)
        return passed.groupBy("url").count().select("url", (F.col("count") * 10).alias("count"))

    return per_url


def rows_of(app: App) -> dict[str, int]:
    with app.view("per_url") as view:
        return {row["url"]: row["count"] for row in view.scan()}


def generations(app: App) -> list[tuple[int, bool]]:
    return [(one.number, one.is_served) for one in app.views.store("per_url").generations()]


@contextmanager
def running(app: App, **terms: Any) -> Iterator[None]:
    thread = threading.Thread(target=app.run, kwargs=terms)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join(WITHIN_S)


def test_readers_see_the_former_view_kept_current_until_the_new_one_has_caught_up(
    shop: Shop, topic: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    first = counted(shop(), topic)
    first.publish(topic, [click("/"), click("/a")])
    first.run(once=True)

    changed = counted(shop(), topic, gated(gate))
    with running(changed, rebuild=["per_url"]):
        changed.publish(topic, [click("/"), click("/b")])
        current = {"/": 2, "/a": 1, "/b": 1}
        eventually(
            lambda: rows_of(changed) == current, what="the former is current", within_s=WITHIN_S
        )
        assert changed.progress()[0].is_building
        assert generations(changed) == [(1, True), (2, False)]
        gate.touch()
        eventually(
            lambda: rows_of(changed) == {"/": 20, "/a": 10, "/b": 10},
            what="the new one is served",
            within_s=WITHIN_S,
        )
        changed.publish(topic, click("/b"))
        eventually(lambda: rows_of(changed)["/b"] == 20, what="it goes on alone", within_s=WITHIN_S)
        assert not changed.progress()[0].is_building
    assert generations(changed) == [(1, False), (2, True)]


@OURS_ALONE
def test_a_rebuild_that_was_broken_off_goes_on(shop: Shop, topic: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = counted(shop(), topic)
    first.publish(topic, click("/"))
    first.run(once=True)
    changed = counted(shop(), topic, gated(gate))
    with running(changed, rebuild=["per_url"]):
        eventually(lambda: len(generations(changed)) == 2, what="it has begun", within_s=WITHIN_S)

    again = counted(shop(), topic, gated(gate))
    with running(again):
        again.publish(topic, click("/"))
        eventually(
            lambda: rows_of(again) == {"/": 2}, what="the former is current", within_s=WITHIN_S
        )
        gate.touch()
        eventually(
            lambda: rows_of(again) == {"/": 20}, what="the new one is served", within_s=WITHIN_S
        )
    assert generations(again) == [(1, False), (2, True)]


@OURS_ALONE
def test_a_rebuilt_view_can_be_rolled_back_and_goes_on_where_it_was(shop: Shop, topic: str) -> None:
    app = counted(shop(), topic)
    app.publish(topic, click("/"))
    app.run(once=True)
    changed = counted(
        shop(), topic, lambda clicks: clicks.groupBy("url").agg(F.lit(7).alias("count"))
    )
    changed.run(
        once=True,
        rebuild=["per_url"],
    )
    assert rows_of(changed) == {"/": 7}

    changed.jobs.roll_back("per_url")
    assert rows_of(changed) == {"/": 1}
    restored = counted(shop(), topic)
    restored.publish(topic, click("/"))
    restored.run(once=True)
    assert rows_of(restored) == {"/": 2}


def lying(clicks: DataFrame) -> DataFrame:
    """Counts one way in a stream, another way in a batch."""
    seen = clicks if not clicks.isStreaming else clicks.where("url != '/a'")
    return seen.groupBy("url").count()


@OURS_ALONE
def test_a_view_that_is_not_what_its_topics_come_to_is_not_served(shop: Shop, topic: str) -> None:
    app = counted(shop(), topic)
    app.publish(topic, [click("/"), click("/a")])
    app.run(once=True)
    changed = counted(shop(), topic, lying)
    with pytest.raises(JobsFailed, match=r"1 of 2 rows are not what .*'/a' is not there, recomp"):
        changed.jobs.run(once=True, rebuild=["per_url"], verify=100.0)
    assert rows_of(changed) == {"/": 1, "/a": 1}
    assert generations(changed) == [(1, True), (2, False)]
    right = counted(shop(), topic)
    right.jobs.run(once=True, rebuild=["per_url"], verify=100.0)
    assert generations(right) == [(1, False), (3, True)]


@OURS_ALONE
def test_a_row_that_was_changed_by_hand_is_found(shop: Shop, topic: str) -> None:
    app = counted(shop(), topic)
    app.publish(topic, [click("/"), click("/a")])
    app.run(once=True)
    app.publish(topic, click("/"))  # after what the view is current to
    assert app.jobs.verdict("per_url").is_same
    with closing(sqlite3.connect(app.data / "views" / "per_url.sqlite")) as db, db:
        db.execute("UPDATE rows_1 SET count = 9 WHERE url = '/a'")
    found = app.jobs.verdict("per_url")
    assert (found.rows, found.differing) == (2, 1)
    assert str(found.examples[0]) == (
        "url '/a' is {'count': 9, 'url': '/a'}, recomputed {'count': 1, 'url': '/a'}"
    )


@OURS_ALONE
def test_side_effects_are_repeated_only_if_that_is_said(shop: Shop, topic: str) -> None:
    app, target = shop(), unique_name("urls")
    mails: list[str] = []

    def send(rows: DataFrame, receipt: BatchReceipt) -> None:
        mails.extend(row.url for row in rows.collect())

    app.job(to=target, name="urls", inputs={"clicks": topic})(lambda clicks: clicks.select("url"))
    app.sink(send, external=True, name="mails", inputs={"clicks": topic})(lambda clicks: clicks)
    app.publish(topic, click("/"))
    app.run(once=True)
    for job, effect in (("urls", f"topic {target}"), ("mails", "a sink that is external")):
        with pytest.raises(SideEffects, match=rf"job {job} writes into {effect}.*--repeat-side"):
            app.run(once=True, rebuild=[job])
    app.run(once=True, only=["mails"], rebuild=["mails"], repeat_side_effects=True)
    assert mails == ["/", "/"]


@OURS_ALONE
def test_a_view_that_was_dropped_starts_over_with_its_job(shop: Shop, topic: str) -> None:
    app = counted(shop(), topic)
    app.publish(topic, click("/"))
    app.run(once=True)
    app.jobs.drop("per_url")
    assert generations(app) == []
    assert JobDirectory(app.data / "jobs" / "per_url", job="per_url").manifest() is None
    app.run(once=True)
    assert rows_of(app) == {"/": 1}


def test_a_rebuild_begins_with_what_is_archived(
    shop: Shop, topic: str, bootstrap: str, tmp_path: Path
) -> None:
    """Retention has deleted the first records; the archive has them."""
    place = tmp_path / "archive"
    first = counted(shop(), topic)
    receipts = first.publish(topic, [click("/"), click("/a"), click("/b")])
    first.run(once=True)
    Cli(bootstrap).run("topics", "archive", topic, "--to", str(place), "--all")
    delete_before(bootstrap, max(receipts, key=lambda receipt: receipt.offset))
    first.publish(topic, click("/a"))
    first.close()

    changed = shop(archive=place)
    counted(changed, topic)
    changed.run(once=True, rebuild=["per_url"])
    assert rows_of(changed) == {"/": 1, "/a": 2, "/b": 1}


def delete_before(bootstrap: str, receipt: Receipt) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    upto = TopicPartition(receipt.topic, receipt.partition, receipt.offset + 1)
    for answer in admin.delete_records([upto]).values():
        answer.result(WITHIN_S)
