"""Jobs of an App: from declared topics into views, topics and functions, and what may change."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream import App, Queue, windows
from millstream.base.ports import BatchReceipt
from millstream.jobs import JobsFailed
from millstream.processing.jobs.job import Job, ToView
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.jobs.prepared_job import session_for
from millstream.processing.jobs.progress import JobProgress
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import FORMAT
from tests.clients.steps import Sent, produce, read, unique_name
from tests.spark.conftest import OURS_ALONE
from tests.support.waiting import eventually

WITHIN_S = 100
SCHEMA = "user STRING, url STRING, at TIMESTAMP"
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def click(url: str, user: str = "ada", at: datetime = NOON) -> dict[str, Any]:
    return {"user": user, "url": url, "at": at}


@pytest.fixture
def topic() -> str:
    return unique_name("clicks")


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, tmp_path: Path, topic: str) -> Iterator[Any]:
    """Opens an App over the same data and topic, as often as one likes: each is a restart."""
    opened: list[App] = []

    def open_app() -> App:
        app = App("shop", data=tmp_path / "shop", brokers=bootstrap)
        app.topic(topic, schema=SCHEMA, key="user", event_time="at", partitions=2)
        opened.append(app)
        return app

    yield open_app
    for app in opened:
        app.close()


Shop = Callable[[], App]


def per_url(
    app: App,
    topic: str,
    function: Callable[[Any], Any] | None = None,
    key: str | list[str] = "url",
    **terms: Any,
) -> None:
    """Register the view `per_url`: how many clicks each URL has, unless `function` says else."""

    def counted(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("url").count()

    app.view(key=key, name="per_url", inputs={"clicks": topic}, **terms)(function or counted)


def rows_of(app: App, view: str = "per_url") -> dict[str, int]:
    with app.view(view) as reader:
        return {row["url"]: row["count"] for row in reader.scan()}


def has_begun(app: App) -> bool:
    return any(one.batch is not None for one in app.progress())


def only(progress: list[JobProgress]) -> JobProgress:
    (one,) = progress
    return one


# From topics into views, topics and functions


def test_a_view_goes_on_where_it_left_off(shop: Shop, topic: str) -> None:
    app = shop()
    per_url(app, topic)
    app.publish(topic, [click("/"), click("/"), click("/b")])
    first = only(app.run(once=True))
    assert (first.state, first.rows, first.lag) == ("done", 3, {topic: 0})
    assert (first.state_rows, first.late, first.dead) == (2, 0, 0)
    assert rows_of(app) == {"/": 2, "/b": 1}

    again = shop()
    per_url(again, topic)
    again.publish(topic, click("/"))
    second = only(again.run(once=True))
    assert (second.rows, rows_of(again)) == (1, {"/": 3, "/b": 1})
    assert second.watermark == "2026-07-01T11:59:50.000Z"


@OURS_ALONE
def test_a_retyped_column_that_a_job_does_not_use_is_no_dead_letter(
    shop: Shop, topic: str, bootstrap: str
) -> None:
    app, table = shop(), f"{topic}-table"
    app.table(
        table,
        schema="id BIGINT, total DOUBLE, note BIGINT, extra BIGINT",
        key="id",
        encoding="debezium",
        partitions=1,
    )

    def totals(orders: DataFrame) -> DataFrame:
        return orders.filter("extra IS NULL OR extra > 0").drop("note", "extra")

    app.view(key="id", name="totals", inputs={"orders": table})(totals)
    app.jobs.make_topics()
    for number, (total, note) in enumerate([(1.5, 2), ("NaN", "text now"), (2, {"a": 1})]):
        after = {"id": number, "total": total, "note": note, "extra": None}
        value = json.dumps({"op": "c", "after": after}).encode()
        produce(bootstrap, table, [Sent(key=b'{"id":%d}' % number, value=value)])
    bad = {"id": 9, "total": 1, "note": 1, "extra": "not a number"}
    value = json.dumps({"op": "c", "after": bad}).encode()
    produce(bootstrap, table, [Sent(key=b'{"id":9}', value=value)])
    ended = only(app.run(once=True))
    with app.view("totals") as reader:
        found = {row["id"]: repr(row["total"]) for row in reader.scan()}
    assert found == {0: "1.5", 1: "nan", 2: "2.0"}
    assert ended.dead == 1  # its `extra` is used


@OURS_ALONE
def test_a_record_that_two_jobs_cannot_read_is_one_dead_letter_with_both(
    shop: Shop, topic: str, bootstrap: str
) -> None:
    app = shop()
    for name in ("one", "other"):
        app.view(key="user", name=name, inputs={"clicks": topic})(
            lambda clicks: clicks.select("user", "url")
        )
    app.publish(topic, click("/"))
    produce(bootstrap, topic, [Sent(value=b"no click", partition=0)])
    assert [one.dead for one in app.run(once=True)] == [1, 1]
    letters = TopicRead(brokers=bootstrap, topics=(f"{topic}.dead",))
    assert [within.end for _, within in batch_ranges(letters)] == [1]
    with closing(Queue(topic, {"bootstrap.servers": bootstrap}, set_up=False)) as queue:
        (letter,) = queue.dead_letters()
        assert sorted(letter.groups) == ["shop.one", "shop.other"]
        assert len(queue.redrive()) == 1
        assert queue.redrive() == []


@OURS_ALONE
def test_the_lag_of_a_job_is_up_to_the_end_of_the_log_as_it_is_now(shop: Shop, topic: str) -> None:
    """Measured while a batch runs that takes long: what came since it was planned counts."""
    app = shop()
    seen: list[JobProgress] = []
    is_known = threading.Event()

    def write(rows: Any, receipt: BatchReceipt) -> None:
        if receipt.batch == 1:
            app.publish(topic, [click("/")] * 5)
            is_known.wait(WITHIN_S)

    app.sink(write, name="slow", inputs={"clicks": topic})(lambda clicks: clicks)
    app.publish(topic, click("/"))
    running = threading.Thread(target=app.run)
    running.start()
    try:
        eventually(lambda: bool(app.progress()), what="its lag", within_s=WITHIN_S)
        assert all(one.lag_total is None for one in app.progress() if one.batch is None)
        eventually(lambda: only(app.progress()).lag_total == 0, what="its lag", within_s=WITHIN_S)
        app.publish(topic, click("/"))
        eventually(lambda: only(app.progress()).lag_total == 6, what="its lag", within_s=WITHIN_S)
        seen.append(only(app.progress()))
        is_known.set()
        eventually(lambda: only(app.progress()).lag_total == 0, what="its lag", within_s=WITHIN_S)
    finally:
        is_known.set()
        app.stop()
        running.join()
    assert (seen[0].lag, seen[0].batch) == ({topic: 6}, 0)
    assert (seen[0].lag_ms_max or 0) > 0


def test_rows_go_into_a_topic_that_need_not_be_declared(
    shop: Shop, topic: str, bootstrap: str
) -> None:
    app = shop()
    target = unique_name("urls")

    @app.job(to=target, key="url", name="urls", inputs={"clicks": topic})
    def urls(clicks: DataFrame) -> DataFrame:
        return clicks.where("url != '/hidden'").select("url", "user")

    app.publish(topic, [click("/"), click("/hidden"), click("/b", user="bob")])
    app.run(once=True)
    app.publish(topic, click("/last"))
    app.run(once=True)
    found = [(one.key(), json.loads(one.value() or b"")) for one in read(bootstrap, target, 3)]
    assert sorted(found, key=str) == [
        (b"/", {"url": "/", "user": "ada"}),
        (b"/b", {"url": "/b", "user": "bob"}),
        (b"/last", {"url": "/last", "user": "ada"}),
    ]


@OURS_ALONE
def test_a_function_gets_every_batch_with_its_receipt(shop: Shop, topic: str) -> None:
    app = shop()
    batches: list[tuple[list[str], BatchReceipt]] = []

    def write(rows: DataFrame, receipt: BatchReceipt) -> None:
        batches.append(([row.url for row in rows.collect()], receipt))

    @app.sink(write, name="copies", inputs={"clicks": topic})
    def copies(clicks: DataFrame) -> DataFrame:
        return clicks.select("url")

    app.publish(topic, click("/"))
    app.run(once=True)
    app.publish(topic, click("/b"))
    app.run(once=True)
    assert [rows for rows, _ in batches if rows] == [["/"], ["/b"]]
    first, last = batches[0][1], batches[-1][1]
    assert (first.job, first.batch, last.query) == ("copies", 0, first.query)
    assert first.epoch < last.epoch
    assert sum(last.positions[topic].values()) == 2


@OURS_ALONE
def test_only_the_jobs_that_are_named_run(shop: Shop, topic: str) -> None:
    app = shop()
    per_url(app, topic)
    app.view(key="user", name="per_user", inputs={"clicks": topic})(
        lambda clicks: clicks.groupBy("user").count()
    )
    app.publish(topic, click("/"))
    assert only(app.run(once=True, only=["per_url"])).job == "per_url"


def test_a_running_app_keeps_its_views_fresh_until_it_is_stopped(shop: Shop, topic: str) -> None:
    """And keeps a second one from running its jobs."""
    app = shop()
    per_url(app, topic)
    app.publish(topic, click("/"))
    ended: list[list[JobProgress]] = []
    running = threading.Thread(target=lambda: ended.append(app.run()))
    running.start()
    try:
        eventually(lambda: has_begun(app), what="a first batch", within_s=WITHIN_S)
        for number in (1, 2):
            eventually(
                lambda: rows_of(app) == {"/": number},  # noqa: B023 - called at once
                what=f"{number} clicks in the view",
                within_s=WITHIN_S,
            )
            app.publish(topic, click("/"))
        eventually(
            lambda: only(app.progress()).rows == 3, what="all are counted", within_s=WITHIN_S
        )
        second = shop()
        per_url(second, topic)
        with pytest.raises(JobsFailed, match=f"job per_url runs already in process {os.getpid()}"):
            second.run(once=True)
        assert only(app.progress()).state == "running"
    finally:
        app.stop()
        running.join(WITHIN_S)
    assert only(ended[0]).state == "stopped"


@OURS_ALONE
def test_a_view_over_a_changelog_is_rebuilt_without_its_first_inputs(
    shop: Shop, topic: str, tmp_path: Path
) -> None:
    """The way to a view that is back soon: its job reads one row for each key."""
    counts = unique_name("counts")

    def counted(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("url").count()

    app = shop()
    app.table(counts, schema="url STRING, count BIGINT", key="url", partitions=1)
    app.job(to=counts, key="url", name="counting", inputs={"clicks": topic})(counted)
    app.view(key="url", name="per_url", inputs={"counts": counts})(lambda counts: counts)
    for urls in (["/", "/a"], ["/", "/b"]):
        app.publish(topic, [click(url) for url in urls])
        app.run(once=True, only=["counting"])
    app.run(once=True, only=["per_url"])
    assert rows_of(app) == {"/": 2, "/a": 1, "/b": 1}

    for file in (tmp_path / "shop" / "views").iterdir():
        file.unlink()
    rebuilt = only(app.run(once=True, only=["per_url"], rebuild=["per_url"]))
    assert list(rebuilt.lag) == [counts]
    assert rows_of(app) == {"/": 2, "/a": 1, "/b": 1}


# What may change


def by_user(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("url", "user").count().select("url", "count")


@OURS_ALONE
def test_a_job_of_another_shape_is_refused_and_can_be_rebuilt(shop: Shop, topic: str) -> None:
    app = shop()
    per_url(app, topic)
    app.publish(topic, [click("/"), click("/")])
    app.run(once=True)

    changed = shop()
    per_url(changed, topic, by_user)
    verdict = changed.jobs.prepared()["per_url"]
    assert "must be rebuilt: its state was aggregation of count(1) by url" in str(
        getattr(verdict, "comparison", verdict)
    )
    with pytest.raises(Exception, match=r"of another shape: .*--rebuild per_url") as caught:
        changed.run(once=True)
    assert "by url, user" in str(caught.value)
    assert rows_of(changed) == {"/": 2}

    changed.publish(topic, click("/b", user="bob"))
    changed.run(once=True, rebuild=["per_url"])
    assert rows_of(changed) == {"/": 2, "/b": 1}
    directory = changed.data / "jobs" / "per_url"
    kept = sorted(path.name for path in directory.iterdir() if path.is_dir())
    assert kept == ["checkpoint-1", "checkpoint-2"]


@OURS_ALONE
def test_a_job_whose_directory_was_removed_starts_over(shop: Shop, topic: str) -> None:
    """Its view had a later generation by then, which is not what readers see any more."""
    app = shop()
    per_url(app, topic)
    app.publish(topic, click("/"))
    app.run(once=True)
    app.run(once=True, rebuild=["per_url"])
    shutil.rmtree(app.data / "jobs" / "per_url")
    app.publish(topic, click("/b"))
    app.run(once=True)
    assert rows_of(app) == {"/": 1, "/b": 1}


@OURS_ALONE
def test_a_filter_keeps_the_state(shop: Shop, topic: str) -> None:
    app = shop()
    per_url(app, topic)
    app.publish(topic, click("/"))
    app.run(once=True)

    changed = shop()
    per_url(changed, topic, lambda clicks: clicks.where("user != 'bot'").groupBy("url").count())
    verdict: Any = changed.jobs.prepared()["per_url"]
    assert str(verdict.comparison).startswith("goes on")
    changed.publish(topic, [click("/"), click("/", user="bot")])
    changed.run(once=True)
    assert rows_of(changed) == {"/": 2}


@OURS_ALONE
def test_what_our_operators_keep_is_part_of_the_shape(shop: Shop, topic: str) -> None:
    """Spark knows them by their code alone, and would go on with state of another meaning."""

    def shape(window: Any, by: str = "url", **of: Any) -> PlanShape:
        app = shop()
        key = ["window", by]
        per_url(app, topic, lambda clicks: windows.aggregate(clicks, window, by=by, of=of), key)
        prepared: Any = app.jobs.prepared()["per_url"]
        shape: PlanShape = prepared.manifest.shape
        return shape

    five = windows.session("5 minutes")
    first = shape(five, n=windows.count())
    assert shape(five, n=windows.count()) == first
    assert shape(five, visits=windows.count()) == first
    assert shape(windows.session("9 minutes"), n=windows.count()) != first
    assert shape(five, n=windows.max("user")) != first
    assert shape(five, "user", n=windows.count()) != first


@OURS_ALONE
def test_a_setting_of_spark_is_for_one_job_and_frozen_with_its_checkpoint(
    shop: Shop, topic: str
) -> None:
    app = shop()
    per_url(app, topic, spark={"spark.sql.shuffle.partitions": "3"})
    app.publish(topic, click("/"))
    assert str(getattr(app.jobs.prepared()["per_url"], "comparison", "refused")) == "new"
    app.run(once=True)
    other = shop()
    per_url(other, topic)
    verdict: Any = other.jobs.prepared()["per_url"]
    assert verdict.comparison.verdict == "unchanged"
    assert verdict.notes == ("spark.sql.shuffle.partitions is 2, and the checkpoint keeps 3",)


def test_a_job_with_settings_has_those_of_the_apps_session(spark: SparkSession) -> None:
    """Also where the session was there before the app, and Spark was started with others."""
    job = Job(
        name="own",
        function=by_user,
        inputs={},
        output=ToView(key=("url",)),
        settings={"spark.sql.shuffle.partitions": "3"},
    )
    name = "spark.sql.session.timeZone"
    spark.conf.set(name, "Asia/Tokyo")
    try:
        own = session_for(job, spark)
        assert own.conf.get(name) == "Asia/Tokyo"
        assert own.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set(name, "UTC")


def test_no_two_jobs_share_the_variables_that_spark_keeps_with_a_source(
    spark: SparkSession,
) -> None:
    """Spark changes them when a stream starts, unguarded: two that start at once broke both.

    Put into one map at the same time, they left it with a wrong size, and no task with it could be
    read any more (java.io.OptionalDataException), in this run and in every restart of the job.
    """
    jobs = [
        Job(name=name, function=by_user, inputs={}, output=ToView(key=("url",)))
        for name in ("one", "two")
    ]
    maps = {id_of_variables(session) for session in (spark, *(session_for(j, spark) for j in jobs))}
    assert len(maps) == 3


def id_of_variables(session: SparkSession) -> int:
    jvm: Any = session._jvm
    inside: Any = session._jsparkSession
    source = inside.sessionState().dataSourceManager().lookupDataSource(FORMAT)
    return int(jvm.System.identityHashCode(source.dataSourceCls().envVars()))
