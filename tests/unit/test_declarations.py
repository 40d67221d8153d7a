"""Topics and tables as an application writes them."""

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream.app import App, is_loading
from millstream.base.declared import BadDeclaration, DeclaredTopic, EventTime
from millstream.base.errors import Rejected
from millstream.base.schema import BadSchema
from millstream.declarations import declared_table, declared_topic
from millstream.processing.reading.frames import Reading, topic_read
from millstream.queues.asked import BadTerms
from millstream.schemas.compatibility import UnreadableTopic
from tests.support import sale_message
from tests.support.sale_message import Sale, sale_files

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


@pytest.mark.parametrize("term", ["lateness", "keep", "ahead", "idle"])
def test_a_duration_below_zero_is_refused(term: str) -> None:
    terms: dict[str, Any] = {term: -1}
    with pytest.raises(BadDeclaration, match="a duration from"):
        declared_topic("clicks", schema=SCHEMA, event_time="at", **terms)


def test_what_to_do_about_lost_records_is_a_choice() -> None:
    assert declared_topic("clicks").on_loss == "fail"
    skipping = declared_topic("clicks", on_loss="skip")
    assert topic_read(skipping, Reading(brokers="b:9092")).on_loss == "skip"
    with pytest.raises(BadDeclaration, match="on_loss='ignore': one of fail, skip"):
        declared_topic("clicks", on_loss="ignore")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_has_at_least_one_partition(partitions: int) -> None:
    with pytest.raises(BadDeclaration, match=f"partitions={partitions}: a number from 1 on"):
        declared_topic("clicks", partitions=partitions)
    with pytest.raises(BadDeclaration, match=f"partitions={partitions}: a number from 1 on"):
        declared_table("users", schema=SCHEMA, key="user", partitions=partitions)


def test_a_job_that_is_rebuilt_is_among_those_that_run(tmp_path: Path) -> None:
    app = App("shop", data=tmp_path)
    app.topic("clicks", schema=SCHEMA)
    for name in ("a", "b"):
        app.view(key="url", name=name)(lambda clicks: clicks)
    with pytest.raises(Rejected, match="job b is to be rebuilt, but is not among those to run"):
        app.run(only=["a"], rebuild=["b"])


def test_an_event_time_is_a_time() -> None:
    with pytest.raises(BadDeclaration, match="event_time='user' is a STRING: declare it as TIME"):
        declared_topic("clicks", schema=SCHEMA, event_time="user")


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


# --- Protobuf ---------------------------------------------------------------------------------


def given_messages(folder: Path) -> list[Any]:
    file = folder / "sale.descriptors"
    file.write_bytes(sale_files())
    return [Sale, (sale_files(), "shop.Sale"), (file, "shop.Sale"), (str(file), "shop.Sale")]


def test_a_message_of_protobuf_brings_its_schema(tmp_path: Path) -> None:
    for given in given_messages(tmp_path):
        topic = declared_topic("sales", encoding="protobuf", message=given, event_time="at")
        table = declared_table("sales", encoding="protobuf", message=given, key="id")
        assert topic.message is not None
        assert topic.message.name == "shop.Sale"
        assert topic.schema is not None
        assert topic.schema.ddl == table.schema.ddl == sale_message.DDL


def test_a_schema_may_leave_out_fields_of_the_message() -> None:
    topic = declared_topic("sales", encoding="protobuf", message=Sale, schema="item STRING")
    assert topic.schema is not None
    assert topic.schema.ddl == "item STRING"
    with pytest.raises(UnreadableTopic, match="item"):
        declared_topic("sales", encoding="protobuf", message=Sale, schema="item BIGINT")
    with pytest.raises(BadSchema, match=r"shop.Sale has no field colour \(id, item, at\)"):
        declared_topic("sales", encoding="protobuf", message=Sale, schema="colour STRING")


def test_a_declared_message_goes_to_other_processes() -> None:
    """Its class does not: nobody there can import it."""
    declared = declared_topic("sales", encoding="protobuf", message=Sale, key="id")
    code = (
        "import pickle, sys; from millstream.values.row_records import row_records; "
        "declared = pickle.load(sys.stdin.buffer); "
        "made = row_records(declared, declared.schema).record({'id': 7, 'item': 'tea'}); "
        "sys.stdout.buffer.write(pickle.dumps(made))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, input=pickle.dumps(declared), capture_output=True, check=True)
    assert pickle.loads(run.stdout) == (b"7", Sale(id=7, item="tea").SerializeToString())


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"encoding": "protobuf"}, "needs message="),
        ({"message": Sale}, "give encoding='protobuf'"),
        ({"encoding": "protobuf", "message": int}, "is no message of Protobuf"),
        ({"encoding": "protobuf", "message": (b"", "shop.Sale")}, "no message is named"),
        ({"encoding": "protobuf", "message": ("gone", "shop.Sale")}, "gone cannot be read"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(terms: dict[str, Any], words: str) -> None:
    with pytest.raises((BadDeclaration, BadSchema), match=words):
        declared_topic("sales", **terms)


def test_a_table_needs_a_schema_or_a_message() -> None:
    with pytest.raises(BadDeclaration, match="has no schema"):
        declared_table("sales", key="id")


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", ".", "..", "a" * 245, "a\n", 7])
def test_a_name_that_no_broker_takes_is_refused_where_it_is_declared(name: Any) -> None:
    app = App("shop", brokers="127.0.0.1:1")
    with pytest.raises(BadDeclaration, match="topic's name"):
        app.topic(name)
    with pytest.raises(BadDeclaration, match="topic's name"):
        app.table(name, schema="id INT", key="id")
    app.topic("clicks")
    with pytest.raises(BadDeclaration, match="topic's name"):
        app.job(to=name, name="copies")(lambda clicks: clicks)


def test_names_that_a_broker_takes_for_one_are_refused_where_they_are_declared() -> None:
    app = App("shop", brokers="127.0.0.1:1")
    app.topic("a.b")
    app.topic("a.b")
    with pytest.raises(BadDeclaration, match=r"differ in '\.' and '_' alone"):
        app.topic("a_b")


def test_an_app_whose_topics_would_have_too_long_names_is_refused() -> None:
    with pytest.raises(BadTerms, match="150 at most"):
        App("a" * 151)
    app = App("a" * 150, brokers="127.0.0.1:1")
    app.topic("clicks")
    with pytest.raises(BadDeclaration, match="as topics are named after both"):
        app.job(to="copies", name="b" * 80)(lambda clicks: clicks)
