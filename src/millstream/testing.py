"""Pytest fixtures with a real broker and real Spark, for any project that installs millstream.

    def test_an_order_is_published(millstream_broker, millstream_topic):
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        producer.produce(millstream_topic, b"order 1")

    def test_clicks_are_counted(millstream_steps):
        steps = millstream_steps(app, "clicks_by_url")
        steps.add("clicks", {"url": "/a"}, {"url": "/a"})
        steps.expect([{"url": "/a", "clicks": 2}])

Pytest finds them by itself (entry point `pytest11`); docs/guides/testing.md has all steps. Beside
them two functions for aggregates, which need no broker:

    from millstream.testing import folded, forgotten

    assert folded(Membership, forgotten(Registered("ada", "ada@example.org"))).moves == 0
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

if TYPE_CHECKING:
    from millstream.embedded import Broker
    from millstream.eventsourcing.aggregate import Aggregate
    from millstream.processing.session import SparkSession
    from millstream.processing.steps.stage import Stage

TOPIC_NAME_LENGTH_MAX = 200

AggregateT = TypeVar("AggregateT", bound="Aggregate")
EventT = TypeVar("EventT")


@pytest.fixture(scope="session")
def millstream_broker() -> Iterator[Broker]:
    """One broker for the whole session, in its own process, on a free port, in a temporary
    directory. `millstream_broker.bootstrap` is its address."""
    from millstream.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def millstream_topic(millstream_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, named after the test; gone when it ends."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    # Kafka takes '.' and '_' for the same in a name, so only '-' is used here.
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:TOPIC_NAME_LENGTH_MAX].strip("-")
    name = f"{test}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": millstream_broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    yield name
    if millstream_broker.is_running:
        admin.delete_topics([name])[name].result()


@pytest.fixture(scope="session")
def millstream_session() -> Iterator[SparkSession]:
    """One Spark session for all tests: starting it takes seconds. Override it to share yours."""
    from millstream.processing.session import open_session

    session = open_session("tests", master="local[2]", quick_start=True, log_level="off")
    yield session
    session.stop()


@pytest.fixture
def millstream_steps(
    millstream_session: SparkSession, millstream_broker: Broker, tmp_path: Path
) -> Iterator[Stage]:
    """Makes scripts of steps: `millstream_steps(app, "job")`, or for a function of DataFrames
    `millstream_steps(function, inputs=[...], key="id")`."""
    from millstream.processing.steps.stage import Stage

    stage = Stage(millstream_session, millstream_broker.bootstrap, tmp_path)
    yield stage
    stage.close()


def folded(kind: type[AggregateT], *events: object) -> AggregateT:
    """The aggregate as these events make it. Its commands can be called: they yield events."""
    from millstream.eventsourcing.aggregate import fold
    from millstream.eventsourcing.event_types import NO_KEYS

    aggregate = kind("test")
    for version, event in enumerate(events, 1):
        fold(aggregate, (event, NO_KEYS), version=version, stream=f"{kind.__name__}:test")
    return aggregate


def forgotten(event: EventT) -> EventT:
    """The event as it is read when everybody in it was forgotten."""
    from millstream.eventsourcing.declared_event import facts_of
    from millstream.eventsourcing.personal import FORGOTTEN, is_about_somebody, personal_fields

    facts = facts_of(type(event))
    fields = personal_fields(type(event), None if facts is None else facts.subject)
    gone = {one.name: FORGOTTEN for one in fields if is_about_somebody(one, vars(event))}
    return cast(EventT, dataclasses.replace(cast(Any, event), **gone))
