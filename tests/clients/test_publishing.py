"""Rows of an application into its topics: durable, in the declared shape, with its schema."""

import contextlib
import json
import os
import signal
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from millstream import App, Broker
from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.record import Record
from millstream.declarations import declared_topic
from millstream.publishing import (
    Deadline,
    NotARawValue,
    Publisher,
    PublishFailed,
    PublishRefused,
    PublishTimedOut,
)
from millstream.queues.client_trouble import ClientTrouble
from millstream.schemas.compatibility import IncompatibleSchema, UnreadableTopic
from millstream.schemas.declaration import schema_of
from millstream.schemas.registration import settle_reader
from millstream.schemas.schema_book import DamagedSchemaRecord, OtherEncoding
from millstream.schemas.schema_topic import SchemaTopic
from millstream.values.row_records import BadRow
from tests.clients.steps import Sent, create_topic, end_offset, produce, read, unique_name
from tests.support.sale_message import Sale


@pytest.fixture
def name() -> str:
    """Of a topic that is not there yet."""
    return unique_name("sales")


@pytest.fixture
def publisher(bootstrap: str, name: str) -> Iterator[Publisher]:
    publisher = opened(bootstrap, name)
    yield publisher
    publisher.close()


def opened(bootstrap: str, name: str) -> Publisher:
    config = {"bootstrap.servers": bootstrap, "log_level": 3}
    return Publisher(config, schemas_topic=f"_schemas-{name}")


def sales(name: str, ddl: str = "id BIGINT NOT NULL, item STRING", **terms: Any) -> DeclaredTopic:
    return DeclaredTopic(name=name, schema=schema_of(ddl), key=("id",), **terms)


def test_rows_are_in_the_topic_when_the_call_returns(
    bootstrap: str, publisher: Publisher, name: str
) -> None:
    receipt = publisher.publish(sales(name, partitions=1), {"id": 1, "item": "tea"})
    assert (receipt.topic, receipt.partition, receipt.offset) == (name, 0, 0)
    receipts = publisher.publish(sales(name), [{"id": 2}, {"id": 3}])
    assert [one.offset for one in receipts] == [1, 2]
    found = [(one.key(), json.loads(one.value() or b"")) for one in read(bootstrap, name, 3)]
    assert found[:2] == [(b"1", {"id": 1, "item": "tea"}), (b"2", {"id": 2, "item": None})]


def test_a_bad_row_keeps_back_all_of_its_call(
    bootstrap: str, publisher: Publisher, name: str
) -> None:
    topic = sales(name, partitions=1)
    with pytest.raises(BadRow, match="`id`: expected BIGINT, found 'two'"):
        publisher.publish(topic, [{"id": 1}, {"id": "two"}])
    assert end_offset(bootstrap, name) == 0
    assert publisher.publish(topic, {"id": 1}).offset == 0


def test_a_row_of_a_table_needs_its_key(publisher: Publisher, name: str) -> None:
    """Nobody could read it: a table is by key."""
    table = DeclaredTable(name=name, schema=schema_of("id BIGINT, item STRING"), key=("id",))
    with pytest.raises(BadRow, match="a row of a table needs its key, id"):
        publisher.publish(table, {"item": "tea"})


def test_a_table_is_compacted_and_takes_deletes(
    bootstrap: str, publisher: Publisher, admin: AdminClient, name: str
) -> None:
    table = DeclaredTable(name=name, schema=schema_of("id BIGINT, item STRING"), key=("id",))
    publisher.publish(table, {"id": 1, "item": "tea"})
    publisher.publish(table, {"id": 1, "_change": "delete"})
    _, tombstone = read(bootstrap, name, 2)
    assert (tombstone.key(), tombstone.value()) == (b"1", None)
    resource = ConfigResource("topic", name)
    config = admin.describe_configs([resource])[resource].result()
    assert config["cleanup.policy"].value == "compact"


def test_a_topic_without_a_schema_takes_records(
    bootstrap: str, publisher: Publisher, name: str
) -> None:
    topic = DeclaredTopic(name=name, partitions=1)
    publisher.publish(topic, [b"a", "b", Record(key=b"k", value=None)])
    found = [(one.key(), one.value()) for one in read(bootstrap, name, 3)]
    assert found == [(None, b"a"), (None, b"b"), (b"k", None)]
    with pytest.raises(NotARawValue, match="has no schema: publish bytes, text or a Record"):
        publisher.publish(topic, {"id": 1})


def test_a_next_version_may_add_and_widen(bootstrap: str, name: str) -> None:
    for ddl in ("id INT NOT NULL", "id BIGINT NOT NULL, item STRING"):
        publisher = opened(bootstrap, name)
        publisher.publish(sales(name, ddl), {"id": 1})
        publisher.close()
    publisher = opened(bootstrap, name)
    with pytest.raises(IncompatibleSchema, match="`id` was BIGINT and is STRING"):
        publisher.publish(sales(name, "id STRING"), {"id": "1"})
    with pytest.raises(OtherEncoding):
        publisher.publish(sales(name, encoding="avro"), {"id": 1})
    publisher.close()


def test_a_reader_may_leave_fields_out(bootstrap: str, publisher: Publisher, name: str) -> None:
    publisher.publish(sales(name), {"id": 1})
    with SchemaTopic({"bootstrap.servers": bootstrap}, name=f"_schemas-{name}") as schemas:
        settle_reader(schemas, sales(name, "id BIGINT NOT NULL"))
        assert len(schemas.versions(name)) == 1
        settle_reader(schemas, sales(name, "id BIGINT NOT NULL, item STRING, note STRING"))
        assert len(schemas.versions(name)) == 2
        with pytest.raises(UnreadableTopic, match="`item` was STRING and is INT"):
            settle_reader(schemas, sales(name, "id BIGINT NOT NULL, item INT"))


def test_the_schemas_of_another_registry_are_told_from_ours(
    bootstrap: str, publisher: Publisher, admin: AdminClient, name: str
) -> None:
    create_topic(admin, f"_schemas-{name}", config={"cleanup.policy": "compact"})
    registry = Sent(key=b'{"keytype":"SCHEMA","subject":"x"}', value=b'{"subject":"x","id":1}')
    produce(bootstrap, f"_schemas-{name}", [registry])
    with pytest.raises(DamagedSchemaRecord, match=r"the setting schemas_topic \(MILLSTREAM_SCHEM"):
        publisher.publish(sales(name), {"id": 1})


def test_rows_become_messages_of_protobuf(bootstrap: str, publisher: Publisher, name: str) -> None:
    topic = declared_topic(name, encoding="protobuf", message=Sale, key="id", partitions=1)
    publisher.publish(topic, [{"id": 1, "item": "tea"}, {"id": 2}])
    with pytest.raises(BadRow, match="`item`: expected STRING, found 3"):
        publisher.publish(topic, {"id": 3, "item": 3})
    found = [(one.key(), Sale.FromString(one.value() or b"")) for one in read(bootstrap, name, 2)]
    assert found == [(b"1", Sale(id=1, item="tea")), (b"2", Sale(id=2))]
    with SchemaTopic({"bootstrap.servers": bootstrap}, name=f"_schemas-{name}") as schemas:
        schemas.refresh()
        kept = schemas.latest(name)
    assert (kept.version, kept.encoding) == (1, "protobuf")
    assert topic.message is not None
    assert b64decode(kept.definition) == topic.message.files


# When the broker is away


@contextlib.contextmanager
def out_of_time(reason: str) -> Iterator[None]:
    """Long before the patience of a minute that it has by default, however busy the machine is."""
    began = time.monotonic()
    with pytest.raises(PublishTimedOut, match=reason):
        yield
    assert time.monotonic() - began < 20


def test_a_publish_waits_no_longer_than_it_may_and_says_what_may_have_become_of_the_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.queues.outbox.DELIVERY_MS_MAX", 8_000)
    with Broker(tmp_path) as broker, App("shop", brokers=broker.bootstrap) as app:
        clicks = app.topic("clicks", schema="user STRING", key="user")
        clicks.publish({"user": "ada"})
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with out_of_time(r"clicks: not confirmed within 0\.5 s"):
                clicks.publish({"user": "grace"}, timeout=0.5)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        receipt = clicks.publish({"user": "alan"}, timeout=30)
        assert receipt.offset in (1, 2)  # the row before came late, or not at all
        address = broker.bootstrap
        broker.kill()
        with out_of_time(f"no broker answers at {address}"):
            clicks.publish({"user": "mary"}, timeout=3)
        with out_of_time("the topic and its schema are being looked up"):
            app.topic("orders", schema="id BIGINT", key="id").publish({"id": 1}, timeout=0.2)
    warned = [one.getMessage() for one in caplog.records if "no broker at" in one.getMessage()]
    assert warned
    assert all(
        one.startswith("app.publish: no broker at") and "rows wait up to 8 s" in one
        for one in warned
    )


@pytest.mark.parametrize("timeout", [0.2, 60.0, 3600.0])
def test_every_publish_has_an_end_from_its_beginning_on(timeout: float) -> None:
    """The default of 60 s too: looking up a topic and its schema has patience of its own."""
    until = Deadline(timeout)
    assert 0 < until.left <= timeout
    assert until.at <= time.monotonic() + timeout


def test_no_error_of_publishing_speaks_of_queues_or_jobs() -> None:
    fault = KafkaError(KafkaError._TRANSPORT, "no connection")
    trouble = ClientTrouble("app.publish", {"bootstrap.servers": "broker:9092"})
    trouble.config["error_cb"](KafkaError(KafkaError._SSL, "unknown authority"))
    said = [
        trouble.cause(),
        ClientTrouble("app.publish", {"bootstrap.servers": "b:1"}).error_from(fault),
        PublishFailed(topic="clicks", reason="no answer"),
        PublishRefused(topic="clicks", reason="too large"),
        PublishTimedOut(topic="clicks", reason="no answer", timeout=1),
    ]
    for error in said:
        assert error is not None
        assert "queue" not in str(error)
        assert "job" not in str(error)
