"""What a source reads next, and when it is idle: on our broker and on Apache Kafka."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from millstream.base.declared import EventTime
from millstream.base.offsets import OffsetRange
from millstream.processing.reading import range_reader
from millstream.processing.reading.offset_plan import CLOCK, Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import BatchLimits, StreamPlanner
from millstream.processing.reading.topic_read import TopicRead
from tests.clients.steps import Sent, create_topic, eventually, produce, unique_name, values_of

IDLE_MS = 10_000
NO_LIMIT = BatchLimits()


class Hands:
    """A clock that is set by hand: at once, or by `steps` when it is looked at."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.steps: Iterator[int] = iter(())

    def __call__(self) -> int:
        self.now_ms += next(self.steps, 0)
        return self.now_ms


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def orders(bootstrap: str, admin: AdminClient) -> str:
    name = unique_name("orders")
    create_topic(admin, name, partitions=1)
    return name


@pytest.fixture
def plan(bootstrap: str, orders: str, hands: Hands) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The position after a given one."""
    terms = EventTime(column="at", idle_ms=IDLE_MS)
    read = TopicRead(brokers=bootstrap, topics=(orders,), event_time=terms, beats=True)
    planner = StreamPlanner(read, clock=hands)
    return lambda start: planner.next_position(start or planner.first_position(), NO_LIMIT)


def test_a_source_that_waits_for_an_open_transaction_is_not_idle(
    bootstrap: str, orders: str, hands: Hands, plan: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": orders})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(orders, b"{}")
    producer.flush()
    produce(bootstrap, orders, [Sent(value=b"{}")])  # behind it
    position = plan({})
    hands.now_ms += 2 * IDLE_MS
    position = plan(position)
    assert CLOCK not in position

    producer.commit_transaction()
    # Kafka writes its marker behind the answer.
    eventually(lambda: plan(position)[orders]["offsets"]["0"] >= 2, what="the end of it")
    position = plan(position)
    assert CLOCK not in position
    hands.now_ms += IDLE_MS
    assert plan(position)[CLOCK] == hands.now_ms


def test_a_source_whose_broker_was_away_is_not_idle_for_that(
    hands: Hands, plan: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    position = plan({})
    hands.steps = iter([10, 3 * IDLE_MS])  # it answers after that long
    position = plan(position)
    assert CLOCK not in position
    hands.now_ms += IDLE_MS - 1
    assert CLOCK not in plan(position)
    hands.now_ms += 1
    assert plan(position)[CLOCK] == hands.now_ms


def test_a_reader_of_another_thread_takes_nothing_from_one_that_reads(
    bootstrap: str, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "POLL_RECORDS_MAX", 10)
    monkeypatch.setattr(range_reader, "BATCH_RECORDS_MAX", 10)
    names = [unique_name("clicks"), unique_name("orders")]
    for name in names:
        create_topic(admin, name, partitions=1)
        produce(bootstrap, name, [Sent(value=name.encode())] * 30)

    def lists_of(name: str) -> Iterator[list[Message]]:
        reader = RangeReader(TopicRead(brokers=bootstrap, topics=(name,)))
        return reader.read(Partition(name, 0), OffsetRange(start=0, end=30))

    lists = lists_of(names[0])
    found = next(lists)
    with ThreadPoolExecutor(1) as another:
        others = another.submit(lambda: [one for some in lists_of(names[1]) for one in some])
        assert values_of(others.result()) == [names[1].encode()] * 30
    assert values_of([*found, *(one for some in lists for one in some)]) == [names[0].encode()] * 30
