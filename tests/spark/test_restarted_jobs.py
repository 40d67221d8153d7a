"""A job is asked to begin again: while it runs, and after it has failed for good."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream import App
from millstream.jobs import NobodyRunsIt
from tests.clients.steps import unique_name
from tests.spark.steps import WITHIN_S
from tests.support.waiting import eventually

SCHEMA = "url STRING, n BIGINT"


@pytest.fixture
def app(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[App]:
    with App(unique_name("shop"), data=tmp_path / "data", brokers=bootstrap) as app:
        yield app


@pytest.fixture
def topic(app: App) -> str:
    name = unique_name("clicks")
    app.topic(name, schema=SCHEMA, key="url", partitions=1)
    return name


@contextmanager
def running(app: App) -> Iterator[None]:
    """As `millstream up` runs them; what failed is looked at by the tests."""
    jobs = threading.Thread(target=lambda: app.jobs.run(stays=True))
    jobs.start()
    try:
        yield
    finally:
        app.stop()
        jobs.join(WITHIN_S)


def state_of(app: App, job: str) -> str:
    status = app.jobs.status(job)
    return "" if status is None else status.progress.state


def test_a_job_that_runs_goes_on_from_its_checkpoint(app: App, topic: str) -> None:
    app.view(key="url", name="counts", inputs={"clicks": topic})(
        lambda clicks: clicks.groupBy("url").count()
    )
    app.publish(topic, [{"url": "/", "n": n} for n in range(3)])
    with running(app):
        eventually(lambda: count_of(app) == 3, what="the first rows", within_s=WITHIN_S)
        app.jobs.restart("counts")
        eventually(lambda: restarts_of(app) == 1, what="the restart", within_s=WITHIN_S)
        receipt = app.publish(topic, [{"url": "/", "n": 3}])
        row = app.view("counts").get("/", after=receipt, timeout=WITHIN_S)
    assert row is not None
    assert row["count"] == 4
    with pytest.raises(NobodyRunsIt, match="nobody runs job counts"):
        app.jobs.restart("counts")


def test_a_job_that_has_failed_begins_again_when_its_fault_is_mended(
    app: App, topic: str, tmp_path: Path
) -> None:
    mended, written = tmp_path / "mended", tmp_path / "written"

    def write(rows: DataFrame, _receipt: object) -> None:
        if not mended.exists():
            raise ValueError("the other side does not take it")
        written.write_text(str(rows.count()))

    app.sink(write, name="copies", inputs={"clicks": topic})(lambda clicks: clicks)
    app.publish(topic, [{"url": "/", "n": n} for n in range(3)])
    with running(app):
        eventually(lambda: state_of(app, "copies") == "failed", what="it fails", within_s=WITHIN_S)
        mended.touch()
        app.jobs.restart("copies")
        eventually(written.exists, what="the batch that had failed", within_s=WITHIN_S)
        eventually(lambda: state_of(app, "copies") == "running", what="it runs", within_s=WITHIN_S)
    assert written.read_text() == "3"


def count_of(app: App) -> int:
    if not app.views.store("counts").generations():
        return 0
    row = app.view("counts").get("/")
    return 0 if row is None else row["count"]


def restarts_of(app: App) -> int:
    status = app.jobs.status("counts")
    return 0 if status is None else status.progress.restarts
