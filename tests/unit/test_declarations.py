"""Topics and tables as an application writes them."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.app import App, is_loading
from millstream.base.declared import BadDeclaration, DeclaredTopic, EventTime
from millstream.declarations import declared_table, declared_topic

SCHEMA = "user STRING, url STRING, at TIMESTAMP"


@dataclass
class Page:
    url: str
    title: str | None


def test_a_topic_takes_its_words_as_they_are_written() -> None:
    found = declared_topic(
        "clicks",
        schema=SCHEMA,
        key="user",
        event_time="at",
        lateness="10 minutes",
        late="correct",
        keep="2 days",
        ahead=90,
        idle="never",
        partitions=3,
    )
    assert (found.name, found.key, found.partitions, found.encoding) == (
        "clicks",
        ("user",),
        3,
        "json",
    )
    assert found.event_time == EventTime(
        column="at",
        lateness_ms=600_000,
        late="correct",
        keep_ms=172_800_000,
        ahead_ms_max=90_000,
        idle_ms=None,
    )


def test_what_is_not_said_has_defaults() -> None:
    assert declared_topic("raw") == DeclaredTopic(name="raw")
    timed = declared_topic("clicks", schema=SCHEMA, event_time="at")
    assert timed.event_time == EventTime(column="at")


def test_a_schema_may_be_a_class() -> None:
    table = declared_table("pages", schema=Page, key=["url"])
    assert table.schema.ddl == "url STRING NOT NULL, title STRING"
    assert table.key == ("url",)


def test_terms_of_time_need_a_time() -> None:
    with pytest.raises(BadDeclaration, match="clicks: lateness= needs event_time="):
        declared_topic("clicks", schema=SCHEMA, lateness="10 minutes")


def test_a_duration_that_is_none_is_told_with_its_topic() -> None:
    with pytest.raises(BadDeclaration, match="clicks: lateness='ten' is not a duration"):
        declared_topic("clicks", schema=SCHEMA, event_time="at", lateness="ten")


def test_an_event_time_that_is_no_column_is_refused() -> None:
    with pytest.raises(BadDeclaration, match="clicks: event_time='when' is no field of it"):
        declared_topic("clicks", schema=SCHEMA, event_time="when")


# The App


def test_an_app_registers_its_jobs_by_the_names_of_their_functions() -> None:
    app = App("shop")
    app.topic("clicks", schema=SCHEMA)

    @app.view(key=["user", "url"], every="5 seconds")
    def per_user(clicks: object) -> object: ...

    @app.job(to="urls", key="url", mode="append")
    def urls(clicks: object) -> object: ...

    assert list(app.catalog.jobs) == ["per_user", "urls"]
    assert app.catalog.jobs["per_user"].trigger_ms == 5_000
    assert per_user.__name__ == "per_user"


def test_a_view_needs_a_key() -> None:
    with pytest.raises(BadDeclaration, match=r"app\.view: give key="):
        App("shop").view(key=[])


def test_a_mode_that_spark_does_not_have_is_refused() -> None:
    app = App("shop")
    app.topic("clicks", schema=SCHEMA)
    with pytest.raises(BadDeclaration, match="job whole: mode='complete': one of append, update"):
        app.view(key="url", name="whole", mode="complete")(lambda clicks: clicks)


def test_what_is_published_needs_a_declared_topic() -> None:
    with pytest.raises(BadDeclaration, match="'clicks' is no topic of this app"):
        App("shop").publish("clicks", {})


def test_an_app_does_not_run_while_its_file_is_loaded() -> None:
    token = is_loading.set(True)
    try:
        assert App("shop").run() == []
    finally:
        is_loading.reset(token)


def test_an_app_is_declared_without_spark(tmp_path: Path) -> None:
    """Spark is an extra: queues and topics do not need it, and a run says what is missing."""
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import millstream
app = millstream.App("shop", data={str(tmp_path / "shop")!r}, brokers="127.0.0.1:1")
app.topic("clicks", schema="url STRING")
app.view(key="url", name="v")(lambda clicks: clicks)
try:
    app.run(once=True)
except millstream.jobs.SparkNotInstalled as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'millstream[spark]'" in done.stdout, done.stderr
