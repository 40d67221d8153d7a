"""What is wrong with a job is said with its name, and does not stop the others."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App, JobsFailed
from millstream.base.ports import BatchReceipt
from millstream.processing.jobs.progress import JobProgress
from millstream.processing.kafka_clients import BrokerNotReached
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.spark.conftest import OURS_ALONE

SCHEMA = "user STRING, n BIGINT"


# What is wrong with a job has nothing to do with the broker: ours will do.
pytestmark = OURS_ALONE


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = unique_name("numbers")
    create_topic(admin, name, partitions=2)
    return name


@pytest.fixture
def app(spark: SparkSession, bootstrap: str, tmp_path: Path, topic: str) -> Iterator[App]:
    with App("shop", data=tmp_path / "shop", brokers=bootstrap) as opened:
        opened.topic(topic, schema=SCHEMA, key="user")
        yield opened


def view(app: App, topic: str, function: Callable[..., Any], name: str = "bad") -> None:
    app.view(key="user", name=name, inputs={"numbers": topic})(function)


def numbers(count: int, partition: int = 0) -> list[Sent]:
    return [
        Sent(value=b'{"user": "u%d", "n": %d}' % (number, number), partition=partition)
        for number in range(count)
    ]


def failure_of(app: App, **terms: Any) -> str:
    with pytest.raises(JobsFailed) as caught:
        app.run(once=True, **terms)
    return str(caught.value)


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


# The application's code


def test_a_function_that_raises_is_told_with_its_line_and_others_go_on(
    app: App, topic: str, bootstrap: str
) -> None:
    def raises(numbers: DataFrame) -> DataFrame:
        return numbers.select("user", "m")

    view(app, topic, raises)
    view(app, topic, lambda numbers: numbers.select("user", "n"), name="good")
    produce(bootstrap, topic, numbers(3))
    told = failure_of(app)
    assert "job bad: its function raised AnalysisException" in told
    assert f"(at {line_of(raises, 1)})" in told
    assert "`m`" in told
    assert {one.job: one.state for one in app.progress()} == {"bad": "failed", "good": "done"}
    assert app.view("good").count() == 3


def test_code_that_raises_in_a_worker_is_told_with_its_row(
    app: App, topic: str, bootstrap: str
) -> None:
    def halves(numbers: DataFrame) -> DataFrame:
        @F.udf("bigint")
        def half(n):  # type: ignore[no-untyped-def]  # hints would choose another kind of UDF
            if n == 5:
                raise ValueError("five has no half")
            return n // 2

        return numbers.select("user", half("n").alias("half"))

    view(app, topic, halves)
    produce(bootstrap, topic, numbers(3, partition=1) + numbers(7))
    told = failure_of(app)
    assert "job bad failed: ValueError: five has no half" in told
    assert f"(at {line_of(halves, 4)})" in told
    assert f'on {topic}[0] offset 5: {{"user": "u5", "n": 5}}' in told


def test_what_is_no_frame_is_refused(app: App, topic: str) -> None:
    view(app, topic, lambda numbers: "rows")
    assert "returned 'rows'; it must return a DataFrame" in failure_of(app)


def test_a_frame_of_something_else_is_refused(app: App, topic: str, spark: SparkSession) -> None:
    view(app, topic, lambda numbers: spark.range(3))
    assert "returned a frame that is no stream" in failure_of(app)


def test_a_plan_that_no_stream_can_run_is_refused_before_it_starts(app: App, topic: str) -> None:
    view(app, topic, lambda numbers: numbers.orderBy("n"))
    told = failure_of(app)
    assert "job bad: Spark cannot run this plan as a stream: Sorting" in told
    assert not (app.data / "jobs" / "bad" / "manifest.json").exists()


def test_an_input_that_is_used_twice_is_told_in_words_of_the_application(
    app: App, topic: str, bootstrap: str
) -> None:
    produce(bootstrap, topic, numbers(1))
    view(app, topic, lambda numbers: numbers.union(numbers))
    assert "job bad failed: an input is used twice in one plan" in failure_of(app)


# What may pass


def test_what_may_pass_is_tried_again(app: App, topic: str, bootstrap: str) -> None:
    attempts: list[int] = []
    failures: list[tuple[int, int | None]] = []

    def write(rows: DataFrame, receipt: BatchReceipt) -> None:
        attempts.append(receipt.epoch)
        (now,) = app.progress()
        failures.append((now.failures, now.retry_at_ms))
        if len(attempts) < 3:
            raise BrokerNotReached(brokers="elsewhere:1", doing="write")

    app.sink(write, name="stubborn", inputs={"numbers": topic})(lambda numbers: numbers)
    produce(bootstrap, topic, numbers(1))
    (progress,) = app.run(once=True)
    assert attempts == sorted(set(attempts)), "each start has a higher epoch"
    assert (len(attempts), progress.restarts >= 2, progress.state) == (3, True, "done")
    assert "no broker answers at elsewhere:1" in str(progress.error)
    assert failures == [(0, None), (1, None), (2, None)], "until a batch is done"
    assert (progress.failures, progress.retry_at_ms) == (0, None)


def test_a_worker_that_dies_is_no_end(app: App, topic: str, bootstrap: str, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def dies(numbers: DataFrame) -> DataFrame:
        @F.udf("bigint")
        def once(n):  # type: ignore[no-untyped-def]  # the same
            if not died.exists():
                died.touch()
                os._exit(1)
            return n

        return numbers.select("user", once("n").alias("n"))

    view(app, topic, dies)
    produce(bootstrap, topic, numbers(3))
    (progress,) = app.run(once=True)
    assert (progress.restarts >= 1, progress.state) == (True, "done")
    assert app.view("bad").count() == 3


# Topics and checkpoints


def test_a_topic_that_does_not_exist_is_named(app: App, topic: str) -> None:
    app.topic(f"{topic}s", schema=SCHEMA)
    view(app, f"{topic}s", lambda numbers: numbers.select("user", "n"))
    assert failure_of(app).startswith(
        f"job bad failed: Topic {topic}s does not exist. Did you mean {topic}?"
    )


def test_a_schema_that_cannot_be_read_is_refused(
    app: App, topic: str, spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    app.publish(topic, {"user": "ada", "n": 1})
    with App("other", data=tmp_path / "other", brokers=bootstrap) as other:
        other.topic(topic, schema="user STRING, n BOOLEAN")
        view(other, topic, lambda numbers: numbers.select("user", "n"))
        with pytest.raises(Exception, match=f"(?s){topic}.*BIGINT.*BOOLEAN"):
            other.run(once=True)


def test_a_checkpoint_of_another_job_is_refused(app: App, topic: str, bootstrap: str) -> None:
    view(app, topic, lambda numbers: numbers.select("user", "n"), name="mine")
    produce(bootstrap, topic, numbers(1))
    app.run(once=True)
    jobs = app.data / "jobs"
    shutil.copytree(jobs / "mine", jobs / "bad")
    view(app, topic, lambda numbers: numbers.select("user", "n"))
    told = failure_of(app, only=["bad"])
    assert "is of job mine. Give each job a directory of its own" in told


# Names, before Spark


def test_two_jobs_with_one_name_are_refused_at_once(app: App, topic: str) -> None:
    view(app, topic, lambda numbers: numbers)
    with pytest.raises(Exception, match="two jobs with the name bad"):
        view(app, topic, lambda numbers: numbers)


def test_an_unknown_parameter_is_refused_with_what_there_is(app: App, topic: str) -> None:
    with pytest.raises(
        Exception, match=f"'number' is no topic, table or view .*there are: {topic}"
    ):
        app.view(key="user", name="bad")(lambda number: number)


def test_an_app_without_jobs_says_how_to_register_one(app: App) -> None:
    with pytest.raises(Exception, match="has no jobs: register functions"):
        app.run(once=True)


def test_a_failure_is_in_the_progress(app: App, topic: str) -> None:
    view(app, topic, lambda numbers: None)
    failure_of(app)
    (progress,) = app.progress()
    assert isinstance(progress, JobProgress)
    assert progress.state == "failed"
    assert "returned None" in str(progress.error)


def test_other_processes_see_how_jobs_get_on(app: App, topic: str, bootstrap: str) -> None:
    view(app, topic, lambda numbers: numbers.select("nobody"), name="bad")
    view(app, topic, lambda numbers: numbers, name="good")
    produce(bootstrap, topic, numbers(3))
    with App("shop", data=app.data, brokers=bootstrap) as other:
        assert other.jobs.status("good") is None
        failure_of(app)
        good, bad = other.jobs.status("good"), other.jobs.status("bad")
    assert good is not None
    assert (good.progress.state, good.progress.rows, good.process) == ("done", 3, os.getpid())
    assert bad is not None
    assert bad.progress.state == "failed"
    assert "nobody" in str(bad.progress.error)
