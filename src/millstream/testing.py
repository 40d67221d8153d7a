"""Pytest fixtures with a real broker, for any project that installs millstream.

    def test_an_order_is_published(millstream_broker, millstream_topic):
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        producer.produce(millstream_topic, b"order 1")

Pytest finds them by itself (entry point `pytest11`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.embedded import Broker

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
