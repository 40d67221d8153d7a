"""`millstream late`, on our broker and on Apache Kafka."""

import pytest
from confluent_kafka.admin import AdminClient

from millstream.base.declared import EventTime
from millstream.base.offsets import OffsetRange
from millstream.processing.reading.late_events import LateEvents
from millstream.processing.reading.lateness import Fate, Judged
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.topic_read import TopicRead
from tests.clients.steps import Sent, create_topic, produce, read, unique_name
from tests.clients.test_cli_commands import Cli

EVENTS = [Sent(value=b"a"), Sent(value=b"b", key=b"k", headers=(("trace", b"x"),), partition=1)]


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def topic(bootstrap: str, admin: AdminClient) -> str:
    """Two events of it were late for a job of the same name, which read their batch twice."""
    name = unique_name("orders")
    create_topic(admin, name, partitions=2)
    produce(bootstrap, name, EVENTS[1:])
    (record,) = read(bootstrap, name, 1, partitions=2)
    late = TopicRead(
        brokers=bootstrap,
        topics=(name,),
        event_time=EventTime(column="at", late="quarantine"),
        job=name,
        run="r1",
        source="orders",
    )
    within = OffsetRange(start=0, end=1)
    for _ in range(2):
        task = LateEvents(late, Partition(name, 1), within, watermark_ms=5)
        task.take([record], Judged({Fate.QUARANTINED: [0]}))
        task.count()
    return name


def test_late_events_are_counted_once_by_job_and_source(cli: Cli, topic: str) -> None:
    counts = [one for one in cli.json("late", "list") if one["job"] == topic]
    assert counts == [{"job": topic, "source": "orders", "quarantined": 1}]
    assert topic in cli.run("late", "list")


def test_a_late_event_is_shown_and_put_back_once(cli: Cli, bootstrap: str, topic: str) -> None:
    (shown,) = cli.json("late", "show", topic)
    event_id = f"{topic}-1-0"
    assert (shown["id"], shown["key"], shown["value"]) == (event_id, "k", "b")
    assert (shown["headers"], shown["jobs"]) == ({"trace": "x"}, [topic])
    assert event_id in cli.run("late", "show", topic)

    assert cli.json("late", "reinject", topic, "--all", "--yes") == [{"id": event_id}]
    assert cli.json("late", "reinject", topic, "--id", event_id, "--yes") == []
    back = read(bootstrap, topic, 2, partitions=2)[-1]
    assert (back.partition(), back.key(), back.value()) == (1, b"k", b"b")
    assert dict(back.headers() or ()) == {
        "trace": b"x",
        "millstream.reinjected": event_id.encode(),
    }
    assert cli.json("late", "show", topic) == []
    (known,) = cli.json("late", "show", topic, "--reinjected")
    assert known["reinjected_ms"] is not None


def test_what_cannot_be_is_told(cli: Cli, topic: str) -> None:
    assert "say which events, with --id ID or --all" in cli.fail(
        "late", "reinject", topic, exit_code=2
    )
    missing = cli.fail("late", "reinject", topic, "--id", "orders-9-9", "--yes")
    assert f"the quarantine of {topic} has no event orders-9-9" in missing
    other = unique_name("other")
    assert f"topic {other} has no quarantine" in cli.fail("late", "show", other)
