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
from millstream.base.clock import system_clock
from millstream.base.librdkafka import admin_api
from millstream.commands.connecting import GroupNotFound, PartitionNotFound, TopicNotFound
from millstream.commands.console.record_reader import READ_BYTES_MAX, TAIL_BYTES_MAX
from millstream.commands.console.shown_app import ShownApp
from millstream.embedded import Broker
from millstream.processing.jobs.job import Job, ToTopic
from millstream.processing.jobs.job_status import StatusFiles
from millstream.processing.jobs.lag import Lag
from millstream.processing.jobs.progress import JobProgress
from millstream.queues.queue import Queue
from millstream.web.console.facts import Look, NewRecord, Node, RecordSeen
from tests.clients.share_group_steps import configure_group
from tests.clients.streams_group_steps import join_streams, leave_streams
from tests.support.raw_client import RawClient
from tests.support.waiting import eventually
from tests.support.written_checkpoint import write_checkpoint

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


def job_over(app: App, topic: str, progress: JobProgress, *, age_ms: int = 0) -> Path:
    """A job that reads the topic, and the status that its run has left; the folder of jobs."""
    app.topic(topic)
    app.catalog.add(
        Job(
            name="kept",
            function=lambda topic: topic,
            inputs={"topic": topic},
            output=ToTopic(topic="x"),
        )
    )
    jobs = app.data / "jobs"
    (jobs / "kept").mkdir(parents=True)
    StatusFiles(jobs, lambda: system_clock() - age_ms).look([progress])
    return jobs


def test_a_job_that_does_not_run_is_measured_to_the_end_of_its_topic(
    app: App, shown: ShownApp, topic: str, brokers: str
) -> None:
    """By what its checkpoint has as done: not by a planned batch, nor by its last words."""
    written_ms = system_clock() - 3_600_000
    write(brokers, topic, [(0, b"waits", written_ms), (0, b"waits", written_ms + 1)])
    told = JobProgress(job="kept", state="stopped", lag={topic: 0}, lag_ms={topic: 0})
    jobs = job_over(app, topic, told)
    assert shown.declared.jobs()[0].lag.total == 6, "it has never done a batch"
    write_checkpoint(jobs, "kept", {topic: {0: 0, 1: 1, 2: 0}})
    write_checkpoint(jobs, "kept", {topic: {0: 2, 1: 4, 2: 0}}, batch=1, is_done=False)
    eventually(lambda: shown.declared.jobs()[0].lag.total == 5, what="a new look", within_s=60)
    [seen] = shown.declared.jobs()
    assert seen.lag.oldest_ms is not None
    assert 3_600_000 <= seen.lag.oldest_ms < 3_600_000 + WITHIN_S * 1_000
    write_checkpoint(jobs, "kept", {topic: {0: 2, 1: 4, 2: 0}}, batch=1)
    eventually(lambda: shown.declared.jobs()[0].lag.total == 0, what="a new look", within_s=60)
    write(brokers, topic, [(2, b"more", written_ms)])
    eventually(lambda: shown.declared.jobs()[0].lag.total == 1, what="a new look", within_s=60)


def test_a_job_that_runs_is_believed(app: App, shown: ShownApp, topic: str) -> None:
    told = JobProgress(job="kept", state="running", batch=1, lag={topic: 2}, lag_ms={topic: 9})
    jobs = job_over(app, topic, told)
    write_checkpoint(jobs, "kept", {topic: {0: 0, 1: 0, 2: 0}})
    assert shown.declared.jobs()[0].lag == Lag(records={topic: 2}, ms={topic: 9})


def test_a_job_that_was_killed_is_measured(app: App, shown: ShownApp, topic: str) -> None:
    told = JobProgress(job="kept", state="running", batch=1, lag={topic: 0}, lag_ms={topic: 0})
    jobs = job_over(app, topic, told, age_ms=60_000)
    write_checkpoint(jobs, "kept", {topic: {0: 0, 1: 1, 2: 0}})
    [seen] = shown.declared.jobs()
    assert (seen.is_stale, seen.lag.total) == (True, 3)


def test_a_checkpoint_that_cannot_be_read_leaves_the_lag_unknown(
    app: App, shown: ShownApp, topic: str
) -> None:
    jobs = job_over(app, topic, JobProgress(job="kept", state="failed", error="damaged"))
    write_checkpoint(jobs, "kept", {topic: {0: 0}})
    for path in (jobs / "kept").glob("checkpoint-*/offsets/0"):
        path.write_text("v1\n{")
    assert shown.declared.jobs()[0].lag == Lag()
    (jobs / "kept" / "manifest.json").write_text("{")
    assert shown.declared.jobs()[0].lag == Lag()


def test_the_watermark_of_a_topic_with_corrections_leaves_their_room_out(
    app: App, shown: ShownApp
) -> None:
    terms: dict[str, Any] = {"schema": "at TIMESTAMP", "event_time": "at", "lateness": "10 seconds"}
    app.topic("payments", **terms, late="correct", keep="1 day")
    app.topic("clicks", **terms)
    for name in ("payments", "clicks"):
        app.catalog.add(
            Job(name=name, function=print, inputs={"topic": name}, output=ToTopic(topic="x"))
        )
    corrects = {one.name: one.corrects_ms for one in shown.declared.jobs()}
    assert corrects == {"payments": 86_400_000 - 10_000, "clicks": 0}


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


@pytest.fixture
def wide(brokers: str) -> Iterator[str]:
    """Of forty partitions, each with a record."""
    name = f"console-wide-{time.monotonic_ns()}"
    api = admin_api()
    admin = api.AdminClient({"bootstrap.servers": brokers, "log_level": 2})
    admin.create_topics([api.NewTopic(name, 40, 1)])[name].result(WITHIN_S)
    write(brokers, name, [(number, b"old", 1_000 + number) for number in range(40)])
    yield name
    admin.delete_topics([name])[name].result(WITHIN_S)


def write(brokers: str, topic: str, records: list[tuple[int, bytes, int]]) -> None:
    """Of partitions, values and times, in order."""
    producer = Producer({"bootstrap.servers": brokers, "log_level": 2})
    for partition, value, at_ms in records:
        producer.produce(topic, value, partition=partition, timestamp=at_ms)
    assert producer.flush(WITHIN_S) == 0


def test_the_newest_are_those_of_any_partition(shown: ShownApp, wide: str, brokers: str) -> None:
    assert len(shown.topics.newest(wide, partition=None, limit=50)) == 40
    write(brokers, wide, [(39, b"new", 2_000 + number) for number in range(60)])
    newest = shown.topics.newest(wide, partition=None, limit=50)
    assert offsets(newest) == [(39, 60 - number) for number in range(50)]
    few = shown.topics.newest(wide, partition=None, limit=10)  # than partitions
    assert offsets(few) == [(39, 60 - number) for number in range(10)]


def test_large_records_are_looked_at_as_far_as_they_fit(
    shown: ShownApp, topic: str, brokers: str
) -> None:
    write(brokers, topic, [(0, bytes(900_000), 10**12 + number) for number in range(40)])
    look = shown.topics.newest(topic, partition=0, limit=500)
    assert isinstance(look, Look)
    assert look.is_cut
    assert offsets(look) == [(0, 39 - number) for number in range(len(look))]
    assert READ_BYTES_MAX * 0.8 < 900_000 * len(look) < READ_BYTES_MAX + 1_000_000
    found = shown.topics.records(topic, partition=0, offset=3, limit=500)
    assert isinstance(found, Look)
    assert found.is_cut
    assert offsets(found) == [(0, 3 + number) for number in range(len(found))]


def test_a_tail_takes_so_many_bytes_at_once(shown: ShownApp, topic: str, brokers: str) -> None:
    came: list[RecordSeen] = []
    with closing(shown.topics.tail(topic, partition=2)) as tail:

        def has_begun() -> bool:
            write(brokers, topic, [(2, b"first", 1)])
            return bool(tail.poll(0.5))

        eventually(has_begun, what="a first record", within_s=WITHIN_S)
        write(brokers, topic, [(2, bytes(400_000), 2) for _ in range(10)])
        sizes: list[int] = []

        def all_came() -> bool:
            found = tail.poll(0.5)
            sizes.append(sum(len(one.value or b"") for one in found))
            came.extend(one for one in found if one.value != b"first")
            return len(came) == 10

        eventually(all_came, what="all of them", within_s=WITHIN_S)
    assert max(sizes) <= TAIL_BYTES_MAX + 400_000


@pytest.mark.parametrize("partition", [PARTITIONS, 3_000_000_000])
def test_a_partition_that_is_not_there_has_no_tail(
    shown: ShownApp, topic: str, partition: int
) -> None:
    with pytest.raises(PartitionNotFound):
        shown.topics.tail(topic, partition=partition)


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


def test_a_streams_group_is_seen_with_its_members(
    shown: ShownApp, topic: str, brokers: str
) -> None:
    name = f"application-of-{topic}"
    configure_group(brokers, name, streams_initial_rebalance_delay_ms="0")
    with RawClient(brokers) as client:
        told = join_streams(client, name, topic)
        assert name in shown.groups.names()
        [seen] = shown.groups.seen([name])
        assert (seen.protocol, seen.state, seen.members) == ("streams", "stable", 1)
        detail = shown.groups.detail(name)
        assert {one.topic for one in detail.partitions} == {topic}
        assert [one.partitions for one in detail.members] == [len(detail.partitions)]
        leave_streams(client, name, told.member_id)


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
