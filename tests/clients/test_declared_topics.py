"""Topics that a part makes for itself, after another client has asked for them by name: the broker
has made them then, with one partition and a week of retention."""

import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

import millstream
from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.topic_terms import UnfitTopic
from millstream.publishing import make_declared_topic
from millstream.schemas.declaration import schema_of
from tests.clients.steps import create_topic, unique_name

Client = dict[str, Any]
Make = Callable[[Client, str], object]
PEOPLE = schema_of("id BIGINT NOT NULL, name STRING")


def policy_of(admin: AdminClient, topic: str) -> str | None:
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(30)
    policy: str | None = found["cleanup.policy"].value
    return policy


def _table(client: Client, name: str) -> None:
    make_declared_topic(client, DeclaredTable(name=name, schema=PEOPLE, key=("id",)))


def _changes_of_a_view(client: Client, name: str) -> None:
    from millstream.processing.writing.view_changes import make_changes_topic

    make_changes_topic(client["bootstrap.servers"], {}, name)


def _receipts(client: Client, name: str) -> None:
    from millstream.processing.writing.receipt_topic import ReceiptTopic
    from millstream.processing.writing.topic_write import TopicWrite

    job = name.removeprefix("_receipts.")
    write = TopicWrite(brokers=client["bootstrap.servers"], topic="any", job=job, client={})
    ReceiptTopic(write).make(tasks=1)


def _schemas(client: Client, name: str) -> None:
    from millstream.schemas.schema_topic import SchemaTopic

    with SchemaTopic(client, name=name) as schemas:
        schemas.refresh()


def _captured_table(client: Client, name: str) -> None:
    from millstream.capture.log_writer import LogWriter

    writer = LogWriter(client, unique_name("capture"))
    try:
        writer.make_topic(name, is_compacted=True)
    finally:
        writer.close()


def _run_of_a_capture(client: Client, name: str) -> None:
    from millstream.base.log_clients import Topics
    from millstream.capture.captures_topic import make_run_topic

    make_run_topic(Topics(client), name.removeprefix("_captures."))


def _events(client: Client, name: str) -> None:
    from millstream.eventsourcing.event_log import EventLog

    EventLog(client, name)


def _keys(client: Client, name: str) -> None:
    from millstream.eventsourcing.key_topic import KeyTopic

    KeyTopic(client, name).refresh()


def _positions_of_reactions(client: Client, name: str) -> None:
    from millstream.eventsourcing.reaction_runner import ReactionTopics

    ReactionTopics(name.removesuffix(".reactions"), "events", "commands", 1).make(client)


NEEDED: list[tuple[str, Make]] = [
    ("{}", _table),
    ("{}.changes.1", _changes_of_a_view),
    ("_receipts.{}", _receipts),
    ("{}", _schemas),
    ("{}", _captured_table),
    ("_captures.{}", _run_of_a_capture),
    ("{}.events", _events),
    ("{}", _keys),
    ("{}.reactions", _positions_of_reactions),
]


@pytest.mark.parametrize(("pattern", "make"), NEEDED, ids=[one.__name__ for _, one in NEEDED])
def test_a_topic_that_would_lose_what_is_needed_is_refused(
    bootstrap: str, pattern: str, make: Make
) -> None:
    client: Client = {"bootstrap.servers": bootstrap, "log_level": 3}
    name = pattern.format(unique_name("first"))
    create_topic(AdminClient(client), name, partitions=1)
    with pytest.raises(UnfitTopic, match=f"millstream topics alter {name} --config ") as refused:
        make(client, name)
    assert refused.value.topic == name


@pytest.mark.parametrize(("pattern", "make"), NEEDED, ids=[one.__name__ for _, one in NEEDED])
def test_a_topic_that_a_part_has_made_itself_fits(bootstrap: str, pattern: str, make: Make) -> None:
    client: Client = {"bootstrap.servers": bootstrap, "log_level": 3}
    name = pattern.format(unique_name("own"))
    make(client, name)
    make(client, name)


def test_what_can_be_done_without_is_warned_of(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    from millstream.eventsourcing.snapshots import SnapshotTopic
    from millstream.processing.outbox import Outbox
    from millstream.processing.reading.dead_letters import LETTERS_CONFIG
    from millstream.processing.reading.late_events import COUNTS_CONFIG
    from millstream.queues.terms import QueueTerms, set_up

    client: Client = {"bootstrap.servers": bootstrap, "log_level": 3}
    names = [unique_name("spare") for _ in range(3)] + [f"{unique_name('jobs')}.dead"]
    for name in names:
        create_topic(AdminClient(client), name, partitions=1)
    with caplog.at_level(logging.WARNING):
        SnapshotTopic(client, names[0], partitions=1).close()
        outbox = Outbox(bootstrap, {})
        for name, config in ((names[1], LETTERS_CONFIG), (names[2], COUNTS_CONFIG)):
            outbox.send(name, key=b"1", value=b"1", topic_config=config)
        outbox.close(doing="try")
        set_up(QueueTerms(name=names[3].removesuffix(".dead")), client)
    for name in names:
        assert f"millstream topics alter {name} --config" in caplog.text


def test_another_number_of_partitions_than_declared_is_warned_of(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    client: Client = {"bootstrap.servers": bootstrap, "log_level": 3}
    name = unique_name("clicks")
    create_topic(AdminClient(client), name, partitions=1)
    make_declared_topic(client, DeclaredTopic(name=name, partitions=3))
    assert f"millstream topics add-partitions {name} --to 3" in caplog.text


def test_an_app_makes_its_topics_before_any_client_can_ask_for_them(tmp_path: Path) -> None:
    app = millstream.App(f"shop-{uuid.uuid4().hex[:6]}", data=tmp_path / "data")
    app.table("people", schema="id BIGINT, name STRING", key="id", partitions=2)
    app.topic("totals", schema="id BIGINT, n BIGINT", key="id")

    @app.job(to="totals", key="id")
    def counted(people: Any) -> Any:
        return people

    with app:
        admin = AdminClient({"bootstrap.servers": app.bootstrap, "log_level": 3})
        there = admin.list_topics(timeout=30).topics
        assert len(there["people"].partitions) == 2
        assert policy_of(admin, "people") == "compact"
        assert "totals" not in there  # only Spark knows whether its rows replace one another
        app.table("later", schema="id BIGINT, name STRING", key="id")
        assert policy_of(admin, "later") == "compact"


def test_a_run_refuses_an_unfit_table_before_spark_starts(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = unique_name("people")
    create_topic(AdminClient({"bootstrap.servers": bootstrap, "log_level": 3}), name, partitions=1)
    app = millstream.App("refused", data=tmp_path / "data", brokers=bootstrap)
    app.table(name, schema="id BIGINT, name STRING", key="id")

    @app.view(key="id", inputs={"people": name})
    def shown(people: Any) -> Any:
        return people

    monkeypatch.setattr(app.jobs, "_open_session", lambda: pytest.fail("Spark was started"))
    with app:
        with pytest.raises(UnfitTopic, match=f"Topic {name} is not compacted"):
            app.run(once=True)
        with pytest.raises(UnfitTopic):
            app.publish(name, {"id": 1, "name": "ada"})


def test_the_tasks_of_a_batch_do_not_ask_for_the_configs_of_receipts_again(
    bootstrap: str, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a job has compared them: a task asks neither for all topics nor for configs."""
    from millstream.processing.writing import receipt_topic
    from millstream.processing.writing.receipts import Writer
    from millstream.processing.writing.topic_sink import claim_epoch, write_once
    from millstream.processing.writing.topic_write import TopicWrite

    topic = unique_name("out")
    create_topic(admin, topic)
    write = TopicWrite(brokers=bootstrap, topic=topic, job=unique_name("job"), client={})
    epoch = claim_epoch(write)
    monkeypatch.setattr(receipt_topic, "check_existing", lambda *_: pytest.fail("asked again"))
    writer = Writer(job=write.job, epoch=epoch, query="q", batch=0, task=6)
    assert write_once(write, writer, (topic, b"k", b"v", None, -1, 0), iter(())) == 1
