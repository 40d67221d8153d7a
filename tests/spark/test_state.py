"""The state of jobs, seen, copied, put back and moved by `millstream state`: real Spark."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from millstream.base.declared import DeclaredTopic
from millstream.cli import app
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.operators import windows
from millstream.processing.reading.frames import Reading, stream_frame
from millstream.processing.state.state_view import content_of, state_stores
from millstream.processing.writing.output import start_view
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.spark.conftest import OURS_ALONE
from tests.spark.feeds import Feed, noon, run_to_the_end
from tests.spark.steps import WITHIN_S

JOB = "counts"


@dataclass
class CountingJob:
    """A job that counts urls into a view of an app. Each run takes what is new."""

    session: SparkSession
    bootstrap: str
    topic: str
    data: Path

    @property
    def directory(self) -> JobDirectory:
        return JobDirectory(self.data / "jobs" / JOB, job=JOB)

    @property
    def checkpoint(self) -> Path:
        return self.directory.checkpoint(1)

    def run(self, *urls: str) -> None:
        values = [json.dumps({"url": url}).encode() for url in urls]
        produce(self.bootstrap, self.topic, [Sent(value=value) for value in values])
        if self.directory.manifest() is None:
            shape = PlanShape(sources={self.topic: self.topic})
            self.directory.write(first_manifest(JOB, shape, "code", {}))
        self._run()

    def _run(self) -> None:
        declared = DeclaredTopic(name=self.topic, schema=schema_of("url STRING"))
        counted = stream_frame(self.session, declared, Reading(brokers=self.bootstrap))
        store = SqliteView(self.data / "views" / f"{JOB}.sqlite", view=JOB, key=["url"])
        writer = start_view(
            counted.groupBy("url").count(), store, job=JOB, checkpoint=self.checkpoint
        )
        writer = writer.outputMode("update").option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"
        store.close()

    def counts(self) -> dict[str, int]:
        with ViewReader(self.data / "views" / f"{JOB}.sqlite", view=JOB) as reader:
            return {row["url"]: row["count"] for row in reader.scan()}


@pytest.fixture
def job(spark: SparkSession, bootstrap: str, admin: AdminClient, tmp_path: Path) -> CountingJob:
    topic = unique_name("clicks")
    create_topic(admin, topic)
    return CountingJob(spark, bootstrap, topic, tmp_path / "shop.millstream")


@pytest.fixture
def state(job: CountingJob) -> Callable[..., Any]:
    """Call `millstream state`; it shares this process's Spark."""

    def call(*arguments: str) -> Any:
        given = ["state", *arguments, "--data", str(job.data)]
        found = CliRunner().invoke(app, given, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found

    return call


@OURS_ALONE
def test_a_job_goes_on_after_its_state_was_seen_moved_and_restored(
    job: CountingJob, state: Callable[..., Any], tmp_path: Path
) -> None:
    """One job through all commands: a start of Spark's queries is what takes time here."""
    job.run("/", "/", "/a")

    (shown,) = json.loads(state("show", JOB, "--json").stdout)
    assert (shown["keys"], shown["variable"]) == (2, None)
    found = {row["key"]["url"]: row["value"]["count"] for row in shown["rows"]}
    assert found == {"/": 2, "/a": 1}

    copy = tmp_path / "copy"
    state("copy", JOB, str(copy))
    job.run("/", "/b")
    assert job.counts() == {"/": 3, "/a": 1, "/b": 1}

    state("restore", JOB, str(copy), "--yes")
    assert job.counts() == {"/": 2, "/a": 1}
    job.run("/c")
    assert job.counts() == {"/": 3, "/a": 1, "/b": 1, "/c": 1}

    state("repartition", JOB, "3")
    manifest = job.directory.manifest()
    assert manifest is not None
    assert manifest.settings["spark.sql.shuffle.partitions"] == "3"
    job.run("/", "/c", "/d")
    assert job.counts() == {"/": 4, "/a": 1, "/b": 1, "/c": 2, "/d": 1}


@OURS_ALONE
def test_a_job_without_state_is_shown_without_spark(
    job: CountingJob, state: Callable[..., Any]
) -> None:
    job.directory.write(first_manifest(JOB, PlanShape(sources={}), "code", {}))
    assert "Job counts keeps no state." in state("show", JOB).output


def test_what_our_operators_keep_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "clicks", "user STRING, at TIMESTAMP")
    feed.add({"user": "ada", "at": noon(0)}, {"user": "bob", "at": noon(1)})
    clicks = feed.stream(event_time="at", lateness="1 minute")
    sessions = windows.aggregate(
        clicks, windows.session("10 seconds"), by="user", of={"n": windows.count()}, slots=2
    )
    checkpoint = tmp_path / "checkpoint"
    run_to_the_end(sessions, checkpoint, mode="update")
    (store,) = state_stores(spark, checkpoint)
    assert store.variable is not None
    content = content_of(spark, checkpoint, store, limit=10)
    assert content.keys == len(content.rows) > 0
    shown = json.dumps(content.rows)
    assert "ada" in shown
    assert "bob" in shown
    assert "bytes>" not in shown
