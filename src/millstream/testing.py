"""Pytest fixtures with a real broker and real Spark, for any project that installs millstream.

    def test_an_order_is_published(millstream_broker, millstream_topic):
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        producer.produce(millstream_topic, b"order 1")

    def test_clicks_are_counted(millstream_steps):
        steps = millstream_steps(app, "clicks_by_url")
        steps.add("clicks", {"url": "/a"}, {"url": "/a"})
        steps.expect([{"url": "/a", "clicks": 2}])

Pytest finds them by itself (entry point `pytest11`); docs/guides/testing.md has all steps.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.embedded import Broker
    from millstream.processing.session import SparkSession
    from millstream.processing.steps.stage import Stage

TOPIC_NAME_LENGTH_MAX = 200


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
