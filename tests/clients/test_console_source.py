"""What the console learns of a real broker, Millstream's and Apache Kafka's, and does there."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from millstream import Aggregate, event
from millstream.app import App
from millstream.base.librdkafka import admin_api
from millstream.commands.connecting import GroupNotFound, TopicNotFound
from millstream.commands.console.shown_app import ShownApp
from millstream.embedded import Broker
from millstream.queues.queue import Queue
from millstream.web.console.facts import NewRecord, Node, RecordSeen
from tests.support.waiting import eventually

WITHIN_S = 60.0
PARTITIONS = 3


@event
class Counted:
    units: int


class Stock(Aggregate):
    on_hand = 0

    def count(self, units: int) -> Iterator[Counted]:
        yield Counted(units)

    def on_Counted(self, event: Counted) -> None:  # noqa: N802  # named after its event
        self.on_hand = event.units


@pytest.fixture(params=["millstream", pytest.param("kafka", marks=pytest.mark.full)])
def brokers(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        kafka: str = request.getfixturevalue("apache_kafka")
        return kafka
    broker: Broker = request.getfixturevalue("millstream_broker")
    return broker.bootstrap


@pytest.fixture
def app(brokers: str, tmp_path: Path) -> Iterator[App]:
    with App("shop", data=tmp_path / "data", brokers=brokers) as app:
        yield app


@pytest.fixture
def shown(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShownApp]:
    with closing(ShownApp(app)) as shown:
        yield shown


@pytest.fixture
def topic(brokers: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of three partitions, with four records in the second."""
    name = f"console-{time.monotonic_ns()}"
    api = admin_api()
    admin = api.AdminClient({"bootstrap.servers": brokers, "log_level": 2})
    new = api.NewTopic(name, PARTITIONS, 1, config={"retention.ms": "86400000"})
    admin.create_topics([new])[name].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": brokers, "log_level": 2})
    for number in range(4):
        producer.produce(name, f"value {number}", f"key {number}", 1, headers={"n": f"{number}"})
    assert producer.flush(WITHIN_S) == 0
    yield name
    admin.delete_topics([name])[name].result(WITHIN_S)


def offsets(records: Any) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in records]


def test_a_list_of_topics_has_their_figures(shown: ShownApp, topic: str) -> None:
    assert shown.topics.partitions()[topic] == PARTITIONS
    [seen] = shown.topics.seen([topic, "not-there"])
    assert (seen.partitions, seen.records, seen.end) == (PARTITIONS, 4, 4)
    assert seen.size_bytes is not None
    assert seen.size_bytes > 100
    assert shown.topics.ends([topic, "not-there"]) == {topic: 4}


def test_a_topic_is_described(shown: ShownApp, topic: str) -> None:
    detail = shown.topics.detail(topic)
    assert [(one.start, one.end) for one in detail.partitions] == [(0, 0), (0, 4), (0, 0)]
    assert detail.retention == "1d"
    assert [one.value for one in detail.configs if one.is_own] == ["86400000"]
    with pytest.raises(TopicNotFound):
        shown.topics.detail("not-there")


def test_records_are_read_the_newest_first_or_from_an_offset(shown: ShownApp, topic: str) -> None:
    newest = shown.topics.newest(topic, partition=None, limit=3)
    assert offsets(newest) == [(1, 3), (1, 2), (1, 1)]
    assert (newest[0].key, newest[0].headers) == (b"key 3", (("n", b"3"),))
    assert list(shown.topics.newest(topic, partition=0, limit=3)) == []
    found = shown.topics.records(topic, partition=1, offset=2, limit=10)
    assert offsets(found) == [(1, 2), (1, 3)]
    assert list(shown.topics.records(topic, partition=1, offset=4, limit=10)) == []


def test_a_record_is_produced_and_read_at_once(shown: ShownApp, topic: str) -> None:
    shown.topics.detail(topic)
    place = shown.topics.produce(
        NewRecord(topic=topic, key=b"k", value=None, headers=(("h", b"1"),), partition=2)
    )
    assert place == (2, 0)
    assert shown.topics.detail(topic).partitions[2].end == 1
    [found] = shown.topics.records(topic, partition=2, offset=0, limit=1)
    assert (found.key, found.value, found.headers) == (b"k", None, (("h", b"1"),))


def test_a_tail_gives_what_comes_and_not_what_was(
    shown: ShownApp, topic: str, brokers: str
) -> None:
    producer = Producer({"bootstrap.servers": brokers, "log_level": 2})
    came: list[RecordSeen] = []
    with closing(shown.topics.tail(topic, partition=None)) as tail:

        def has_come() -> bool:
            producer.produce(topic, b"new", partition=0)
            producer.flush(WITHIN_S)
            came.extend(tail.poll(0.5))
            return bool(came)

        eventually(has_come, what="a record that came", within_s=WITHIN_S)
    assert {one.value for one in came} == {b"new"}


def test_a_group_tells_its_lag(shown: ShownApp, topic: str, brokers: str) -> None:
    name = f"group-of-{topic}"
    config = {
        "bootstrap.servers": brokers,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 2,
    }
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.consume(1, 1.0)), what="a record", within_s=WITHIN_S)
        consumer.commit(asynchronous=False)
        assert name in shown.groups.names()
        [seen] = shown.groups.seen([name])
        assert (seen.lag, seen.uncommitted, seen.members) == (3, 2, 1)
        detail = shown.groups.detail(name)
        assert [(one.partition, one.lag) for one in detail.partitions if one.lag] == [(1, 3)]
    with pytest.raises(GroupNotFound):
        shown.groups.detail("not-there")


def test_dead_letters_are_seen_and_put_back(shown: ShownApp, brokers: str) -> None:
    name = f"restock-{time.monotonic_ns()}"
    with closing(Queue(name, {"bootstrap.servers": brokers, "log_level": 2})) as queue:
        queue.put_many([{"n": 1}, {"n": 2}])
        for _ in range(2):
            job = queue.get(WITHIN_S)
            assert job is not None
            job.reject("not today")
        assert name in shown.queues.names()
        assert len(shown.queues.seen(name).workers) == 1
        letters = shown.queues.dead(name)
        assert {one.death.reason for one in letters} == {"not today"}
        assert shown.queues.redrive(name, [letters[0].id]) == 1
        assert len(shown.queues.dead(name)) == 1
        assert shown.queues.redrive(name, None) == 1
        assert list(shown.queues.dead(name)) == []


def test_a_flow_is_what_was_declared(app: App, shown: ShownApp) -> None:
    app.topic("clicks")
    app.capture("sqlite:///none.db", tables=["orders"], name="shopdb")
    app.aggregates(Stock)

    @app.view(key="url")
    def per_url(clicks: Any, orders: Any) -> Any:
        return clicks

    @app.job(to="alerts")
    def alerted(per_url: Any, events: Any) -> Any:
        return per_url

    flow = shown.declared.flow()
    clicks, orders = Node("topic", "clicks"), Node("topic", "orders")
    view, job = Node("view", "per_url"), Node("job", "per_url")
    assert set(flow.edges) == {
        (Node("capture", "shopdb"), orders),
        (clicks, job),
        (orders, job),
        (job, view),
        (view, Node("job", "alerted")),
        (Node("aggregate", "Stock"), Node("topic", "shop.events")),
        (Node("topic", "shop.events"), Node("job", "alerted")),
        (Node("job", "alerted"), Node("topic", "alerts")),
    }
    assert [one.status for one in shown.declared.jobs()] == [None, None]
    assert "shopdb" in [one.name for one in shown.declared.captures()]
    assert shown.declared.view_place("per_url").endswith("per_url.sqlite")
